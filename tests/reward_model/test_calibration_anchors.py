"""Anchors are drawn by number alone, as many as asked for, within the cap and the budget; refusals are counted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_model.calibration.anchors import (
    AnchorConfig,
    AnchorScheduler,
    ExecutionConfig,
    ExecutionScheduler,
)


@pytest.mark.parametrize(
    ("groups", "fraction", "least", "expected"),
    [(10, 0.1, 1, 1), (8, 0.1, 1, 1), (8, 0.25, 1, 2), (25, 0.1, 1, 2), (35, 0.1, 1, 4), (3, 0.0, 2, 2)]
    + [(3, 1.0, 1, 3), (2, 0.1, 5, 2), (4, 0.0, 0, 0), (0, 0.5, 1, 0)],
)
def test_as_many_as_asked_for(groups: int, fraction: float, least: int, expected: int) -> None:
    scheduler = AnchorScheduler(AnchorConfig(fraction, least))
    assert len(scheduler.select(groups)) == expected  # halves round to even, as published


def test_the_cap_takes_away_and_what_it_takes_is_logged() -> None:
    scheduler = AnchorScheduler(AnchorConfig(fraction=0.5, max_concurrent=3))
    assert [len(scheduler.select(10, in_flight)) for in_flight in (0, 1, 3, 7)] == [3, 2, 0, 0]
    metrics = scheduler.metrics()
    assert metrics["calibration/anchor_refused"] == 2 + 3 + 5 + 5
    assert scheduler.realised_fraction == 5 / 40


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 30), st.floats(0.0, 1.0), st.integers(0, 5), st.integers(0, 99))
def test_sorted_distinct_and_the_same_for_the_same_seed(
    groups: int, fraction: float, least: int, seed: int
) -> None:
    first, second = (AnchorScheduler(AnchorConfig(fraction, least, seed=seed)) for _ in range(2))
    for _ in range(3):
        chosen = first.select(groups)
        assert chosen == second.select(groups) == sorted(set(chosen))
        assert all(0 <= i < groups for i in chosen)


def test_every_group_is_as_likely() -> None:
    scheduler = AnchorScheduler(AnchorConfig(fraction=0.1, seed=5))
    counts = [0] * 10
    for _ in range(2000):
        counts[scheduler.select(10)[0]] += 1
    assert all(150 < count < 250 for count in counts)


def test_a_continued_scheduler_draws_what_the_other_would_have_drawn() -> None:
    scheduler, other = AnchorScheduler(AnchorConfig(0.3)), AnchorScheduler(AnchorConfig(0.3, seed=9))
    scheduler.select(10)
    other.load_state_dict(json.loads(json.dumps(scheduler.state_dict())))
    assert [scheduler.select(10) for _ in range(5)] == [other.select(10) for _ in range(5)]
    assert scheduler.metrics() == other.metrics()


def test_one_counterfactual_in_every_ten_episodes_until_the_budget_is_spent() -> None:
    scheduler = ExecutionScheduler(ExecutionConfig(budget_s=50.0))
    executed = []
    for episode in range(100):
        if scheduler.next_episode(12.0):
            executed.append(episode)
            scheduler.executed(12.0)
    assert [episode // 10 for episode in executed] == [0, 1, 2, 3]  # one per block, 48 s of 50
    assert len({episode % 10 for episode in executed}) > 1  # at random places
    metrics = scheduler.metrics()
    assert metrics["calibration/execution_s"] == 48.0
    assert metrics["calibration/executions_refused"] == 6


def test_a_continued_execution_scheduler_keeps_its_place_and_its_bill() -> None:
    scheduler, other = ExecutionScheduler(ExecutionConfig()), ExecutionScheduler(ExecutionConfig())
    for _ in range(13):
        scheduler.next_episode(1.0)
    scheduler.executed(7.0)
    other.load_state_dict(json.loads(json.dumps(scheduler.state_dict())))
    assert [scheduler.next_episode(1.0) for _ in range(40)] == [other.next_episode(1.0) for _ in range(40)]
    assert scheduler.metrics() == other.metrics()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: AnchorConfig(fraction=1.5),
        lambda: AnchorConfig(min_per_step=-1),
        lambda: AnchorConfig(max_concurrent=-1),
        lambda: ExecutionConfig(block=0),
        lambda: ExecutionConfig(budget_s=float("nan")),
        lambda: ExecutionScheduler(ExecutionConfig()).executed(float("nan")),
    ],
)
def test_wrong_settings_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        wrong()  # type: ignore[operator]
