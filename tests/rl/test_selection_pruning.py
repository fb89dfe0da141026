"""Pruning: nothing goes that a queue could still draw, nothing is taken from a reader, and what went is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from rl.replay.errors import StoreError
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from rl.selection.pruning import LOG, Pruning
from rl.selection.queues import QueueConfig, SyntheticQueues
from robot.types import Label, Provenance, Source, Transition
from tests.rl.replay_data import observation, schema, transition

STEPS = 3  # of each clip; with its last observation 4 rows, one segment


def store(
    writer: StoreWriter, pruning: Pruning | None, number: int, label: Label, model: int = 0, policy: int = 0
) -> None:
    writer.begin_episode(observation(number, 0))
    for step in range(STEPS):
        last = step == STEPS - 1
        real = transition(number, step, truncated=last)
        writer.add(
            Transition(
                observation=real.observation,
                action=real.action,
                requested_action=real.action,
                reward=0.0,
                next_observation=real.next_observation,
                terminated=False,
                truncated=last,
                source=Source.SYNTHETIC,
                policy_version=policy,
                label=label,
                provenance=Provenance(
                    source_origin=0,
                    source_episode=number,
                    source_step=0,
                    kind=2,
                    world_model_version=model,
                    calibrated=0.25,
                    risk=0.1,
                    q=0.5,
                    source_q=0.4,
                ),
            )
        )
    info = writer.end_episode(EpisodeOutcome(EndReason.TIMEOUT))
    if pruning is not None:
        pruning.add(info.end_row, STEPS, label, model, policy)


def segments(path: Path) -> list[int]:
    return sorted(int(folder.name) for folder in (path / "segments").iterdir())


def test_old_versions_go_and_leave_a_line(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema(), durable=False) as writer:
        pruning = Pruning(tmp_path, writer, QueueConfig(max_policy_age=1))
        for number in range(4):
            store(writer, pruning, number, Label.FAILURE, policy=number)
        assert pruning.step() == 8 and segments(tmp_path)[0] == 2, "versions 2 and 3 may still be drawn"
        assert pruning.step() == 8, "once is enough"
        store(writer, pruning, 4, Label.SUCCESS, policy=4)
        pruning.step()
        assert writer.num_transitions == 5 * STEPS, "what was generated stays counted"
    lines = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert [(line["first_row"], line["end_row"], line["transitions"]) for line in lines] == [
        (0, 8, 6),
        (8, 12, 3),
    ]
    assert lines[0]["labels"] == {"failure": 6} and lines[0]["kinds"] == {"policy": 6}
    assert lines[0]["policy_versions"] == [0, 1] and lines[0]["q_mean"] == pytest.approx(0.5)


def test_a_rare_success_within_the_capacity_keeps_what_lies_behind_it(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema(), durable=False) as writer:
        pruning = Pruning(tmp_path, writer, QueueConfig(capacity=2 * STEPS))
        store(writer, pruning, 0, Label.FAILURE)
        store(writer, pruning, 1, Label.SUCCESS)
        for number in range(2, 6):
            store(writer, pruning, number, Label.FAILURE)
        assert pruning.step() == 4 and segments(tmp_path)[0] == 1


def test_a_reader_keeps_what_it_has_mapped_and_a_new_one_sees_what_is_left(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema(), durable=False) as writer:
        for number in range(4):
            store(writer, None, number, Label.SUCCESS if number % 2 else Label.FAILURE, policy=number)
        before = StoreReader(tmp_path)
        writer.prune(8)
        np.testing.assert_array_equal(before.episode(0).proprio[:, 0], 0)
        after = StoreReader(tmp_path)
        assert after.verify_all() == 8 and after.num_transitions == 2 * STEPS
        assert not after.holds(1) and after.holds(2) and after.num_episodes == 4
        np.testing.assert_array_equal(after.episode(3).proprio[:, 0], 3)
        with pytest.raises(StoreError, match="pruned"):
            after.episode(0)
        store(writer, None, 4, Label.SUCCESS, policy=4)
        for reader in (before, after):
            reader.refresh()
            assert reader.episode(4).proprio[0, 0] == 4
        before.forget(8)
        np.testing.assert_array_equal(before.episode(2).proprio[:, 0], 2)
    with StoreWriter(tmp_path, schema(), durable=False) as again:
        assert again.recovery.clean and again.num_transitions == 5 * STEPS
        assert Pruning(tmp_path, again, QueueConfig(max_policy_age=1)).step() == 12, "it goes on where it was"


def test_queues_let_go_of_what_they_can_no_longer_draw(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema(), durable=False) as writer:
        pruning = Pruning(tmp_path, writer, QueueConfig(max_policy_age=1))
        reader = StoreReader(tmp_path)
        queues = SyntheticQueues(reader, QueueConfig(max_policy_age=1))
        for number in range(8):
            store(writer, pruning, number, Label(number % 2), policy=number // 2)
            pruning.step()
            queues.refresh()
            if queues.size:
                drawn = queues.sample(8, np.random.default_rng(number))
                assert set(drawn.proprio[:, 0].astype(int)) <= set(range(number + 1))
        assert queues.size == 4 * STEPS
        with pytest.raises(KeyError):
            reader.records(np.array([0]))
        late = SyntheticQueues(StoreReader(tmp_path), QueueConfig(max_policy_age=1))
        late.refresh()
        assert late.sizes() == queues.sizes(), "one that starts now draws the same"


def test_a_reader_that_lags_behind_the_pruning_goes_on(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema(), durable=False) as writer:
        store(writer, None, 0, Label.FAILURE)
        reader = StoreReader(tmp_path)
        for number in range(1, 5):
            store(writer, None, number, Label.FAILURE)
        writer.prune(16)
        reader.refresh()
        assert reader.num_episodes == 5 and reader.num_transitions == 2 * STEPS
        assert [reader.holds(number) for number in range(5)] == [True, False, False, False, True]


def test_a_missing_segment_that_was_not_pruned_is_damage(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema(), durable=False) as writer:
        for number in range(2):
            store(writer, None, number, Label.FAILURE)
    shutil.rmtree(tmp_path / "segments" / "000000")
    with pytest.raises(StoreError, match="missing"):
        StoreReader(tmp_path)


def test_barred_world_models_go(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema(), durable=False) as writer:
        pruning = Pruning(tmp_path, writer, QueueConfig(max_model_age=5))
        assert pruning.newest_model == -1
        for number in range(3):
            store(writer, pruning, number, Label.FAILURE, model=number + 1)
        assert pruning.newest_model == 3 and pruning.step() == 0
        pruning.drop_models_before(3)
        assert pruning.step() == 8
