"""StoreWriter: one process appends episodes, step by step; a crash loses only the step in flight."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import numpy as np

from rl.replay.errors import StoreError
from rl.replay.journal import EndReason, EpisodeInfo, EpisodeOutcome, EpisodeTally
from rl.replay.recovery import recover
from rl.replay.rows import RowCodec
from rl.replay.schema import StoreSchema
from rl.replay.store import ROWS_FILE, RowCount, SegmentWriter, StorePaths, lock_for_writing
from robot.types import BadDataError, Observation, Transition


@dataclass(frozen=True, slots=True)
class _OpenEpisode:
    """The episode being written; its last row is an observation without a transition."""

    tally: EpisodeTally
    last_observation: Observation
    last_crc: int
    transition: bytes = b""  # the transition half of the row before the last one
    transition_seed: int = 0  # the CRC of that row's observation
    ended: bool = False  # the newest transition is terminated or truncated
    outcome: EpisodeOutcome | None = None  # given, but not yet known to be on the disk


@dataclass(frozen=True, slots=True)
class _Progress:
    """What has been written; replaced in one assignment, so that an interrupt never finds it half changed."""

    num_rows: int
    num_episodes: int  # finished ones
    num_transitions: int
    journal_bytes: int
    episode: _OpenEpisode | None = None


class StoreWriter:
    """Appends episodes to the store in `path`, created or recovered first; `recovery` says what was found.

    Use as a context manager. Raises StoreLockedError for a second writer, SchemaMismatchError where the
    directory holds something else, StoreFullError on a full disk: that step can be added again.

    durable False is for what can be made again: an episode is then not waited for until it is on the disk. A killed
    process still loses nothing but its step in flight; after a loss of power the store may be found damaged.
    """

    def __init__(self, path: Path, schema: StoreSchema, *, durable: bool = True) -> None:
        self._paths, self._durable = StorePaths(path), durable
        self._segments: dict[int, SegmentWriter] = {}  # from the first one not yet synced to the newest
        self._closed = False
        with ExitStack() as undo:
            try:
                path.mkdir(parents=True, exist_ok=True)
                lock = lock_for_writing(self._paths)
                undo.callback(os.close, lock)
                if not self._paths.schema.exists():
                    self._paths.create(schema)
            except OSError as error:
                raise StoreError(
                    f"{path}: cannot be written: {error}; choose a writable directory"
                ) from error
            self.schema = self._paths.load_schema()
            self.schema.check_compatible(schema)
            self._codec = RowCodec(self.schema)
            self._count = RowCount(self._paths.count, writable=True)
            recovered = recover(self._paths, self.schema, self._count)
            self._journal = recovered.journal
            self.recovery = recovered.report
            undo.pop_all()
        self._lock = lock
        self._progress = _Progress(
            num_rows=self.recovery.kept_rows,
            num_episodes=len(recovered.episodes),
            num_transitions=sum(info.num_transitions for info in recovered.episodes),
            journal_bytes=recovered.journal_bytes,
        )

    @property
    def num_rows(self) -> int:
        return self._progress.num_rows

    @property
    def num_transitions(self) -> int:
        """Transitions ever stored, discarded ones included: the environment steps of this store."""
        return self._progress.num_transitions

    @property
    def num_episodes(self) -> int:
        """Finished episodes, discarded ones included."""
        return self._progress.num_episodes

    def begin_episode(self, observation: Observation) -> int:
        """Store the first observation; returns the episode's number. Raises BadDataError as `add` does."""
        self._check_open()
        progress = self._progress
        number = progress.num_episodes
        if progress.episode is not None:
            raise StoreError(f"{self._paths.root}: episode {number} is still open; end or discard it first")
        self._codec.check_observation(observation)
        crc = self._write_observation(observation, step=0)
        episode = _OpenEpisode(EpisodeTally(number, progress.num_rows), observation, crc)
        self._progress = replace(progress, num_rows=progress.num_rows + 1, episode=episode)
        self._count.publish(self.num_rows)
        return number

    def add(self, transition: Transition) -> None:
        """Store one step behind the newest observation.

        Raises BadDataError, and writes nothing, where a value is not finite, a shape is not the schema's,
        `transition.observation` is not the observation stored last, or the episode has ended.
        """
        progress, episode = self._progress, self._need_episode()
        self._codec.check_transition(transition)
        self._check_follows(episode, transition)
        # The observation first: it may find the disk full. Readers see neither half before the count.
        crc = self._write_observation(transition.next_observation, episode.tally.transitions + 1)
        half = self._codec.encode_transition(transition, progress.num_transitions, episode.last_crc)
        self._write_transition(progress.num_rows - 1, half)
        tally = episode.tally.plus(
            float(np.float32(transition.reward)),
            transition.terminated,
            transition.intervened,
            transition.source,
        )
        self._progress = replace(
            progress,
            num_rows=progress.num_rows + 1,
            num_transitions=progress.num_transitions + 1,
            episode=_OpenEpisode(
                tally=tally,
                last_observation=transition.next_observation,
                last_crc=crc,
                transition=half,
                transition_seed=episode.last_crc,
                ended=transition.terminated or transition.truncated,
            ),
        )
        self._count.publish(self.num_rows)

    def end_episode(self, outcome: EpisodeOutcome) -> EpisodeInfo:
        """Finish the episode; on return it is on the disk, if durable. One that has not ended by itself is truncated.

        After an error or an interrupt it can be called again; the outcome given first stands.
        """
        episode = self._need_episode()
        if episode.outcome is None:
            episode = replace(episode, outcome=outcome)
            self._progress = replace(self._progress, episode=episode)
        if episode.transition and not episode.ended:
            half = self._codec.mark_truncated(episode.transition, episode.transition_seed)
            self._write_transition(self.num_rows - 2, half)
        self._count.publish(self.num_rows)
        if self._durable:
            self.sync()  # data before journal: journalled rows are trusted without a look at their checksums
        info = episode.tally.close(episode.outcome or outcome)
        journal_bytes = self._journal.write(info, self._progress.journal_bytes, durable=self._durable)
        self._progress = replace(
            self._progress,
            num_episodes=info.episode + 1,
            journal_bytes=journal_bytes,
            episode=None,
        )
        current = self.num_rows // self.schema.segment_rows
        for index in [index for index in self._segments if index < current]:
            self._segments.pop(index).close()
        return info

    def discard_episode(self, detail: str = "") -> EpisodeInfo:
        """Finish the episode as one that must not be learnt from; its rows stay on disk."""
        return self.end_episode(EpisodeOutcome(EndReason.DISCARDED, detail))

    def prune(self, before: int) -> int:
        """Give the disk back what lies in whole segments before row `before`, oldest first; returns the first row left.

        Row numbers and the journal stay as they are. A reader keeps the segments that it has mapped. For what can be
        made again, never for what really happened.
        """
        self._check_open()
        episode = self._progress.episode
        end = self.num_rows if episode is None else episode.tally.first_row
        first, wanted = self._paths.first_segment(), min(before, end) // self.schema.segment_rows
        if wanted <= first:
            return first * self.schema.segment_rows
        draft = self._paths.pruned.with_suffix(".tmp")
        draft.write_text(f"{wanted}\n")
        draft.replace(self._paths.pruned)  # first, so that no reader looks for what is being removed
        for index in range(first, wanted):
            shutil.rmtree(self._paths.segment(index))
        return wanted * self.schema.segment_rows

    def sync(self) -> None:
        """Return when everything written so far would survive a loss of power."""
        self._check_open()
        for segment in self._segments.values():
            segment.sync()
        self._count.sync()

    def close(self) -> None:
        """End an open episode as STOPPED, give unused space back, release the lock. Safe to call twice.

        An open demonstration is discarded, unless it has succeeded.
        """
        if self._closed:
            return
        try:
            if self._progress.episode is not None:
                self.end_episode(self._progress.episode.tally.broken_off(EndReason.STOPPED))
            index, used = divmod(self.num_rows, self.schema.segment_rows)
            if index in self._segments:
                self._segments[index].trim(used)
        finally:
            self._closed = True
            for segment in self._segments.values():
                segment.close()
            self._journal.close()
            os.close(self._lock)

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self._paths.root}: this writer is closed; open a new StoreWriter")

    def _need_episode(self) -> _OpenEpisode:
        self._check_open()
        if self._progress.episode is None:
            raise StoreError(f"{self._paths.root}: no episode is open; call begin_episode(observation) first")
        return self._progress.episode

    def _check_follows(self, episode: _OpenEpisode, transition: Transition) -> None:
        if episode.ended:
            raise BadDataError(
                f"episode {episode.tally.episode} ended with its transition {episode.tally.transitions - 1}; "
                "call end_episode, then begin_episode"
            )
        last, given = episode.last_observation, transition.observation
        same = last.timestamp == given.timestamp and np.array_equal(last.proprio, given.proprio)
        if last is not given and not same:
            raise BadDataError(
                f"transition.observation (timestamp {given.timestamp}) is not the observation stored last "
                f"(timestamp {last.timestamp}); pass the next_observation of the step before"
            )

    def _segment(self, row: int) -> tuple[SegmentWriter, int]:
        index, local = divmod(row, self.schema.segment_rows)
        if index not in self._segments:
            self._segments[index] = SegmentWriter(self._paths.segment(index), self.schema)
        return self._segments[index], local

    def _write_observation(self, observation: Observation, step: int) -> int:
        """Write the row behind the last one, unpublished; returns the CRC of its observation."""
        segment, local = self._segment(self.num_rows)
        images = [np.ascontiguousarray(observation.images[view]) for view in self.schema.views]
        half, crc = self._codec.encode_observation(observation, images, self.num_episodes, step)
        for view, image in zip(self.schema.views, images, strict=True):
            segment.write(f"{view}.u8", local, image)
        # With an empty transition half: what a step cut short left in this row must not survive.
        segment.write(ROWS_FILE, local, half.ljust(self._codec.dtype.itemsize, b"\0"))
        return crc

    def _write_transition(self, row: int, half: bytes) -> None:
        segment, local = self._segment(row)
        segment.write(ROWS_FILE, local, half, self._codec.transition_offset)
