"""From replay stores to what a world model trains on and is judged by: its spec, clips, and held-out clips."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rl.replay.fingerprint import fingerprints
from rl.replay.reader import StoreReader
from rl.replay.sampler import ClipSampler, Holdout, PartConfig, Split, concatenate_clips, gather_clips
from rl.replay.schema import StoreSchema
from robot.types import Clip
from worldmodel.interface import ActionNormalisation, WorldModelError, WorldModelSpec

REAL_STORES = ("demo", "real")  # of a run directory; what was imagined there teaches no world model


def real_stores(path: Path) -> list[Path]:
    """`path` itself where it is a store, or the stores of real episodes of a run; raises WorldModelError."""
    if (path / "schema.json").exists():
        return [path]
    found = [path / name for name in REAL_STORES if (path / name / "schema.json").exists()]
    if not found:
        raise WorldModelError(
            f"{path}: neither a store nor a run directory (no schema.json in it, in demo/ or in real/)"
        )
    return found


def make_spec(
    schema: StoreSchema, context_frames: int, max_horizon: int, views: Sequence[str] = ()
) -> WorldModelSpec:
    """What a world model of this store sees; `views` chooses some, all without. Raises WorldModelError."""
    if not schema.views:
        raise WorldModelError(
            "this store holds no images (it was recorded with robot.obs=STATE); a world model needs a camera"
        )
    unknown = [view for view in views if view not in schema.views]
    if unknown:
        raise WorldModelError(f"views: {unknown[0]} was not recorded; choose among {', '.join(schema.views)}")
    meaning = {
        k: v for k, v in sorted(schema.metadata.items()) if k == "control_hz" or k.startswith("action")
    }
    return WorldModelSpec(
        views={view: schema.views[view] for view in views or schema.views},
        action=ActionNormalisation.identity(schema.action_dim, json.dumps(meaning)),
        context_frames=context_frames,
        max_horizon=max_horizon,
    )


@dataclass(frozen=True)
class ClipData:
    """Clips of some stores, whole episodes held out. The stores hold views and actions of one kind."""

    readers: Sequence[StoreReader]
    holdouts: Sequence[Holdout]

    @classmethod
    def open(cls, stores: Sequence[Path], holdout: Holdout) -> ClipData:
        """The stores in `stores`; raises StoreError where one is missing, SchemaMismatchError where they differ."""
        readers = [StoreReader(store) for store in stores]
        return cls(readers, [holdout] * len(readers))

    @property
    def schema(self) -> StoreSchema:
        return self.readers[0].schema

    @property
    def hz(self) -> float:
        """Control steps per second; raises WorldModelError where the stores do not say."""
        rate = self.schema.metadata.get("control_hz")
        if not isinstance(rate, int | float):
            raise WorldModelError("the store's schema.json names no control_hz; record or import it anew")
        return float(rate)

    def sampler(self, split: Split) -> ClipSampler:
        """Clips of one side of the hold-out."""
        return ClipSampler(
            [
                PartConfig(reader, split=split, holdout=holdout)
                for reader, holdout in zip(self.readers, self.holdouts, strict=True)
            ]
        )

    def learned(self) -> frozenset[str]:
        """Fingerprints of the episodes on the training side of the hold-out, so far as they are visible."""
        parts = zip(self.readers, self.holdouts, strict=True)
        return frozenset[str]().union(*(fingerprints(reader, holdout) for reader, holdout in parts))

    def held_out(self, count: int, length: int, history: int, rng: np.random.Generator) -> Clip:
        """At most `count` held-out clips of `length` whole steps, drawn without replacement, in the same order always.

        `episode` of the clips is made unique over the stores. Raises WorldModelError where no held-out episode is
        so long.
        """
        starts = [self._whole_starts(index, length) for index in range(len(self.readers))]
        ends = np.cumsum([len(rows) for rows in starts])
        if not ends[-1]:
            raise WorldModelError(
                f"no held-out episode has {length} steps, of {sum(r.num_episodes for r in self.readers)} episodes; "
                "record more, hold out more (holdout.every, holdout.episodes), or ask for a shorter horizon"
            )
        chosen = np.sort(rng.permutation(ends[-1])[:count])
        clips = []
        for index, (reader, rows) in enumerate(zip(self.readers, starts, strict=True)):
            begin = ends[index] - len(rows)
            mine = rows[chosen[(chosen >= begin) & (chosen < ends[index])] - begin]
            if len(mine):
                clip = gather_clips(reader, mine, length, history)
                clip.episode[...] = clip.episode * len(self.readers) + index
                clips.append(clip)
        return concatenate_clips(clips)

    def _whole_starts(self, index: int, length: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Rows at which `length` steps of a held-out episode begin."""
        reader = self.readers[index]
        kept = [info for info in reader.episodes() if not info.discarded]
        numbers = np.array([info.episode for info in kept], np.int64)
        held_out = self.holdouts[index].contains(numbers)
        rows = [
            np.arange(info.first_row, info.end_row - length)
            for info, out in zip(kept, held_out, strict=True)
            if out
        ]
        return np.concatenate([np.empty(0, np.int64), *rows])
