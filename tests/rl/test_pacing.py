"""Pacing: updates are paid for by environment steps, whatever the speed of the processes."""

import pytest

from rl.workers.pacing import PacingConfig


def test_updates_due_follow_the_exchange_rate() -> None:
    pacing = PacingConfig(utd_ratio=1.5)
    assert [pacing.updates_due(n, 100) for n in (0, 1, 2, 10)] == [100, 101, 103, 115]


def test_a_factor_changes_the_rate_of_any_experiment_alike() -> None:
    assert PacingConfig(utd_ratio=3.0, factor=1.5).updates_due(10, 100) == 145


def test_the_actor_waits_only_beyond_its_slack() -> None:
    pacing = PacingConfig(utd_ratio=2.0, slack_steps=5)
    assert not pacing.actor_ahead(env_steps=15, updates=120, warm_updates=100)
    assert pacing.actor_ahead(env_steps=16, updates=120, warm_updates=100)
    assert not pacing.actor_ahead(env_steps=0, updates=100, warm_updates=100)
    assert pacing.actor_ahead(env_steps=0, updates=99, warm_updates=100)


@pytest.mark.parametrize("ratio", [0.0, -1.0, 65.0])
def test_an_impossible_ratio_is_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match="utd_ratio"):
        PacingConfig(utd_ratio=ratio)
    with pytest.raises(ValueError, match="factor"):
        PacingConfig(factor=ratio)
