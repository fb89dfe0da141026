"""What an exported dataset says of itself under meta/groundhog, so that it comes back as the store it was."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.lerobot.errors import DatasetError, EpisodeError
from rl.replay.lerobot.layout import read_text
from rl.replay.lerobot.mapping import View
from rl.replay.lerobot.report import view_from_json, view_to_json
from rl.replay.schema import StoreSchema

_SCHEMA, _CONTENT = Path("meta/groundhog/schema.json"), Path("meta/groundhog/content.json")
_REMARK = "groundhog/"  # prefix of our columns in the episode table
_MOVED = "source."  # prefix of a column that had the name of one of ours


@dataclass(frozen=True)
class SelfDescription:
    """The store's schema, its views, the columns that are ours, and the others: name here -> name in the store."""

    schema: StoreSchema
    views: Mapping[str, View]
    columns: tuple[str, ...]
    extra: Mapping[str, str]

    @classmethod
    def of(
        cls, schema: StoreSchema, views: Mapping[str, View], columns: Iterable[str], extra: Iterable[str]
    ) -> SelfDescription:
        ours = tuple(columns)
        taken = {*ours, *(view.feature for view in views.values())}
        return cls(schema, views, ours, {_MOVED + name if name in taken else name: name for name in extra})

    def write(self, root: Path) -> None:
        (root / _SCHEMA).parent.mkdir(parents=True, exist_ok=True)
        (root / _SCHEMA).write_text(self.schema.to_json())
        content = {
            "views": {name: view_to_json(view) for name, view in self.views.items()},
            "columns": self.columns,
            "extra": self.extra,
        }
        (root / _CONTENT).write_text(json.dumps(content, indent=1))

    @classmethod
    def load(cls, root: Path) -> SelfDescription | None:
        """What the dataset in `root` says, None for a dataset from elsewhere; raises DatasetError if torn."""
        if not (root / _CONTENT).exists():
            return None
        try:
            content = json.loads(read_text(root / _CONTENT))
            return cls(
                schema=StoreSchema.load(root / _SCHEMA),
                views={name: view_from_json(body) for name, body in content["views"].items()},
                columns=tuple(content["columns"]),
                extra=dict(content["extra"]),
            )
        except (KeyError, TypeError, ValueError, FileNotFoundError) as error:
            raise DatasetError(
                f"{root / _CONTENT}: cannot be read ({error!r}); restore it, or choose a mapping=<name>"
            ) from error

    @staticmethod
    def remarks(outcome: EpisodeOutcome) -> dict[str, str]:
        """The columns of an episode's metadata row that keep its outcome."""
        return {_REMARK + "outcome": outcome.reason.value, _REMARK + "detail": outcome.detail}

    @staticmethod
    def outcome(remarks: Mapping[str, Any]) -> EpisodeOutcome:
        """The outcome that `remarks` kept; raises EpisodeError."""
        try:
            return EpisodeOutcome(EndReason(remarks[_REMARK + "outcome"]), str(remarks[_REMARK + "detail"]))
        except (KeyError, ValueError) as error:
            raise EpisodeError(f"its outcome is missing from the episode table ({error!r})") from error

    @staticmethod
    def foreign(remarks: Mapping[str, Any]) -> dict[str, Any]:
        """The remarks that are not ours."""
        return {name: value for name, value in remarks.items() if not name.startswith(_REMARK)}
