"""The drivers' stream: where it sends the joints at each instant, and what becomes of it when its work fails."""

from __future__ import annotations

from threading import Event

import numpy as np
import pytest

from robot.arms.ramp import DISPLACED, DISPLACED_TIME, SETTLED, JointRamp
from robot.arms.stream import JointStream
from robot.clock import VirtualClock, WallClock
from robot.interfaces import DeviceError
from robot.periodic import PeriodicThread

pytestmark = pytest.mark.wall_clock

ZERO, ONE = np.zeros(6), np.ones(6)


def at(ramp: JointRamp) -> float:
    command = ramp.command()
    assert command is not None and np.ptp(command) == 0.0
    return float(command[0])


def test_a_ramp_begins_at_the_measured_joints_and_then_at_its_own_command() -> None:
    clock = VirtualClock()
    ramp = JointRamp(clock, max_speed=10.0)
    assert ramp.command() is None
    ramp.move(ONE, 1.0, measured=ZERO)
    clock.advance(0.25)
    assert at(ramp) == pytest.approx(0.25)
    ramp.move(ZERO, 0.5, measured=9.0 * ONE)
    assert at(ramp) == pytest.approx(0.25)
    clock.advance(0.25)
    assert at(ramp) == pytest.approx(0.125)
    clock.advance(5.0)
    assert at(ramp) == 0.0


def test_a_ramp_is_never_faster_than_its_cap() -> None:
    clock = VirtualClock()
    ramp = JointRamp(clock, max_speed=0.5)
    ramp.move(ONE, 0.1, measured=ZERO)
    clock.advance(0.1)
    assert at(ramp) == pytest.approx(0.05)
    clock.advance(1.9)
    assert at(ramp) == 1.0


def test_a_second_stop_does_not_let_a_sagging_arm_sink() -> None:
    clock = VirtualClock()
    ramp = JointRamp(clock, max_speed=10.0)
    ramp.stop(None)
    assert ramp.command() is None and ramp.goal() is None  # nothing to stay at
    ramp.move(ONE, 1.0, measured=ZERO)
    clock.advance(0.5)
    ramp.stop(0.4 * ONE)
    ramp.stop(0.36 * ONE)
    clock.advance(1.0)
    assert at(ramp) == pytest.approx(0.4)
    ramp.move(ONE, 1.0, measured=0.36 * ONE)
    clock.advance(0.5)
    ramp.stop(None)  # feedback is old: stay at the present command
    clock.advance(1.0)
    assert at(ramp) == pytest.approx(0.7)
    ramp.stop(None)
    ramp.stop(0.3 * ONE)  # this is no sag
    assert at(ramp) == pytest.approx(0.3)


@pytest.mark.parametrize("after_motion", [False, True])
def test_a_standing_command_follows_an_arm_that_is_moved_away(after_motion: bool) -> None:
    clock = VirtualClock()
    ramp = JointRamp(clock, max_speed=10.0)
    ramp.follow(ONE)
    assert ramp.command() is None  # nothing is commanded, so nothing is sent
    ramp.move(ONE, 1.0, measured=ZERO)
    if after_motion:
        clock.advance(1.0 + SETTLED)
    else:
        ramp.stop(ONE)
    ramp.follow(ONE)
    sunk = (1.0 - 1.5 * DISPLACED) * ONE
    clock.advance(0.9 * DISPLACED_TIME)
    ramp.follow(sunk)
    ramp.follow(ONE)  # the reading before was wrong
    clock.advance(0.9 * DISPLACED_TIME)
    ramp.follow(sunk)
    assert at(ramp) == 1.0
    clock.advance(0.2 * DISPLACED_TIME)
    ramp.follow(sunk)
    assert at(ramp) == sunk[0]


def test_after_a_gap_in_the_feedback_the_first_reading_decides() -> None:
    clock = VirtualClock()
    ramp = JointRamp(clock, max_speed=10.0)
    ramp.stop(ONE)
    clock.advance(30.0)  # the arm, and its encoders, were without power
    ramp.follow(ZERO)
    assert at(ramp) == 0.0


def test_a_motion_in_progress_does_not_wait_for_an_arm_that_is_behind() -> None:
    clock = VirtualClock()
    ramp = JointRamp(clock, max_speed=10.0)
    ramp.move(ONE, 1.0, measured=ZERO)
    for _ in range(12):
        ramp.follow(ZERO)
        clock.advance(0.1)
    assert at(ramp) == 1.0


@pytest.mark.parametrize("measured", [None, np.full(6, np.nan), np.zeros(4)])
def test_a_hold_without_sound_feedback_stays_at_the_command(measured: np.ndarray | None) -> None:
    clock, sent = VirtualClock(), []
    stream = JointStream("stream", lambda: measured, sent.append, clock, hz=100.0, max_speed=10.0)
    stream.hold()
    assert sent == [] and stream.commanded is None
    stream.move(ONE, 1.0, ZERO)
    clock.advance(0.5)
    stream.hold()
    np.testing.assert_allclose(sent[-1], 0.5)


def test_work_that_fails_is_told_to_whoever_relies_on_it() -> None:
    failed = Event()

    def work() -> None:
        failed.set()
        raise OSError("the cable is gone")

    thread = PeriodicThread("a stream", work, WallClock(), 0.01)
    thread.check()
    thread.start()
    assert failed.wait(10.0)
    thread.stop()
    with pytest.raises(DeviceError, match="a stream: stopped by OSError: the cable is gone"):
        thread.check()


def test_no_work_after_stop() -> None:
    count = 0

    def work() -> None:
        nonlocal count
        count += 1

    thread = PeriodicThread("a stream", work, WallClock(), 0.001)
    thread.start()
    thread.start()
    WallClock().sleep_until(WallClock().now() + 0.05)
    thread.stop()
    done = count
    WallClock().sleep_until(WallClock().now() + 0.02)
    assert 1 <= done == count


def test_an_arm_that_hangs_below_its_command_does_not_sink_step_by_step() -> None:
    """Re-seated where it hangs it hangs as far below that; each time it may be twice as far off, up to a bound."""
    clock = VirtualClock()
    ramp = JointRamp(clock, 1.0)
    sag, start = 0.06, np.zeros(6)
    ramp.stop(start)
    for _ in range(1000):
        clock.advance(0.01)
        command = ramp.command()
        assert command is not None
        ramp.follow(command - sag)
    command = ramp.command()
    assert command is not None and np.abs(command - start).max() <= 2 * sag + 1e-9
