"""The two queues: exact shares, capacity, age and reuse limits; one empty queue means nothing is drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from replay_data import observation, schema, transition

from rl.batch import SYNTHETIC
from rl.replay.errors import EmptyShareError
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.reader import Lookahead, StoreReader
from rl.replay.writer import StoreWriter
from rl.selection.pacing import EntropyPacingConfig, PacingRule
from rl.selection.queues import QueueConfig, SyntheticQueues
from rl.workers.ports import (
    ALIVE,
    CALIBRATION_GATE,
    MILLIONTHS,
    OLDEST_MODEL,
    SELECTION_GATE,
    SUCCESS_SHARE,
    WORLD_MODEL_GATE,
)
from rl.workers.synthetic import SyntheticShare, SyntheticShareConfig
from robot.types import Label, Provenance, Source

DONE = EpisodeOutcome(EndReason.TIMEOUT)


def imagine(
    writer: StoreWriter,
    label: Label,
    steps: int,
    model: int = 0,
    policy: int = 0,
    source: Source = Source.SYNTHETIC,
) -> None:
    number = writer.begin_episode(observation(writer.num_episodes, 0))
    for step in range(steps):
        writer.add(
            replace(
                transition(number, step, truncated=step == steps - 1),
                source=source,
                label=label,
                policy_version=policy,
                provenance=Provenance(world_model_version=model),
            )
        )
    writer.end_episode(DONE)


def queues(path: Path, **limits: int) -> SyntheticQueues:
    made = SyntheticQueues(StoreReader(path), QueueConfig(**limits))
    made.refresh()
    return made


def test_a_batch_has_exactly_the_share_of_successes(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        imagine(writer, Label.SUCCESS, 6)
        imagine(writer, Label.FAILURE, 9)
    drawn = queues(tmp_path)
    assert (drawn.size, drawn.sizes()) == (15, {Label.SUCCESS: 6, Label.FAILURE: 9})
    drawn.success_share = 0.25
    first = {
        label: np.array([observation(e, s).proprio for s in range(n)])
        for label, e, n in ((Label.SUCCESS, 0, 6), (Label.FAILURE, 1, 9))
    }
    batch = drawn.sample(16, np.random.default_rng(0))
    of = {
        label: sum(any((row == known).all() for known in rows) for row in batch.proprio)
        for label, rows in first.items()
    }
    assert of == {Label.SUCCESS: 4, Label.FAILURE: 12}
    assert (batch.source == Source.SYNTHETIC).all() and not batch.goal_known.any()


@pytest.mark.parametrize(("share", "n"), [(0.12, 4), (0.55, 1), (0.95, 3)])
def test_small_batches_have_the_share_on_average(tmp_path: Path, share: float, n: int) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        imagine(writer, Label.SUCCESS, 6)
        imagine(writer, Label.FAILURE, 9)
    drawn, rng = queues(tmp_path, max_uses=30_000), np.random.default_rng(0)
    drawn.success_share = share
    successes = {observation(0, s).proprio.tobytes() for s in range(6)}
    told = [sum(row.tobytes() in successes for row in drawn.sample(n, rng).proprio) for _ in range(2000)]
    assert np.mean(told) == pytest.approx(n * share, abs=0.05)
    assert set(told) <= {int(n * share), int(n * share) + 1}


def test_what_was_used_up_stays_so_when_a_run_continues(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        imagine(writer, Label.SUCCESS, 6)
        imagine(writer, Label.FAILURE, 6)
    drawn, rng = queues(tmp_path, max_uses=4), np.random.default_rng(0)
    while min(drawn.sizes().values()) == 6:
        drawn.sample(4, rng)
    again = queues(tmp_path, max_uses=4)
    again.load_state(json.loads(json.dumps(drawn.state())))
    assert again.sizes() == drawn.sizes()


def test_returns_look_ahead_to_the_end_of_their_clip_and_no_further(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        imagine(writer, Label.SUCCESS, 5)
        imagine(writer, Label.FAILURE, 5)
    drawn = SyntheticQueues(StoreReader(tmp_path), QueueConfig(), Lookahead(3, 0.9))
    drawn.refresh()
    batch = drawn.sample(256, np.random.default_rng(0))
    frame = {observation(e, s).proprio.tobytes(): (e, s) for e in (0, 1) for s in range(6)}
    for row in range(len(batch)):
        clip, step = frame[batch.proprio[row].tobytes()]
        steps = min(3, 5 - step)
        assert batch.steps[row] == steps
        assert frame[batch.next_proprio[row].tobytes()] == (clip, step + steps)
        assert batch.truncated[row] == (step + steps == 5)
    assert set(batch.steps.tolist()) == {1, 2, 3}


def test_one_empty_queue_means_nothing_is_drawn(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        imagine(writer, Label.SUCCESS, 6)
        imagine(writer, Label.UNKNOWN, 6)
    drawn, rng = queues(tmp_path), np.random.default_rng(0)
    assert drawn.size == 0
    with pytest.raises(EmptyShareError, match="queues"):
        drawn.sample(4, rng)
    before = rng.bit_generator.state
    assert len(drawn.sample(0, rng)) == 0 and rng.bit_generator.state == before


def test_without_selection_both_queues_are_one(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        imagine(writer, Label.FAILURE, 9)
        made = SyntheticQueues(StoreReader(tmp_path), QueueConfig(), balanced=False)
        made.refresh()
        assert made.size == 9 and len(made.sample(8, np.random.default_rng(0))) == 8
        imagine(writer, Label.SUCCESS, 3)
        made.refresh()
        assert made.sample(12, np.random.default_rng(0)).source.all() and made.size == 12


def test_where_successes_alone_are_kept_no_failure_is_drawn(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        imagine(writer, Label.FAILURE, 9)
        made = SyntheticQueues(StoreReader(tmp_path), QueueConfig(), kept=[Label.SUCCESS], balanced=False)
        made.refresh()
        assert made.size == 0
        imagine(writer, Label.SUCCESS, 3)
        made.refresh()
    assert (made.size, made.sizes()) == (3, {Label.SUCCESS: 3, Label.FAILURE: 0})
    drawn = made.sample(64, np.random.default_rng(0)).proprio
    successes = np.array([observation(1, step).proprio for step in range(3)])
    assert (drawn[:, None] == successes).all(-1).any(-1).all()


def test_the_oldest_go_beyond_the_capacity(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        imagine(writer, Label.FAILURE, 3)
        drawn = queues(tmp_path, capacity=5)
        for _ in range(3):
            imagine(writer, Label.SUCCESS, 4)
            drawn.refresh()
    assert drawn.sizes() == {Label.SUCCESS: 5, Label.FAILURE: 3}


def test_old_models_and_old_policies_are_dropped(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        imagine(writer, Label.SUCCESS, 2, model=0, policy=0)
        imagine(writer, Label.FAILURE, 2, model=1, policy=90)
        drawn = queues(tmp_path, max_model_age=1, max_policy_age=100)
        assert drawn.size == 4
        imagine(writer, Label.FAILURE, 2, model=1, policy=101)
        imagine(writer, Label.SUCCESS, 3, model=1, policy=101)
        drawn.refresh()
        assert drawn.sizes() == {Label.SUCCESS: 3, Label.FAILURE: 4}, "its policy is 101 versions old"
        imagine(writer, Label.SUCCESS, 1, model=3, policy=101)
        drawn.refresh()
    assert drawn.sizes() == {Label.SUCCESS: 1, Label.FAILURE: 0} and drawn.size == 0


def test_clips_grow_old_with_the_learner_also_while_nothing_new_is_imagined(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        imagine(writer, Label.SUCCESS, 2, policy=3)
        imagine(writer, Label.FAILURE, 2, policy=5)
    drawn = queues(tmp_path, max_policy_age=10)
    drawn.policy_is(13)
    assert drawn.size == 4
    drawn.policy_is(14)
    assert drawn.sizes() == {Label.SUCCESS: 0, Label.FAILURE: 2} and drawn.size == 0
    drawn.policy_is(2)
    drawn.refresh()
    assert drawn.size == 0, "an older number brings nothing back"


def test_half_a_clip_is_none(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, schema())
    imagine(writer, Label.SUCCESS, 2)
    imagine(writer, Label.FAILURE, 2)
    number = writer.begin_episode(observation(writer.num_episodes, 0))
    for step in range(3):  # its writer ends before the success that the label speaks of
        half = replace(transition(number, step), source=Source.SYNTHETIC, label=Label.SUCCESS)
        writer.add(replace(half, provenance=Provenance(world_model_version=0)))
    writer.close()
    assert queues(tmp_path).sizes() == {Label.SUCCESS: 2, Label.FAILURE: 2}


def test_draws_are_counted_on_after_a_resume(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        imagine(writer, Label.SUCCESS, 2)
        imagine(writer, Label.FAILURE, 2)
    first, rng = queues(tmp_path, max_uses=20), np.random.default_rng(0)
    for _ in range(8):
        first.sample(4, rng)
    state = json.loads(json.dumps(first.state()))
    resumed = SyntheticQueues(StoreReader(tmp_path), QueueConfig(max_uses=20))
    resumed.load_state(state)
    assert resumed.drawn == 32 and resumed.state() == state and resumed.sizes() == first.sizes()
    one, other = np.random.default_rng(1), np.random.default_rng(1)
    while first.size:
        np.testing.assert_array_equal(first.sample(4, one).proprio, resumed.sample(4, other).proprio)
    assert resumed.size == 0


def test_a_transition_is_used_so_often_and_not_again(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        imagine(writer, Label.SUCCESS, 2)
        imagine(writer, Label.FAILURE, 2)
    drawn, rng = queues(tmp_path, max_uses=3), np.random.default_rng(0)
    total = 0
    while drawn.size:
        total += len(drawn.sample(2, rng))
        assert total < 50
    assert 6 <= total <= 14
    drawn.refresh()
    assert drawn.size == 0, "looking again does not bring it back"


def test_real_transitions_are_refused(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        imagine(writer, Label.SUCCESS, 2, source=Source.REAL)
    with pytest.raises(ValueError, match="not synthetic"):
        queues(tmp_path)


def test_barred_world_models_are_not_drawn_now_or_later(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        for model in (1, 2):
            imagine(writer, Label.SUCCESS, 3, model=model)
            imagine(writer, Label.FAILURE, 3, model=model)
        drawn = queues(tmp_path, max_model_age=5)
        drawn.drop_models_before(2)
        assert drawn.size == 6
        drawn.drop_models_before(1)
        imagine(writer, Label.FAILURE, 3, model=1)
        imagine(writer, Label.FAILURE, 3, model=2)
        drawn.refresh()
        assert drawn.sizes() == {Label.SUCCESS: 3, Label.FAILURE: 6}, (
            "a bar only rises, and holds for new clips"
        )


def test_the_share_obeys_the_bar_before_it_draws(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        imagine(writer, Label.SUCCESS, 3, model=1)
        imagine(writer, Label.FAILURE, 3, model=1)

    class Counters(dict[str, int]):
        def set(self, name: str, value: int) -> None:
            self[name] = value

    gates = (WORLD_MODEL_GATE, SELECTION_GATE, CALIBRATION_GATE)
    counters = Counters(
        dict.fromkeys(gates, MILLIONTHS) | {ALIVE: 1, OLDEST_MODEL: 1, SUCCESS_SHARE: 500_000}
    )
    config = SyntheticShareConfig(pacing=EntropyPacingConfig(rule=PacingRule.CONSTANT, measure_every=25))
    share = SyntheticShare(
        queues(tmp_path),
        counters,  # type: ignore[arg-type]
        config,
        action_dim=6,
        certainty=lambda: None,
        alive=lambda: True,
        policy_version=lambda: 0,
    )
    for update in range(200):
        share.shares({"online": 1.0}, 64, 1000, update)
    assert SYNTHETIC in share.shares({"online": 1.0}, 64, 1000, 200)
    assert share.metrics()["selection/paced"] == 0.30
    counters[OLDEST_MODEL] = 2
    assert share.shares({"online": 1.0}, 64, 1000, 201) == {"online": 1.0}
