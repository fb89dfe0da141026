"""Hindsight goals: the proprio at the next change of the gripper or at success, in finished, real successes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from replay_data import observation, schema, transition, triples

from rl.batch import Batch
from rl.replay.arrays import empty_batch
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.mixer import Mixer
from rl.replay.reader import StoreReader
from rl.replay.sampler import Filter, PartConfig, TransitionSampler
from rl.replay.writer import StoreWriter
from robot.types import Source


def record(
    writer: StoreWriter,
    steps: int,
    reason: EndReason,
    source: Source | None = None,
    corrected: int = -1,
    toggled: tuple[int, ...] = (),
) -> None:
    """An episode of `steps`; terminal where `reason` is a success or a failure."""
    number = writer.begin_episode(observation(writer.num_episodes, 0))
    for step in range(steps):
        last = step == steps - 1
        terminated = last and reason in (EndReason.SUCCESS, EndReason.FAILURE, EndReason.DISCARDED)
        added = transition(number, step, terminated=terminated, intervened=step == corrected)
        added = replace(added, gripper_changed=step in toggled)
        if reason is EndReason.FAILURE:
            added = replace(added, reward=0.0)
        writer.add(added if source is None else replace(added, source=source))
    if reason is EndReason.DISCARDED:
        writer.discard_episode()
    else:
        writer.end_episode(EpisodeOutcome(reason))


def gather_all(reader: StoreReader) -> Batch:
    batch = empty_batch(reader.schema, reader.num_transitions)
    batch.goal_proprio[...], batch.goal_known[...] = np.nan, True  # what a batch in use may hold
    reader.gather(reader.valid_starts, batch)
    return batch


def goals(batch: Batch) -> dict[int, tuple[float, float] | None]:
    """Episode -> (episode, last step) of its goal, or None; the same for all of its transitions."""
    found: dict[int, set[tuple[float, float] | None]] = {}
    for k, (episode, _) in enumerate(triples(batch)):
        goal = (float(batch.goal_proprio[k, 0]), float(batch.goal_proprio[k, 1]))
        assert batch.goal_known[k] or goal == (0.0, 0.0)
        found.setdefault(episode, set()).add(goal if batch.goal_known[k] else None)
    assert all(len(each) == 1 for each in found.values())
    return {episode: each.pop() for episode, each in found.items()}


@pytest.mark.parametrize("segment_rows", [2, 3, 5, 64])
def test_only_finished_real_successes_have_a_goal(tmp_path: Path, segment_rows: int) -> None:
    with StoreWriter(tmp_path, schema(segment_rows)) as writer:
        record(writer, 4, EndReason.SUCCESS)
        record(writer, 3, EndReason.FAILURE)
        record(writer, 5, EndReason.DISCARDED)
        record(writer, 2, EndReason.TIMEOUT)
        record(writer, 6, EndReason.SUCCESS, corrected=2)
        record(writer, 0, EndReason.FAULT)
        record(writer, 3, EndReason.SUCCESS, source=Source.SYNTHETIC)
        record(writer, 1, EndReason.SUCCESS)
        assert goals(gather_all(StoreReader(tmp_path))) == {
            0: (0, 4),
            1: None,
            3: None,
            4: (4, 6),
            6: None,
            7: (7, 1),
        }


@pytest.mark.parametrize("segment_rows", [2, 3, 64])
def test_the_goal_of_a_row_is_where_the_gripper_is_next_told_to_change(
    tmp_path: Path, segment_rows: int
) -> None:
    with StoreWriter(tmp_path, schema(segment_rows)) as writer:
        record(writer, 3, EndReason.TIMEOUT, toggled=(1,))
        record(writer, 6, EndReason.SUCCESS, toggled=(0, 3))
        record(writer, 2, EndReason.SUCCESS, toggled=(1,))
        batch = gather_all(StoreReader(tmp_path))
    steps = [
        float(goal[1]) if known else None
        for goal, known in zip(batch.goal_proprio, batch.goal_known, strict=True)
    ]
    assert steps == [None, None, None, 0, 3, 3, 3, 6, 6, 1, 1]


def test_rows_drawn_before_their_episode_was_discarded_have_no_goal(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema(3)) as writer:
        record(writer, 2, EndReason.SUCCESS)
        number = writer.begin_episode(observation(1, 0))
        writer.add(transition(number, 0, terminated=True))
        reader = StoreReader(tmp_path)
        drawn = reader.valid_starts.copy()
        writer.discard_episode()
        reader.refresh()
        batch = empty_batch(reader.schema, len(drawn))
        reader.gather(drawn, batch)
        assert goals(batch) == {0: (0, 2), 1: None}


def test_an_open_episode_gets_its_goal_when_it_succeeds(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema(3)) as writer:
        writer.begin_episode(observation(0, 0))
        writer.add(transition(0, 0))
        early = StoreReader(tmp_path)  # opened before any episode was finished
        assert goals(gather_all(early)) == {0: None}
        writer.add(transition(0, 1, terminated=True))
        early.refresh()
        assert goals(gather_all(early)) == {0: None}
        writer.end_episode(EpisodeOutcome(EndReason.SUCCESS))
        writer.begin_episode(observation(1, 0))
        writer.add(transition(1, 0))
        early.refresh()
        late = StoreReader(tmp_path)
        assert goals(gather_all(early)) == goals(gather_all(late)) == {0: (0, 2), 1: None}
        writer.discard_episode()
        record(writer, 2, EndReason.SUCCESS)
        for reader in (early, late):
            reader.refresh()
            assert goals(gather_all(reader)) == {0: (0, 2), 2: (2, 2)}


def test_goals_travel_through_sampler_and_mixer_with_their_transition(tmp_path: Path) -> None:
    for name, reason in (("demo", EndReason.SUCCESS), ("real", EndReason.TIMEOUT)):
        with StoreWriter(tmp_path / name, schema(4)) as writer:
            for steps in (3, 5):
                record(writer, steps, reason)
            record(writer, 4, EndReason.SUCCESS, corrected=1)
    demo, real = StoreReader(tmp_path / "demo"), StoreReader(tmp_path / "real")
    corrections = PartConfig(real, Filter.INTERVENED_ONLY)
    samplers = {
        "demo": TransitionSampler([PartConfig(demo), corrections]),
        "online": TransitionSampler([PartConfig(real)]),
    }
    batch = Mixer(samplers).sample(256, {"demo": 0.5, "online": 0.5}, np.random.default_rng(0))
    assert isinstance(batch, Batch)
    batch.check()
    last_step = {0: 3, 1: 5, 2: 4}
    for k, (episode, _) in enumerate(triples(batch)):
        known = k < 128 or episode == 2
        assert batch.goal_known[k] == known
        np.testing.assert_array_equal(batch.goal_proprio[k], [episode, last_step[episode]] if known else 0)
    assert len({bool(known) for known in batch.goal_known[128:]}) == 2
