"""Clocks: wall time never returns early, virtual time moves only when told."""

import pytest

from robot.clock import VirtualClock, WallClock


def test_wall_clock_sleeps_until_and_returns_at_once_for_the_past() -> None:
    clock = WallClock()
    goal = clock.now() + 0.02
    clock.sleep_until(goal)
    assert goal <= clock.now() < goal + 0.5
    before = clock.now()
    clock.sleep_until(before - 1.0)
    assert clock.now() - before < 0.01


def test_virtual_clock_jumps_and_never_runs_back() -> None:
    clock = VirtualClock(start=5.0)
    clock.sleep_until(7.5)
    assert clock.now() == 7.5
    clock.sleep_until(6.0)
    assert clock.now() == 7.5
    clock.advance(0.5)
    assert clock.now() == 8.0
    for dt in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="dt >= 0"):
            clock.advance(dt)
    assert clock.now() == 8.0
