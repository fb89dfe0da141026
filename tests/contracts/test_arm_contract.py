"""What every Arm must do. A new driver joins with a case here; real devices run under `-m hardware`."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from robot.clock import VirtualClock
from robot.factory import make_task
from robot.interfaces import Arm, DeviceError
from robot.sim.arm import SimArm
from robot.sim.scene import build_scene
from robot.sim.world import SimWorld
from tests.contracts.clocks import RealTime, TestClock

pytestmark = pytest.mark.wall_clock


@dataclass
class Case:
    """An arm and its clock. slack: seconds by which a busy machine may be late; none on a virtual clock."""

    arm: Arm
    clock: TestClock
    slack: float


@contextmanager
def sim_case() -> Iterator[Case]:
    task, clock = make_task("press"), VirtualClock(start=50.0)
    world = SimWorld(build_scene(task.objects(), task.scene), clock)
    world.place_arm(task.spec.reset_joints, 0.0)
    yield Case(SimArm(world), clock, slack=0.0)


@contextmanager
def a1x_case() -> Iterator[Case]:
    pytest.importorskip("cyclonedds", reason="needs the a1x extra: pip install -e '.[a1x]'")
    from robot.arms.a1x import A1XArm
    from tests.robot.simulated_a1x import SimulatedA1X, free_domain

    clock = RealTime()
    with SimulatedA1X(free_domain() + 10) as vendor:
        yield Case(A1XArm(vendor.config, clock, max_joint_speed=3.0), clock, slack=0.2)


@contextmanager
def piper_case() -> Iterator[Case]:
    pytest.importorskip("piper_sdk", reason="needs the piper extra: pip install -e '.[piper]'")
    from robot.arms.piper import PiperArm
    from tests.robot.simulated_piper import SimulatedPiper

    clock = RealTime()
    with SimulatedPiper() as piper:
        yield Case(PiperArm(piper.config, clock, max_joint_speed=3.0), clock, slack=0.2)


ARMS = [pytest.param(case, id=case.__name__) for case in (sim_case, a1x_case, piper_case)]


@pytest.fixture(params=ARMS, scope="module")
def opened(request: pytest.FixtureRequest) -> Iterator[Case]:
    """One arm for all tests: each of them starts where the one before has left it."""
    make: Callable[[], AbstractContextManager[Case]] = request.param
    with make() as made:
        yield made


@pytest.fixture
def case(opened: Case) -> Iterator[Case]:
    opened.arm.connect()
    yield opened
    opened.arm.close()


def test_state_has_its_shapes_units_and_time(case: Case) -> None:
    assert case.arm.joint_limits.shape == (6, 2)
    assert (case.arm.joint_limits[:, 0] < case.arm.joint_limits[:, 1]).all()
    case.clock.advance(0.1)
    state = case.arm.state()
    for value in (state.joint_positions, state.joint_velocities, state.joint_efforts):
        assert value.shape == (6,) and np.isfinite(value).all()
    assert (case.arm.joint_limits[:, 0] <= state.joint_positions).all()
    assert (state.joint_positions <= case.arm.joint_limits[:, 1]).all()
    assert 0.0 <= state.gripper_opening <= 1.0
    assert 0.0 <= case.clock.now() - state.timestamp < 0.02 + case.slack


def test_a_state_is_a_snapshot(case: Case) -> None:
    before = case.arm.state()
    kept = before.joint_positions.copy()
    case.arm.send_joints(kept + 0.1, 0.1)
    case.clock.advance(0.3)
    assert np.abs(case.arm.state().joint_positions - kept).max() > 0.05
    np.testing.assert_array_equal(before.joint_positions, kept)


def test_joints_arrive_in_about_the_duration_and_on_a_straight_line(case: Case) -> None:
    late = []
    # A machine that stands still for a moment spoils one of the three, a wrong driver all.
    for way in (1.0, -1.0, 1.0):
        start = case.arm.state().joint_positions
        goal = start + way * np.array([0.1, -0.05, 0.05, 0.1, -0.1, 0.1])
        sent = case.clock.now()
        case.arm.send_joints(goal, 0.5)
        case.clock.advance(0.25)
        state = case.arm.state()
        share = min((state.timestamp - sent) / 0.5, 1.0)
        progress = (state.joint_positions - start) / (goal - start)
        assert np.ptp(progress) < 0.2  # all joints together: a straight line
        case.clock.advance(0.35 + case.slack)
        np.testing.assert_allclose(case.arm.state().joint_positions, goal, atol=5e-3)
        late.append(float(np.abs(progress - share).max()))
        if late[-1] <= 0.2 + case.slack:
            return
    pytest.fail(f"progress differed from the share of the duration by {late} in three motions")


def test_a_new_target_replaces_the_old_one(case: Case) -> None:
    start = case.arm.state().joint_positions
    case.arm.send_joints(start + 0.3, 1.0)
    case.clock.advance(0.1)
    case.arm.send_joints(start, 0.1)
    case.clock.advance(0.5)
    np.testing.assert_allclose(case.arm.state().joint_positions, start, atol=5e-3)


def test_sent_joints_may_be_reused_by_the_caller(case: Case) -> None:
    goal = case.arm.state().joint_positions + 0.05
    sent = goal.copy()
    case.arm.send_joints(sent, 0.1)
    sent += 1.0
    case.clock.advance(0.4)
    np.testing.assert_allclose(case.arm.state().joint_positions, goal, atol=5e-3)


@pytest.mark.parametrize("opening", [1.0, 0.5, 0.0])
def test_gripper_goes_where_it_is_sent(case: Case, opening: float) -> None:
    case.arm.send_gripper(opening)
    case.clock.advance(2.0)
    assert case.arm.state().gripper_opening == pytest.approx(opening, abs=0.05)


def test_the_state_says_where_the_arm_is_sent(case: Case) -> None:
    start = case.arm.state().joint_positions
    goal = start + 0.3
    case.arm.send_joints(goal, 1.0)
    assert np.array_equal(case.arm.state().commanded, goal)  # type: ignore[arg-type]
    case.clock.advance(0.1)
    case.arm.hold()
    state = case.arm.state()
    assert state.commanded is not None and np.array_equal(state.origin, state.commanded)
    np.testing.assert_allclose(state.commanded, start, atol=0.1 + 0.3 * case.slack)
    assert not np.array_equal(state.commanded, goal)
    case.clock.advance(0.3)
    assert np.array_equal(case.arm.state().commanded, state.commanded)  # type: ignore[arg-type]


def test_hold_stops_a_motion_and_may_be_repeated(case: Case) -> None:
    case.arm.send_joints(case.arm.state().joint_positions + 0.5, 0.5)
    case.clock.advance(0.2)
    case.arm.hold()
    stopped = case.arm.state().joint_positions
    case.arm.hold()
    case.clock.advance(1.0)
    state = case.arm.state()
    assert np.abs(state.joint_positions - stopped).max() < 0.05
    assert np.abs(state.joint_velocities).max() < 0.01


@pytest.mark.parametrize("joints", [np.full(6, np.nan), np.zeros(5)])
def test_unusable_joints_are_refused_and_move_nothing(case: Case, joints: np.ndarray) -> None:
    before = case.arm.state().joint_positions
    with pytest.raises(DeviceError, match="six finite"):
        case.arm.send_joints(joints, 0.1)
    case.clock.advance(0.5)
    np.testing.assert_allclose(case.arm.state().joint_positions, before, atol=1e-3)


def test_unusable_opening_is_refused(case: Case) -> None:
    with pytest.raises(DeviceError, match=r"\[0, 1\]"):
        case.arm.send_gripper(float("nan"))


def test_close_holds_releases_and_may_be_repeated(case: Case) -> None:
    start = case.arm.state().joint_positions
    case.arm.send_joints(start + 0.5, 0.5)
    case.arm.close()
    case.arm.close()
    with pytest.raises(DeviceError, match="connect"):
        case.arm.send_joints(start, 0.1)
    case.clock.advance(1.0)
    case.arm.connect()
    np.testing.assert_allclose(case.arm.state().joint_positions, start, atol=0.02 + 0.5 * case.slack)
