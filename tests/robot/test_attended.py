"""What a person beside a physical arm relies on: it holds, names why, and asks before it moves again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from robot.clock import WallClock
from robot.interfaces import DeviceError, RobotFault, TeleopCommand
from robot.safety import GovernorState, GovernorTransition
from robot.wrappers import HumanIntervention
from tests.robot.attended_rig import FAR, START, AttendedRig, StallingCamera

FORWARD, STAY = np.array([1, 0, 0, 0, 0, 0, 0], np.float32), np.zeros(7, np.float32)


def step_until_fault(rig: AttendedRig, steps: int = 10) -> str:
    with pytest.raises(RobotFault) as caught:
        for _ in range(steps):
            rig.env.step(FORWARD)
    return caught.value.name


def test_after_a_camera_fault_nothing_moves_before_the_operator_has_agreed() -> None:
    rig = AttendedRig()
    rig.begin()
    for _ in range(10):
        rig.env.step(FORWARD)
    rig.camera.stalled_at, rig.camera.back_at = rig.clock.now(), rig.clock.now() + 8.0
    assert step_until_fault(rig) == "stale_frame"
    rig.forget()
    rig.arm.on_send = lambda: pytest.fail("it moved unasked") if not rig.operator.asked else None
    rig.env.reset()
    assert "Let the arm move (it stopped: stale_frame: " in rig.operator.asked[0] and rig.arm.sent


def test_a_camera_lost_between_episodes_is_mended_and_then_asked_about_before_the_arm_moves() -> None:
    rig = AttendedRig()
    rig.begin()
    rig.camera.lost = True
    rig.env.reset()
    mended, move, scene = rig.operator.asked
    assert "camera_lost" in mended and "connected again" in mended
    assert "Let the arm move (it stopped: camera_lost: " in move and "scene ready" in scene


@pytest.mark.parametrize("stamp", [np.nan, 3600.0])
def test_an_image_from_no_time_or_from_the_future_is_not_fresh(stamp: float) -> None:
    rig = AttendedRig()
    rig.begin()
    rig.camera.offset = stamp
    with pytest.raises(RobotFault, match=r"stale_frame.*(nan|-3600\.00) s old.*another clock"):
        rig.env.step(STAY)


def test_a_refused_way_is_asked_about_before_the_next_try() -> None:
    rig = AttendedRig()
    rig.begin()
    beyond = START + 3.0 * np.eye(6)[2]
    for _ in range(3):
        with pytest.raises(RobotFault, match="reset_path"):
            rig.robot.move_joints(beyond)
    assert ["it stopped: reset_path" in request for request in rig.operator.asked] == [True, True]


@pytest.mark.parametrize("move", ["observe", "reset"])
def test_malformed_feedback_is_named_and_held(move: str) -> None:
    rig = AttendedRig()
    rig.begin()
    rig.arm.malformed = True
    motion: Callable[[], object] = rig.robot.observe if move == "observe" else rig.env.reset
    with pytest.raises(RobotFault, match=r"malformed_feedback.*\(5,\)"):
        motion()
    assert rig.arm.holds and rig.robot._governor.state is GovernorState.FAULTED


@pytest.mark.parametrize("error", [DeviceError("another program publishes too"), KeyboardInterrupt()])
def test_whatever_fails_between_the_check_and_the_send_holds_and_is_asked_about(error: BaseException) -> None:
    rig = AttendedRig()
    rig.begin()

    def fail() -> None:
        raise error

    rig.arm.on_send = fail
    with pytest.raises(type(error)):
        rig.env.step(FORWARD)
    assert rig.arm.holds and rig.robot._governor.state is GovernorState.FAULTED
    rig.arm.on_send = lambda: None
    rig.env.reset()
    assert f"it stopped: error: {type(error).__name__}" in rig.operator.asked[0]


def test_a_connection_that_fails_in_any_way_releases_what_was_open() -> None:
    class Broken(StallingCamera):
        def connect(self) -> None:
            raise RuntimeError("get_option failed")

    rig = AttendedRig()
    rig.robot = AttendedRig(cameras=[rig.camera, Broken(rig.clock)]).robot
    with pytest.raises(RuntimeError, match="get_option"):
        rig.robot.connect()
    assert rig.camera.closed and rig.robot._arm.closed  # type: ignore[attr-defined]


class FullDisk:
    """A listener that cannot write any more, once it is full."""

    full = False

    def __call__(self, _transition: GovernorTransition) -> None:
        if self.full:
            raise OSError(28, "No space left on device")


def test_a_full_disk_switches_no_stop_off() -> None:
    disk = FullDisk()
    rig = AttendedRig(WallClock(), on_transition=disk)
    rig.begin()
    rig.env.step(STAY)
    rig.forget()
    disk.full = True
    rig.clock.sleep_until(rig.clock.now() + 0.5)
    assert rig.arm.holds  # the policy was silent
    rig.arm.efforts = np.full(6, 100.0)
    assert step_until_fault(rig) == "effort"
    rig.env.close()
    assert rig.arm.closed and rig.camera.closed


def test_an_error_of_the_watchdog_holds() -> None:
    rig = AttendedRig(WallClock())
    rig.begin()
    rig.robot._governor.watch = lambda *_: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    rig.clock.sleep_until(rig.clock.now() + 0.1)
    assert rig.arm.holds and rig.robot._governor.state is GovernorState.FAULTED
    with pytest.raises(DeviceError, match="watchdog: stopped by ZeroDivisionError"):
        rig.env.step(STAY)
    rig.env.close()


def test_closing_closes_all_of_it_even_where_the_lock_fails() -> None:
    rig = AttendedRig()
    rig.begin()
    rig.robot._governor.lock = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        rig.env.close()
    assert rig.arm.closed and rig.camera.closed


def after_waypoints(rig: AttendedRig, count: int, then: Callable[[], None]) -> None:
    """Do `then` once in a reset, before waypoint `count` is sent."""

    def look() -> None:
        if len(rig.arm.sent) == count:
            then()

    rig.arm.on_send = look


def test_the_watchdog_stops_a_reset_that_hits_something() -> None:
    rig = AttendedRig(WallClock(), joints=FAR)
    rig.robot.connect()
    hit: list[float] = []

    def collide() -> None:
        hit.append(rig.clock.now())
        rig.arm.efforts = np.full(6, 100.0)

    after_waypoints(rig, 5, collide)
    with pytest.raises(RobotFault, match="effort"):
        rig.env.reset()
    assert rig.arm.holds[0] - hit[0] < 0.2
    held = rig.arm.ramp.command()
    rig.clock.sleep_until(rig.clock.now() + 0.15)
    np.testing.assert_array_equal(rig.arm.ramp.command(), held)
    rig.env.close()


@pytest.mark.parametrize(("clock", "late"), [(None, 0.22), (WallClock(), 0.18)])
def test_a_reset_holds_while_feedback_is_late_and_goes_on_within_its_caps(
    clock: WallClock | None, late: float
) -> None:
    rig = AttendedRig(clock, joints=START + 0.5 * np.eye(6)[0])
    rig.robot.connect()
    places: list[np.ndarray] = []
    read = rig.arm.state

    def state():  # type: ignore[no-untyped-def]
        if rig.arm.lost_at is not None and rig.clock.now() > rig.arm.lost_at + late:
            rig.arm.lost_at = None
        return read()

    rig.arm.state = state  # type: ignore[method-assign]

    def lose() -> None:
        rig.arm.lost_at = rig.clock.now()
        rig.arm.on_send = lambda: places.append(rig.arm.joints.copy())

    after_waypoints(rig, 5, lose)
    rig.env.reset()
    assert rig.arm.holds
    np.testing.assert_allclose(rig.arm.sent[-1], START, atol=1e-9)
    steps = np.abs(np.diff([*places, START], axis=0)).max(axis=1)
    assert steps.max() <= 0.6 * 0.1 + 3e-3
    rig.env.close()


class Device:
    """A person's device on which nothing but STOP is ever pressed."""

    def __init__(self) -> None:
        self.pressed = False

    def reset(self) -> None: ...

    def read(self) -> TeleopCommand:
        return TeleopCommand()

    def stop_asked(self) -> bool:
        return self.pressed

    def close(self) -> None: ...


def test_the_stop_key_stops_a_reset_at_its_next_waypoint() -> None:
    rig, device = AttendedRig(joints=FAR), Device()
    rig.robot.connect()
    env = HumanIntervention(rig.env, device)
    after_waypoints(rig, 5, lambda: setattr(device, "pressed", True))
    with pytest.raises(RobotFault, match="operator_stop"):
        env.reset()
    assert len(rig.arm.sent) == 6 and len(rig.arm.holds) == 1
    held = rig.arm.ramp.command()
    rig.clock.sleep_until(rig.clock.now() + 1.0)
    np.testing.assert_array_equal(rig.arm.ramp.command(), held)
    with pytest.raises(RobotFault, match="faulted"):
        rig.robot.act(FORWARD)
    rig.forget()
    rig.env.reset()
    assert "it stopped: operator_stop" in rig.operator.asked[0]


def test_a_run_that_ends_stops_a_reset_at_its_next_waypoint() -> None:
    goes_on, told = [True], set[str]()

    def keep_waiting(what: str) -> bool:
        told.add(what)
        return goes_on[0]

    rig = AttendedRig(joints=FAR, keep_waiting=keep_waiting)
    rig.robot.connect()
    after_waypoints(rig, 5, lambda: goes_on.__setitem__(0, False))
    with pytest.raises(RobotFault, match="interrupted"):
        rig.env.reset()
    assert len(rig.arm.sent) == 6 and len(rig.arm.holds) == 1
    assert told == {"the arm, on the way to its start"}
    goes_on[0], rig.arm.on_send = True, lambda: None
    rig.forget()
    rig.env.reset()
    assert not any("Let the arm move" in request for request in rig.operator.asked)  # nothing was wrong
