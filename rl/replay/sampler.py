"""Samplers: uniform draws, with replacement, over a union of stores and filters; between store and mixer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from rl.batch import Batch
from rl.replay.arrays import empty_batch, slice_batch
from rl.replay.errors import EmptyShareError
from rl.replay.reader import ONE_STEP, GrowingRows, Lookahead, Rows, StoreReader
from rl.replay.schema import StoreSchema
from robot.types import Clip


class Filter(Enum):
    """Which transitions of a store belong to a part."""

    ALL = "all"
    INTERVENED_ONLY = "intervened_only"  # corrections: a person acted in this step


@dataclass(frozen=True)
class Holdout:
    """Which whole episodes are never trained on: the listed ones or, without a list, the last of every `every`."""

    every: int = 10
    episodes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.every < 2:
            raise ValueError(
                f"holdout.every: expected >= 2, so that something is trained on, got {self.every}"
            )

    def contains(self, episode: NDArray[np.integer]) -> NDArray[np.bool_]:
        """For each episode number, whether it is held out."""
        return np.isin(episode, self.episodes) if self.episodes else episode % self.every == self.every - 1


class Split(Enum):
    """Which side of a hold-out a part draws from."""

    ALL = "all"
    TRAIN = "train"
    HELD_OUT = "held_out"


@dataclass(frozen=True)
class PartConfig:
    """One store's contribution to a sampler. newest: only the newest N transitions (None: all)."""

    reader: StoreReader
    filter: Filter = Filter.ALL
    newest: int | None = None
    split: Split = Split.ALL
    holdout: Holdout = Holdout()

    def __post_init__(self) -> None:
        if self.newest is not None and self.newest < 1:
            raise ValueError(f"newest: expected >= 1 transitions or None, got {self.newest}")


class _Part:
    """The start rows of one part, in step with its reader at the cost of new rows and the open episode."""

    def __init__(self, config: PartConfig) -> None:
        self.reader = config.reader
        self._config = config
        self._kept = GrowingRows()
        self._num_settled = 0  # of the reader's starts that were looked at
        self._num_kept_settled = 0
        self._seen = (0, 0)  # rows and episodes of the reader, which another sampler may have refreshed

    @property
    def starts(self) -> Rows:
        if self._config.filter is Filter.ALL and self._config.split is Split.ALL:
            starts = self.reader.valid_starts
        else:
            self._follow()
            starts = self._kept.view
        return starts if self._config.newest is None else starts[-self._config.newest :]

    def _follow(self) -> None:
        now = (self.reader.num_rows, self.reader.num_episodes)
        if now == self._seen:
            return
        self._seen = now
        starts, settled = self.reader.valid_starts, self.reader.num_settled
        self._kept.truncate(self._num_kept_settled)
        self._kept.extend(self._belonging(starts[self._num_settled : settled]))
        self._num_settled, self._num_kept_settled = settled, len(self._kept.view)
        if self._config.split is Split.ALL:  # sides are of whole episodes: an open one is on neither
            self._kept.extend(self._belonging(starts[settled:]))

    def _belonging(self, rows: Rows) -> Rows:
        """Those of `rows` that pass the filter and lie on this part's side of the hold-out."""
        records, config = self.reader.records(rows), self._config
        kept = np.ones(len(rows), np.bool_)
        if config.filter is Filter.INTERVENED_ONLY:
            kept &= records["transition"]["intervened"]
        if config.split is not Split.ALL:
            held_out = config.holdout.contains(records["observation"]["episode"])
            kept &= held_out if config.split is Split.HELD_OUT else ~held_out
        belonging: Rows = rows[kept]
        return belonging


class _Union:
    """The start rows of several parts, drawn from as one."""

    def __init__(self, parts: Sequence[PartConfig]) -> None:
        if not parts:
            raise ValueError("a sampler needs at least one part, got none")
        self.schema: StoreSchema = parts[0].reader.schema
        for part in parts[1:]:
            self.schema.check_compatible(part.reader.schema)
        self._parts = [_Part(part) for part in parts]

    @property
    def size(self) -> int:
        return sum(len(part.starts) for part in self._parts)

    def refresh(self) -> None:
        for part in self._parts:
            part.reader.refresh()

    def draw(self, n: int, rng: np.random.Generator) -> Iterator[tuple[StoreReader, Rows]]:
        """`n` uniform draws with replacement, grouped by part; raises EmptyShareError if there is nothing."""
        starts = [part.starts for part in self._parts]
        ends = np.cumsum([len(rows) for rows in starts])
        if n and not ends[-1]:
            raise EmptyShareError(
                "nothing to sample: the stores hold no transition yet; record, then refresh"
            )
        drawn = rng.integers(ends[-1], size=n) if n else np.empty(0, np.int64)
        owner = np.searchsorted(ends, drawn, side="right")
        for index, (part, rows) in enumerate(zip(self._parts, starts, strict=True)):
            mine = drawn[owner == index] - (ends[index] - len(rows))
            if len(mine):
                yield part.reader, rows[mine]


class TransitionSampler:
    """Draws transitions uniformly over its parts, e.g. demonstrations plus corrections of the real store.

    ahead: how far their returns look.
    """

    def __init__(self, parts: Sequence[PartConfig], ahead: Lookahead = ONE_STEP) -> None:
        self._union = _Union(parts)
        self._ahead = ahead
        self.schema = self._union.schema

    @property
    def size(self) -> int:
        """Transitions to draw from; one that lies in two parts counts twice."""
        return self._union.size

    def refresh(self) -> None:
        """Take in what the stores have published since; costs time only for new rows."""
        self._union.refresh()

    def sample(self, n: int, rng: np.random.Generator, out: Batch | None = None) -> Batch:
        """`n` transitions, into `out` if given. Raises EmptyShareError if there is nothing to draw from."""
        batch = empty_batch(self.schema, n) if out is None else out
        if len(batch) != n:
            raise ValueError(f"out: expected a batch of {n} transitions, got {len(batch)}")
        filled = 0
        for reader, rows in self._union.draw(n, rng):
            reader.gather(rows, slice_batch(batch, filled, filled + len(rows)), self._ahead)
            filled += len(rows)
        return batch


class ClipSampler:
    """Draws clips of a fixed length that start at any transition, uniformly, and stay in their episode."""

    def __init__(self, parts: Sequence[PartConfig]) -> None:
        self._union = _Union(parts)
        self.schema = self._union.schema

    @property
    def size(self) -> int:
        """Start positions to draw from."""
        return self._union.size

    def refresh(self) -> None:
        """Take in what the stores have published since."""
        self._union.refresh()

    def sample(self, n: int, length: int, rng: np.random.Generator, history: int = 0) -> Clip:
        """`n` clips of `length` actions and `history` steps before them, padded at both ends of their episodes.

        Raises EmptyShareError as above.
        """
        if n < 1:
            raise ValueError(f"clips: expected >= 1 to draw, got {n}")
        clips = [gather_clips(reader, rows, length, history) for reader, rows in self._union.draw(n, rng)]
        return clips[0] if len(clips) == 1 else concatenate_clips(clips)


def gather_clips(reader: StoreReader, starts: Rows, length: int, history: int = 0) -> Clip:
    """The clips of `length` actions from the rows `starts`, some of `valid_starts`, with `history` steps before."""
    if length < 1 or history < 0:
        raise ValueError(f"clips: expected >= 1 actions and history >= 0, got {length} and {history}")
    rows = np.clip(starts[:, None] + np.arange(-history, length + 1), 0, reader.num_rows - 1)
    episode = reader.records(rows.ravel())["observation"]["episode"].reshape(rows.shape)
    same = episode == episode[:, history : history + 1]
    first = starts - same[:, :history].sum(axis=1)
    last = starts + same[:, history:].sum(axis=1) - 1
    rows = np.clip(rows, first[:, None], last[:, None])
    valid = np.diff(rows, axis=1) > 0
    flat = rows.ravel()
    records = reader.records(flat).reshape(rows.shape)
    transition = records["transition"][:, :-1]
    return Clip(
        images={
            view: reader.frames(view, flat).reshape(*rows.shape, height, width, 3)
            for view, (height, width) in reader.schema.views.items()
        },
        proprio=np.ascontiguousarray(records["observation"]["proprio"]),
        action=np.where(valid[..., None], transition["action"], np.float32(0.0)),
        reward=np.where(valid, transition["reward"], np.float32(0.0)),
        terminated=valid & transition["terminated"],
        valid=valid,
        episode=np.ascontiguousarray(records["observation"]["episode"][:, history]),
        step=np.ascontiguousarray(records["observation"]["step"][:, history]),
        history=history,
    )


def concatenate_clips(clips: Sequence[Clip]) -> Clip:
    """Clips of one length and history as one."""

    def join(name: str) -> NDArray[np.generic]:
        return np.concatenate([getattr(clip, name) for clip in clips])

    names = ("proprio", "action", "reward", "terminated", "valid", "episode", "step")
    images = {view: np.concatenate([clip.images[view] for clip in clips]) for view in clips[0].images}
    return Clip(images=images, history=clips[0].history, **{name: join(name) for name in names})  # type: ignore[arg-type]
