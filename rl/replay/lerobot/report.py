"""What an import did, and how it is written beside the rows, as import.json of the store."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from rl.replay.lerobot.errors import DatasetError
from rl.replay.lerobot.mapping import Crop, View

REPORT = "import.json"
_SHOWN = 20


@dataclass(frozen=True)
class ImportedEpisode:
    """A store's episode and the rows [start, stop) of the dataset's episode that it holds."""

    episode: int
    source_episode: int
    start: int
    stop: int
    tasks: tuple[str, ...] = ()
    remarks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SkippedEpisode:
    """An episode of the dataset that is not in the store."""

    source_episode: int
    reason: str


@dataclass(frozen=True)
class ImportReport:
    """What became of a dataset. clipped: share of the steps whose action entry lay beyond the scale, per entry."""

    source: str
    version: str
    fps: float
    transitions: int
    views: Mapping[str, View]
    episodes: tuple[ImportedEpisode, ...]
    skipped: tuple[SkippedEpisode, ...]
    notes: tuple[str, ...]
    clipped: tuple[float, ...]

    def describe(self) -> Iterator[str]:
        """Lines for a person."""
        yield f"{self.source}: {len(self.episodes)} episodes, {self.transitions} transitions at {self.fps:g} Hz"
        for skipped in self.skipped[:_SHOWN]:
            yield f"left out: episode {skipped.source_episode}: {skipped.reason}"
        if len(self.skipped) > _SHOWN:
            yield f"left out: {len(self.skipped) - _SHOWN} more, see {REPORT}"
        yield from self.notes
        if max(self.clipped, default=0.0) > 0:
            shares = " ".join(f"{share:.1%}" for share in self.clipped)
            yield f"actions beyond their scale, clipped, per entry: {shares}"

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(_plain(self), indent=1, allow_nan=True) + "\n")

    @classmethod
    def load(cls, store: Path) -> ImportReport:
        """The report of an imported store; raises DatasetError where there is none."""
        path = store / REPORT
        try:
            data = json.loads(path.read_text())
            episodes = [{**body, "tasks": tuple(body["tasks"])} for body in data.pop("episodes")]
            return cls(
                views={name: view_from_json(body) for name, body in data.pop("views").items()},
                episodes=tuple(ImportedEpisode(**body) for body in episodes),
                skipped=tuple(SkippedEpisode(**body) for body in data.pop("skipped")),
                notes=tuple(data.pop("notes")),
                clipped=tuple(data.pop("clipped")),
                **data,
            )
        except FileNotFoundError as error:
            raise DatasetError(f"{store}: not an imported store, {REPORT} is missing") from error
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(f"{path}: not the report of an import ({error!r}); import again") from error


def view_to_json(view: View) -> dict[str, Any]:
    body = _plain(view)
    assert isinstance(body, dict)
    return body


def view_from_json(body: Mapping[str, Any]) -> View:
    """Raises KeyError, TypeError or ValueError where it is none."""
    return View(**{**body, "crop": Crop(body["crop"]), "box": tuple(body["box"])})


def _plain(value: Any) -> Any:
    """Dataclasses and enums as what JSON knows."""
    if dataclasses.is_dataclass(value):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
