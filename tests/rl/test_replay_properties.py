"""Every transition that can be sampled was a real one: across segments, truncations, discards and crashes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_data import ACTION_DIM, VIEWS, flip_byte, observation, schema, transition, triples

from rl.replay.arrays import empty_batch
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.replay.sampler import Filter, PartConfig, TransitionSampler
from rl.replay.writer import StoreWriter


@pytest.fixture(autouse=True, scope="module")
def _no_disk_waits() -> Iterator[None]:
    """Nothing here loses power: what a sync waits for is not needed, and takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        patch.setattr(os, "fdatasync", lambda fd: None)
        yield


class Ending(Enum):
    TERMINATED = 0
    TRUNCATED = 1
    FAULT = 2  # neither: the robot stopped
    DISCARDED = 3
    CLOSED = 4  # the run ended in mid-episode and was started again
    CRASHED = 5  # the writer died in mid-episode
    TORN = 6  # as CRASHED, and the last published row was damaged


class Recorder:
    """Writes random episodes and keeps its own list of what must come out."""

    def __init__(self, root: Path, segment_rows: int) -> None:
        self.expected: dict[tuple[int, int], tuple[bool, bool]] = {}  # -> terminated, truncated
        self.intervened: set[tuple[int, int]] = set()
        self._root, self._lives, self._schema = root, 0, schema(segment_rows)
        self.writer = StoreWriter(self.path, self._schema)
        self.readers = [StoreReader(self.path)]

    @property
    def path(self) -> Path:
        return self._root / str(self._lives)

    def episode(self, steps: int, ending: Ending, corrected: set[int]) -> None:
        number = self.writer.begin_episode(observation(self.writer.num_episodes, 0))
        self._refresh()
        for step in range(steps):
            last = step == steps - 1
            terminated = last and ending is Ending.TERMINATED
            truncated = last and ending is Ending.TRUNCATED
            self.writer.add(
                transition(
                    number, step, terminated=terminated, truncated=truncated, intervened=step in corrected
                )
            )
            self._refresh()
            self.expected[number, step] = terminated, truncated or (last and not terminated)
            if step in corrected:
                self.intervened.add((number, step))
        match ending:
            case Ending.TERMINATED | Ending.TRUNCATED:
                self.writer.end_episode(EpisodeOutcome(EndReason.TIMEOUT))
            case Ending.FAULT:
                self.writer.end_episode(EpisodeOutcome(EndReason.FAULT, "stale_frame"))
            case Ending.DISCARDED:
                self.writer.discard_episode()
                self._forget(number, 0, steps)
            case Ending.CLOSED:
                self.writer.close()
                self.writer = StoreWriter(self.path, self._schema)
            case Ending.CRASHED | Ending.TORN:
                self._crash(number, steps, ending is Ending.TORN)
        self._refresh()

    def _crash(self, number: int, steps: int, torn: bool) -> None:
        # A copy of the directory is what a killed writer leaves behind.
        dead, rows = self.writer, self.writer.num_rows
        shutil.copytree(self.path, self._root / str(self._lives + 1))
        dead.close()
        self._lives += 1
        if torn:
            segment, local = divmod(rows - 1, self._schema.segment_rows)
            height, width = VIEWS["wrist"]
            position = (local + 1) * height * width * 3 - 1
            flip_byte(self.path / "segments" / f"{segment:06d}" / "wrist.u8", position)
        self.writer = StoreWriter(self.path, self._schema)
        self.readers = [StoreReader(self.path)]
        assert self.writer.recovery.torn_rows == int(torn)
        assert self.writer.recovery.kept_rows == rows - int(torn)
        if torn and steps:
            self._forget(number, steps - 1, steps)
            if steps > 1:
                self.expected[number, steps - 2] = False, True

    def _forget(self, number: int, first: int, stop: int) -> None:
        for step in range(first, stop):
            del self.expected[number, step]
            self.intervened.discard((number, step))

    def _refresh(self) -> None:
        for reader in self.readers:
            reader.refresh()


EPISODES = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from(Ending), st.sets(st.integers(0, 5))), min_size=1, max_size=6
)


@settings(max_examples=40, deadline=None)
@given(episodes=EPISODES, segment_rows=st.integers(2, 7), seed=st.integers(0, 2**32 - 1))
def test_sampled_transitions_are_exactly_the_real_ones(
    episodes: list[tuple[int, Ending, set[int]]], segment_rows: int, seed: int
) -> None:
    with tempfile.TemporaryDirectory() as root:
        recorder = Recorder(Path(root), segment_rows)
        for steps, ending, corrected in episodes:
            recorder.episode(steps, ending, corrected)
        fresh = StoreReader(recorder.path)
        for reader in (fresh, *recorder.readers):
            assert reader.verify_all() == reader.num_rows == recorder.writer.num_rows
            batch = empty_batch(reader.schema, reader.num_transitions)
            reader.gather(reader.valid_starts, batch)
            assert triples(batch) == sorted(recorder.expected)
            flags = list(zip(batch.terminated.tolist(), batch.truncated.tolist(), strict=True))
            assert flags == [recorder.expected[place] for place in sorted(recorder.expected)]
        if recorder.expected:
            sampler = TransitionSampler([PartConfig(fresh)])
            drawn = triples(sampler.sample(16, np.random.default_rng(seed)))
            assert set(drawn) <= set(recorder.expected)
        corrections = TransitionSampler([PartConfig(fresh, Filter.INTERVENED_ONLY)])
        assert corrections.size == len(recorder.intervened)
        recorder.writer.close()


@settings(max_examples=20, deadline=None)
@given(episodes=EPISODES)
def test_journal_agrees_with_the_rows(episodes: list[tuple[int, Ending, set[int]]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        recorder = Recorder(Path(root), segment_rows=5)
        for steps, ending, corrected in episodes:
            recorder.episode(steps, ending, corrected)
        recorder.writer.close()
        reader = StoreReader(recorder.path)
        kept = [ending for steps, ending, _ in episodes if (steps, ending) != (0, Ending.TORN)]
        assert len(reader.episodes()) == len(kept)
        for info in reader.episodes():
            episode = reader.episode(info.episode)
            assert len(episode) == info.num_transitions == sum(info.sources.values())
            assert episode.action.shape == (len(episode), ACTION_DIM)
            assert episode.proprio[:, 1].tolist() == list(range(len(episode) + 1))
            assert info.corrections == episode.intervened.sum()
            assert info.success == episode.success
            assert info.episode_return == episode.reward.sum()
            if len(episode):
                assert episode.terminated[-1] != episode.truncated[-1]
                assert not (episode.terminated[:-1] | episode.truncated[:-1]).any()
