"""Pruning: the synthetic store stays bounded; what the queues can never draw again goes, and leaves a line behind."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl.replay.reader import Rows, StoreReader
from rl.replay.rows import Records
from rl.replay.writer import StoreWriter
from rl.selection.queues import QueueConfig
from robot.types import Label
from worldmodel.counterfactual import BranchKind

LOG = "pruned.jsonl"  # beside the segments


@dataclass(frozen=True, slots=True)
class _Clip:
    """A stored clip: the row behind its last one, and what its age is told by."""

    end_row: int
    length: int
    label: Label
    model: int
    policy: int


class Pruning:
    """Follows what is stored, and drops the oldest segments whose every clip is too old or beyond the capacity.

    The rule is that of the queues, so nothing is taken away that could still be drawn; a learner that still maps a
    segment keeps it. Each pruned stretch leaves a line in `pruned.jsonl`: how much of what it was, from which versions.
    """

    def __init__(self, path: Path, writer: StoreWriter, config: QueueConfig) -> None:
        self._path, self._writer, self._config = path, writer, config
        self._clips: deque[_Clip] = deque()
        self._held: Counter[Label] = Counter()
        self._model = self._policy = -1
        self._oldest_model = 0
        self._first_row = self._dead_row = 0
        self._take_in(StoreReader(path))

    def add(self, end_row: int, length: int, label: Label, model: int, policy: int) -> None:
        """A clip of `length` transitions has been stored, its rows end before `end_row`."""
        self._clips.append(_Clip(end_row, length, label, model, policy))
        self._held[label] += length
        self._model, self._policy = max(self._model, model), max(self._policy, policy)

    @property
    def newest_model(self) -> int:
        """The newest world-model version of which a clip has been stored, -1 before the first."""
        return self._model

    def drop_models_before(self, version: int) -> None:
        """What world models before `version` imagined may go: the queues never draw it again."""
        self._oldest_model = version

    def step(self) -> int:
        """Prune what may go; returns the first row left."""
        while self._clips and self._is_dead(self._clips[0]):
            clip = self._clips.popleft()
            self._held[clip.label] -= clip.length
            self._dead_row = clip.end_row
        size = self._writer.schema.segment_rows
        if self._dead_row // size > self._first_row // size:
            last = self._dead_row // size * size
            line = _told(StoreReader(self._path), self._first_row, last)
            with (self._path / LOG).open("a") as file:
                file.write(json.dumps(line) + "\n")
            self._first_row = self._writer.prune(self._dead_row)
        return self._first_row

    def _is_dead(self, clip: _Clip) -> bool:
        config = self._config
        return (
            clip.model < max(self._oldest_model, self._model - config.max_model_age)
            or clip.policy < self._policy - config.max_policy_age
            or self._held[clip.label] - clip.length >= config.capacity
        )

    def _take_in(self, reader: StoreReader) -> None:
        """What an earlier worker has left."""
        held = [info for info in reader.episodes() if reader.holds(info.episode) and not info.discarded]
        if not held:
            return
        self._first_row = held[0].first_row // reader.schema.segment_rows * reader.schema.segment_rows
        for info, row in zip(held, reader.records(_firsts(held)), strict=True):
            transition = row["transition"]
            model = int(transition["provenance"]["world_model_version"])
            label = Label(int(transition["label"]))
            self.add(info.end_row, info.num_transitions, label, model, int(transition["policy_version"]))


def _firsts(infos: Sequence[Any]) -> Rows:
    return np.array([info.first_row for info in infos], np.int64)


def _told(reader: StoreReader, first: int, last: int) -> dict[str, Any]:
    """What the transitions in rows [first, last) were."""
    starts = reader.valid_starts
    records = reader.records(starts[(starts >= first) & (starts < last)])
    transition = records["transition"]
    provenance = transition["provenance"]
    kinds, labels = provenance["kind"].tolist(), transition["label"].tolist()
    return {
        "first_row": first,
        "end_row": last,
        "clips": int((records["observation"]["step"] == 0).sum()),
        "transitions": len(records),
        "labels": {Label(k).name.lower(): n for k, n in sorted(Counter(labels).items())},
        "kinds": {list(BranchKind)[k].value: n for k, n in sorted(Counter(kinds).items())},
        "policy_versions": _range(transition["policy_version"]),
        "world_model_versions": _range(provenance["world_model_version"]),
        "reward_model_versions": _range(provenance["reward_model_version"]),
        "calibrator_versions": _range(provenance["calibrator_version"]),
        **{f"{name}_mean": _mean(records, name) for name in ("calibrated", "risk", "q", "source_q")},
    }


def _range(values: NDArray[Any]) -> list[int] | None:
    return [int(values.min()), int(values.max())] if len(values) else None


def _mean(records: Records, name: str) -> float | None:
    """Over those that know it."""
    values = records["transition"]["provenance"][name]
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
