"""StoreReader: any number of processes read a store while one writes it; rows appear by `refresh`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rl.batch import Batch
from rl.replay.errors import CorruptStoreError, StoreError
from rl.replay.goals import EpisodeGoals
from rl.replay.journal import EpisodeInfo, JournalReader
from rl.replay.rows import Records, RowCodec
from rl.replay.store import RowCount, SegmentMap, StorePaths
from robot.types import Episode

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Lookahead:
    """Returns over up to `steps` control steps of one episode: sum_k discount^k r_k, then the next observation."""

    steps: int = 1
    discount: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= 255 or not 0.0 <= self.discount <= 1.0:
            raise ValueError(f"Lookahead: expected 1..255 steps and a discount in [0, 1], got {self}")


ONE_STEP = Lookahead()


class GrowingRows:
    """An int64 array that grows and shrinks at its end."""

    def __init__(self) -> None:
        self._data: Rows = np.empty(1024, np.int64)
        self._size = 0

    @property
    def view(self) -> Rows:
        """The rows so far; valid until the next change."""
        return self._data[: self._size]

    def extend(self, rows: Rows) -> None:
        need = self._size + len(rows)
        if need > len(self._data):
            grown = np.empty(max(need, 2 * len(self._data)), np.int64)
            grown[: self._size] = self.view
            self._data = grown
        self._data[self._size : need] = rows
        self._size = need

    def truncate(self, size: int) -> None:
        self._size = min(size, self._size)


class StoreReader:
    """Reads the store in `path`; not thread-safe, one reader for each thread.

    Rows of finished episodes are trusted; those of an unfinished one are verified by CRC as they appear.
    Raises StoreError where there is no store, CorruptStoreError naming the file or row that is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._paths = StorePaths(path)
        self.schema = self._paths.load_schema()
        self._codec = RowCodec(self.schema)
        self._count = RowCount(self._paths.count, writable=False)
        self._journal = JournalReader(self._paths.journal)
        self._episodes: list[EpisodeInfo] = []
        self._num_rows = 0
        self._segments: dict[int, SegmentMap] = {}
        self._mapped = 0  # segments that were mapped at some time, all those before included
        self._starts = GrowingRows()
        self._num_settled = 0
        self._goals = EpisodeGoals(self.schema.proprio.dim)
        self.refresh()

    @property
    def num_rows(self) -> int:
        """Visible observations, discarded ones included."""
        return self._num_rows

    @property
    def num_transitions(self) -> int:
        """Transitions that may be sampled."""
        return len(self._starts.view)

    @property
    def num_episodes(self) -> int:
        """Finished episodes, discarded ones included."""
        return len(self._episodes)

    @property
    def valid_starts(self) -> Rows:
        """Rows at which a transition starts, ascending: next observation visible, episode not discarded."""
        return self._starts.view

    @property
    def num_settled(self) -> int:
        """How many of `valid_starts` belong to finished episodes; those behind may yet be discarded."""
        return self._num_settled

    def episodes(self) -> list[EpisodeInfo]:
        """The journal: every finished episode, discarded ones included."""
        return list(self._episodes)

    def forget(self, before: int) -> None:
        """Unmap the segments that lie before row `before` as a whole; none of their rows may be asked for again.

        Only then is the disk space of segments free that the writer has pruned.
        """
        newest = self._mapped - 1
        for index in [
            i for i in self._segments if (i + 1) * self.schema.segment_rows <= before and i < newest
        ]:
            del self._segments[index]

    def refresh(self) -> int:
        """Make newly published rows and newly finished episodes visible; returns the number of new rows."""
        # Journal before count: every journalled row is then below the count.
        finished = self._journal.read_new()
        count, seen = self._count.value, self._num_rows
        if count < seen:
            raise StoreError(
                f"{self._paths.root}: {seen} rows were visible, {count} are left: a recovery cut torn rows; "
                "open a new StoreReader"
            )
        trusted = finished[-1].end_row if finished else self._journalled_rows
        if count < trusted:
            raise CorruptStoreError(
                f"{self._paths.count}: {count} rows published, {trusted} journalled; "
                "open the store for writing once to recover it"
            )
        self._map_segments(count)
        self._verify(max(trusted, seen), count)
        if finished:
            self._starts.truncate(self._num_settled)
            for info in finished:
                if not info.discarded and info.first_row // self.schema.segment_rows in self._segments:
                    self._starts.extend(np.arange(info.first_row, info.end_row - 1))
            self._num_settled = len(self._starts.view)
            self._episodes += finished
            self._goals.extend(finished, self.records)
        first = trusted if finished else max(trusted, seen - 1)
        self._starts.extend(self._same_episode(first, count))
        self._num_rows = count
        return count - seen

    def records(self, rows: Rows) -> Records:
        """Copies of all columns (see RowCodec) of `rows`, such as policy_version, env_step and provenance."""
        raw = np.empty((len(rows), self._codec.dtype.itemsize), np.uint8)
        for target, (segment, local) in enumerate(self._places(rows)):
            raw[target] = self._segments[segment].rows[local]
        return raw.view(self._codec.dtype)[:, 0]

    def frames(self, view: str, rows: Rows, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Copies of the images of `view` at `rows`, (N, H, W, 3), into `out` where given."""
        if out is None:
            out = np.empty((len(rows), *self.schema.views[view], 3), np.uint8)
        # One copy per image: fancy indexing over the mapped array is two to three times slower.
        frames = {index: segment.images[view] for index, segment in self._segments.items()}
        for target, (segment, local) in enumerate(self._places(rows)):
            out[target] = frames[segment][local]
        return out

    def gather(self, rows: Rows, out: Batch, ahead: Lookahead = ONE_STEP) -> None:
        """Fill `out`, len(rows) long, with the transitions that start at `rows`, some of `valid_starts`.

        With `ahead` each return goes on for so many steps, at most to the end of its episode or to what is visible.
        """
        reach = rows[:, None] + np.arange(ahead.steps + 1)
        visible = reach < self._num_rows
        records = self.records(np.where(visible, reach, rows[:, None]).ravel()).reshape(reach.shape)
        observation, transition = records["observation"], records["transition"][:, :-1]
        # Step k counts if its next observation is one of the same episode, and no step before it ended that.
        goes_on = (visible & (observation["episode"] == observation["episode"][:, :1]))[:, 1:]
        goes_on[:, 1:] &= ~(transition["terminated"] | transition["truncated"])[:, :-1]
        counts = np.logical_and.accumulate(goes_on, axis=1)
        steps, each = counts.sum(axis=1), np.arange(len(rows))
        factors = counts * np.power(ahead.discount, np.arange(ahead.steps))
        for name in ("reward", "gripper_changed"):
            getattr(out, name)[...] = (factors * transition[name]).sum(axis=1)
        for name in ("action", "intervened", "source"):
            getattr(out, name)[...] = transition[name][:, 0]
        for name in ("terminated", "truncated"):
            getattr(out, name)[...] = transition[name][each, steps - 1]
        out.steps[...] = steps
        out.proprio[...] = observation["proprio"][:, 0]
        out.next_proprio[...] = observation["proprio"][each, steps]
        for view in self.schema.views:
            self.frames(view, rows, out.images[view])
            self.frames(view, rows + steps, out.next_images[view])
        out.goal_proprio[...], out.goal_known[...] = self._goals.at(rows)
        out.weight[...] = 1.0

    def episode(self, number: int) -> Episode:
        """The finished episode `number`, arrays copied. Raises StoreError where there is none."""
        if not 0 <= number < self.num_episodes:
            raise StoreError(
                f"{self._paths.root}: no finished episode {number}; it holds {self.num_episodes}, from 0 on"
            )
        info = self._episodes[number]
        if not self.holds(number):
            raise StoreError(f"{self._paths.root}: episode {number} was pruned; its segment is gone")
        rows = np.arange(info.first_row, info.end_row)
        records = self.records(rows)
        observation, transition = records["observation"], records["transition"][:-1]
        columns = {name: np.ascontiguousarray(transition[name]) for name in transition.dtype.names or ()}
        return Episode(
            episode=number,
            images={view: self.frames(view, rows) for view in self.schema.views},
            proprio=np.ascontiguousarray(observation["proprio"]),
            timestamp=np.ascontiguousarray(observation["timestamp"]),
            image_timestamps={
                view: np.ascontiguousarray(observation["image_timestamps"][:, index])
                for index, view in enumerate(self.schema.views)
            },
            **{name: columns[name] for name in _EPISODE_COLUMNS},
        )

    def holds(self, number: int) -> bool:
        """Whether all rows of the finished episode `number` are still there."""
        return self._episodes[number].first_row // self.schema.segment_rows in self._segments

    def verify_all(self) -> int:
        """Check every row that is there; returns how many. Raises CorruptStoreError naming the damaged ones."""
        first = min(self._segments, default=0) * self.schema.segment_rows
        # What leads to the first row of all lies in a segment that may be gone.
        bad = [row for row in range(first + bool(first), self._num_rows) if not self._whole(row)]
        if bad:
            segments = sorted({f"{row // self.schema.segment_rows:06d}" for row in bad})
            raise CorruptStoreError(
                f"{self._paths.segments}: {len(bad)} of {self._num_rows} rows do not match their checksums: "
                f"rows {bad[:8]}..., in segments {segments}; restore those segments from a copy"
            )
        return self._num_rows - first

    @property
    def _journalled_rows(self) -> int:
        return self._episodes[-1].end_row if self._episodes else 0

    def _map_segments(self, count: int) -> None:
        size = self.schema.segment_rows
        for index in range(max(0, self._mapped - 1), -(-count // size)):
            needed = min(size, count - index * size)
            # One that was trimmed when this reader mapped it may have grown since.
            if index < self._mapped and (
                index not in self._segments or self._segments[index].capacity >= needed
            ):
                continue
            try:
                self._segments[index] = SegmentMap(self._paths.segment(index), self.schema, needed)
            except CorruptStoreError:
                if index >= self._paths.first_segment():
                    raise
                self._segments.pop(index, None)
            self._mapped = index + 1

    def _places(self, rows: Rows) -> zip[tuple[int, int]]:
        segments, locals_ = np.divmod(rows, self.schema.segment_rows)
        return zip(segments.tolist(), locals_.tolist(), strict=True)

    def _same_episode(self, start: int, stop: int) -> Rows:
        """Rows in [start, stop - 1) whose next row belongs to the same episode."""
        rows = np.arange(start, stop)
        episode = self.records(rows)["observation"]["episode"]
        starts: Rows = rows[:-1][episode[:-1] == episode[1:]]
        return starts

    def _verify(self, first: int, stop: int) -> None:
        for row in range(first, stop):
            # Twice: a weakly ordered processor may show the count an instant before the data.
            if not (self._whole(row) or self._whole(row)):
                segment = self._paths.segment(row // self.schema.segment_rows)
                raise CorruptStoreError(
                    f"{segment}: row {row} does not match its checksum; stop its writer if one runs, then "
                    "open the store for writing once: it keeps the whole rows before"
                )

    def _whole(self, row: int) -> bool:
        """Row `row`, and the transition that led to it unless it begins an episode, match their checksums."""
        segment, local = divmod(row, self.schema.segment_rows)
        raw = self._segments[segment].rows[local]
        images = {view: frames[local] for view, frames in self._segments[segment].images.items()}
        if not self._codec.observation_whole(raw, images):
            return False
        if raw.view(self._codec.dtype)["observation"]["step"][0] == 0:
            return True
        segment, local = divmod(row - 1, self.schema.segment_rows)
        return self._codec.transition_whole(self._segments[segment].rows[local])


_EPISODE_COLUMNS = (
    "action",
    "requested_action",
    "reward",
    "terminated",
    "truncated",
    "intervened",
    "gripper_changed",
    "source",
    "policy_version",
    "label",
)
