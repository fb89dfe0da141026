"""What a store holds: views, proprio, actions, task; written once as schema.json, checked at each opening."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rl.replay.errors import CorruptStoreError, SchemaMismatchError
from robot.types import ACTION_DIM, ProprioSpec

FORMAT_VERSION = 2
_VIEW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")  # a view is also a file name


@dataclass(frozen=True, eq=False)
class StoreSchema:
    """The contents of a store.

    views: view name -> (H, W) pixels. metadata: whatever else gives the numbers their meaning (frames, action
    scale), as JSON; stores mix only where it is equal. segment_rows: rows of one segment, layout only.
    """

    task: str
    views: Mapping[str, tuple[int, int]]
    proprio: ProprioSpec
    action_dim: int = ACTION_DIM
    instruction: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)
    segment_rows: int = 1024

    def __post_init__(self) -> None:
        for view, size in self.views.items():
            if not _VIEW_NAME.fullmatch(view):
                raise ValueError(f"view name {view!r}: expected letters, digits, '_' and '-' only")
            if len(size) != 2 or min(size) < 1:
                raise ValueError(f"view {view}: expected (height, width) in pixels, both >= 1, got {size}")
        if self.action_dim < 1:
            raise ValueError(f"action_dim: expected >= 1, got {self.action_dim}")
        if self.segment_rows < 2:
            raise ValueError(f"segment_rows: expected >= 2, got {self.segment_rows}")
        # Through JSON and back, so that a fresh schema compares equal to the one read from disk.
        plain = json.loads(json.dumps(dict(self.metadata), allow_nan=False))
        object.__setattr__(self, "metadata", plain)
        object.__setattr__(self, "views", {view: (int(h), int(w)) for view, (h, w) in self.views.items()})

    def check_compatible(self, other: StoreSchema) -> None:
        """Raise SchemaMismatchError naming the first field in which `other` holds something else.

        Not compared: `segment_rows`, and the scales of the proprio spec (stored values are raw SI units).
        """
        difference = self.difference(other)
        if difference is not None:
            name, mine, theirs = difference
            raise SchemaMismatchError(
                f"store schema: {name} differs: expected {mine!r}, got {theirs!r}; "
                "use another directory, or the configuration with which the store was recorded"
            )

    def difference(self, other: StoreSchema) -> tuple[str, object, object] | None:
        """The first field that `check_compatible` finds, here and there; None where both hold the same."""
        mine, theirs = self._meaning(), other._meaning()
        for name in dict.fromkeys([*mine, *theirs]):
            if mine.get(name) != theirs.get(name):
                return name, mine.get(name), theirs.get(name)
        return None

    def _meaning(self) -> dict[str, object]:
        return {
            "task": self.task,
            "instruction": self.instruction,
            "views": sorted(self.views),
            **{f"views.{view} (height, width)": size for view, size in self.views.items()},
            "proprio.names": list(self.proprio.names),
            "action_dim": self.action_dim,
            **{f"metadata.{key}": value for key, value in self.metadata.items()},
        }

    def to_json(self) -> str:
        """The schema as the text of schema.json."""
        spec = self.proprio
        return json.dumps(
            {
                "format": FORMAT_VERSION,
                "task": self.task,
                "instruction": self.instruction,
                "views": self.views,
                "proprio": {
                    "names": list(spec.names),
                    **{name: getattr(spec, name).tolist() for name in ("offset", "scale", "fine")},
                },
                "action_dim": self.action_dim,
                "metadata": self.metadata,
                "segment_rows": self.segment_rows,
            },
            indent=2,
        )

    @classmethod
    def load(cls, path: Path) -> StoreSchema:
        """Read schema.json; raises CorruptStoreError if it is none, SchemaMismatchError for other formats."""
        try:
            data = json.loads(path.read_text())
            if data["format"] != FORMAT_VERSION:
                raise SchemaMismatchError(
                    f"{path}: expected store format {FORMAT_VERSION}, got {data['format']}; "
                    "read it with the version that wrote it"
                )
            spec = data["proprio"]
            scales = {name: np.asarray(spec[name], np.float32) for name in ("offset", "scale", "fine")}
            return cls(
                task=data["task"],
                views={view: (size[0], size[1]) for view, size in data["views"].items()},
                proprio=ProprioSpec(names=tuple(spec["names"]), **scales),
                action_dim=data["action_dim"],
                instruction=data["instruction"],
                metadata=data["metadata"],
                segment_rows=data["segment_rows"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptStoreError(
                f"{path}: not a store schema ({error!r}); restore it from a copy"
            ) from error
