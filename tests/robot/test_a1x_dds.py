"""The A1X driver and the governor's watchdog against a simulated A1X in another process, over real DDS on loopback.

What a fault may take is tested with room for a busy machine; benchmarks/faults.py measures what it takes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from robot.arms.a1x import A1XArm
from robot.cell import CellConfig
from robot.clock import WallClock
from robot.env import RobotEnv
from robot.factory import make_robot_env
from robot.interfaces import DeviceError, RobotFault
from robot.robot import Robot
from robot.safety import GovernorState, GovernorTransition, Reason
from tests.robot.simulated_a1x import CELL, Agreeable, SimulatedA1X, free_domain

pytestmark = pytest.mark.wall_clock

pytest.importorskip("cyclonedds", reason="needs the a1x extra: pip install -e '.[a1x]'")

CLOCK = WallClock()
SLACK = 0.4  # s that a busy machine may add to a reaction
STAY, FORWARD = np.zeros(7, np.float32), np.array([1, 0, 0, 0, 0, 0, 0], np.float32)


@pytest.fixture(scope="module")
def vendor() -> Iterator[SimulatedA1X]:
    with SimulatedA1X(free_domain()) as simulated:
        yield simulated


class Rig:
    """An environment on the simulated A1X and what its governor did, with when it was done."""

    def __init__(self, vendor: SimulatedA1X, cell: CellConfig = CELL) -> None:
        self.operator = Agreeable()
        self.seen: list[tuple[GovernorTransition, float]] = []
        self.env: RobotEnv = make_robot_env(
            replace(vendor.robot(), cell=cell),
            operator=self.operator,
            on_transition=lambda change: self.seen.append((change, CLOCK.now())),
        )
        self.robot: Robot = self.env.robot
        self.arm = self.robot._arm
        assert isinstance(self.arm, A1XArm)

    def wait_for(self, state: GovernorState, timeout: float = 3.0) -> tuple[GovernorTransition, float]:
        """The first change into `state` from now on or before, as soon as it is there."""
        give_up = CLOCK.now() + timeout
        while CLOCK.now() < give_up:
            for change, when in self.seen:
                if change.after is state:
                    return change, when
            CLOCK.sleep_until(CLOCK.now() + 0.01)
        raise AssertionError(f"the governor did not become {state}: {self.seen}")

    def command(self) -> np.ndarray:
        """What the stream sends at this moment."""
        assert isinstance(self.arm, A1XArm)
        command = self.arm._stream._ramp.command()
        assert command is not None
        return command

    def step_until_fault(self, action: np.ndarray = STAY, steps: int = 30) -> RobotFault:
        with pytest.raises(RobotFault) as caught:
            for _ in range(steps):
                self.env.step(action)
        return caught.value


@pytest.fixture
def rig(vendor: SimulatedA1X) -> Iterator[Rig]:
    rig = Rig(vendor)
    yield rig
    vendor.tell("heal")
    rig.env.close()


def connect(vendor: SimulatedA1X) -> None:
    arm = A1XArm(vendor.config, CLOCK, max_joint_speed=1.0)
    try:
        arm.connect()
    finally:
        arm.close()


def begin(rig: Rig) -> None:
    rig.env.reset()
    rig.seen.clear()


def test_nothing_moves_before_the_operator_agrees(rig: Rig) -> None:
    before = rig.arm.state().joint_positions
    with pytest.raises(RobotFault, match="locked"):
        rig.robot.act(FORWARD)
    assert rig.operator.requests == []
    np.testing.assert_allclose(rig.arm.state().joint_positions, before, atol=1e-4)
    rig.env.reset()
    assert "Let the arm move" in rig.operator.requests[0]
    assert "Is the scene ready" in rig.operator.requests[1]


def test_an_operator_who_refuses_keeps_the_arm_locked(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: str) -> None:
        raise RobotFault("not_confirmed", request)

    monkeypatch.setattr(rig.operator, "confirm", refuse)
    with pytest.raises(RobotFault, match="not_confirmed"):
        rig.env.reset()
    with pytest.raises(RobotFault, match="locked"):
        rig.robot.act(FORWARD)


def test_the_arm_goes_where_the_actions_send_it(rig: Rig) -> None:
    begin(rig)
    start = rig.robot._kinematics.forward(rig.arm.state().joint_positions).position
    executed = np.zeros(3)
    for _ in range(10):
        values, _, _, _, info = rig.env.step(FORWARD)
        executed += info["action"][:3] * CELL.position_step
    assert executed[0] > 0.02
    CLOCK.sleep_until(CLOCK.now() + 0.15)
    moved = rig.robot._kinematics.forward(rig.arm.state().joint_positions).position - start
    np.testing.assert_allclose(moved, executed, atol=4e-3)
    assert np.isfinite(values["proprio"]).all()


def test_a_silent_policy_makes_the_arm_hold_then_fault(rig: Rig) -> None:
    begin(rig)
    for _ in range(3):
        rig.env.step(FORWARD)
    rig.seen.clear()
    rig.robot.act(FORWARD)
    last = CLOCK.now()
    change, when = rig.wait_for(GovernorState.HOLDING)
    assert change.reason is Reason.POLICY_SILENT
    assert when - last <= 0.35 + SLACK
    held = rig.command()
    change, when = rig.wait_for(GovernorState.FAULTED)
    assert change.reason is Reason.POLICY_SILENT and when - last <= 0.80 + SLACK
    assert np.array_equal(rig.command(), held)
    with pytest.raises(RobotFault, match=r"policy_silent: no command for"):
        rig.robot.act(FORWARD)
    with pytest.raises(RobotFault, match=r"faulted: stopped by policy_silent"):
        rig.robot.act(FORWARD)
    rig.env.reset()
    assert "policy_silent" in rig.operator.requests[-2]
    rig.env.step(FORWARD)


def test_whoever_holds_on_purpose_may_be_silent(rig: Rig) -> None:
    begin(rig)
    rig.env.step(FORWARD)
    rig.robot.hold()
    CLOCK.sleep_until(CLOCK.now() + 1.0)
    assert rig.robot._governor.state is GovernorState.HOLDING
    rig.robot.act(FORWARD)
    assert rig.robot._governor.state is GovernorState.READY


@pytest.mark.parametrize(
    ("failure", "reason", "limit"),
    [
        ("stale", Reason.STALE_FEEDBACK, 0.30),
        ("nan 2", Reason.NAN_FEEDBACK, 0.10),
        ("shove 0 0.3", Reason.LAG, 0.50),
        ("effort 3 40", Reason.EFFORT, 0.15),
    ],
)
def test_a_fault_of_the_arm_stops_it(
    rig: Rig, vendor: SimulatedA1X, failure: str, reason: Reason, limit: float
) -> None:
    begin(rig)
    rig.env.step(STAY)
    vendor.tell(failure)
    told = CLOCK.now()
    name = rig.step_until_fault().name
    assert name in (reason, Reason.FAULTED)
    change, when = rig.wait_for(GovernorState.FAULTED)
    assert change.reason is reason
    assert when - told <= limit + SLACK
    held = rig.command()
    CLOCK.sleep_until(CLOCK.now() + 0.1)
    assert np.array_equal(rig.command(), held) and np.isfinite(held).all()


def test_bad_feedback_is_no_place_to_start_from_and_later_for_the_governor_to_judge(
    rig: Rig, vendor: SimulatedA1X
) -> None:
    goal = rig.arm.state().joint_positions
    vendor.tell("nan 2")
    CLOCK.sleep_until(CLOCK.now() + 0.3)
    with pytest.raises(DeviceError, match="expected six finite measured joints to start from"):
        rig.arm.send_joints(goal, 0.1)
    vendor.tell("heal")
    CLOCK.sleep_until(CLOCK.now() + 0.3)
    begin(rig)
    rig.env.step(STAY)
    vendor.tell("nan 2")
    CLOCK.sleep_until(CLOCK.now() + 0.3)
    rig.arm.send_joints(goal, 0.1)  # between the governor's look and this one it may turn bad
    assert rig.step_until_fault().name in (Reason.NAN_FEEDBACK, Reason.FAULTED)


def test_an_obstacle_in_the_way_stops_the_arm_by_its_effort(vendor: SimulatedA1X) -> None:
    lower = replace(CELL, workspace_lower=[0.24, -0.13, 0.02])  # the top of the toaster is inside
    rig = Rig(vendor, lower)
    begin(rig)
    fault = rig.step_until_fault(np.array([0.3, 0, -1, 0, 0, 0, 0], np.float32), steps=60)
    assert fault.name == Reason.EFFORT and "free the arm" in fault.detail
    state, target = rig.arm.state(), rig.robot._governor.target
    reached = rig.robot._kinematics.forward(state.joint_positions).position
    assert 0.06 < reached[2] < 0.09
    assert np.linalg.norm(target.pose.position - reached) <= 0.031  # the leash
    CLOCK.sleep_until(CLOCK.now() + 0.3)
    assert np.abs(rig.arm.state().joint_efforts).max() < 15.0  # it holds where it is and pushes no more
    rig.env.close()


def test_frozen_feedback_stops_a_moving_arm(rig: Rig, vendor: SimulatedA1X) -> None:
    begin(rig)
    rig.env.step(FORWARD)
    vendor.tell("frozen")
    told = CLOCK.now()
    assert rig.step_until_fault(FORWARD).name == Reason.FROZEN_FEEDBACK
    change, when = rig.wait_for(GovernorState.FAULTED)
    assert change.reason is Reason.FROZEN_FEEDBACK and when - told <= 0.7 + 2 * SLACK


def test_the_end_of_the_vendors_process_makes_the_arm_hold() -> None:
    with SimulatedA1X(free_domain() + 1) as vendor:
        rig = Rig(vendor)
        begin(rig)
        rig.env.step(FORWARD)
        vendor.kill()
        killed = CLOCK.now()
        rig.step_until_fault(FORWARD)
        change, when = rig.wait_for(GovernorState.HOLDING)
        assert change.reason is Reason.STALE_FEEDBACK and when - killed <= 0.30 + SLACK
        rig.wait_for(GovernorState.FAULTED)
        held = rig.command()
        with pytest.raises(RobotFault, match="stale_feedback"):
            rig.env.reset()
        assert np.array_equal(rig.command(), held)
        rig.env.close()
        with pytest.raises(DeviceError, match="connect"):
            rig.arm.state()


def test_one_program_at_a_time_and_after_a_kill_the_next_starts_locked_where_the_arm_is(
    vendor: SimulatedA1X,
) -> None:
    mover = subprocess.Popen(
        [sys.executable, "-m", "tests.robot.simulated_a1x", str(vendor.config.domain_id)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        assert mover.stdout is not None and mover.stdout.readline() == "moving\n"
        with pytest.raises(DeviceError, match="another program publishes"):
            connect(vendor)
    finally:
        mover.send_signal(signal.SIGKILL)
        mover.communicate()
    rig = Rig(vendor)
    left = rig.arm.state()
    assert abs(left.joint_positions[0]) > 0.01  # not where it started
    assert rig.robot._governor.state is GovernorState.LOCKED
    with pytest.raises(RobotFault, match="locked"):
        rig.robot.act(FORWARD)
    CLOCK.sleep_until(CLOCK.now() + 0.2)
    settled = rig.arm.state()
    assert np.abs(settled.joint_velocities).max() < 0.01
    rig.robot.allow_motion()
    rig.robot.begin_episode()
    np.testing.assert_allclose(rig.robot._governor.target.joint_positions, settled.joint_positions, atol=1e-3)
    rig.robot.act(STAY)
    CLOCK.sleep_until(CLOCK.now() + 0.1)
    np.testing.assert_allclose(rig.arm.state().joint_positions, settled.joint_positions, atol=2e-3)
    rig.env.close()


def test_refuses_without_feedback() -> None:
    with pytest.raises(DeviceError, match=r"nothing came on /hdas/feedback_arm .*ROS_DOMAIN_ID"):
        connect(SimulatedA1X(free_domain() + 2, connect_timeout=0.3))


def test_refuses_where_nobody_subscribes() -> None:
    with (
        SimulatedA1X(free_domain() + 3, "--without-tracker", connect_timeout=2.0) as vendor,
        pytest.raises(
            DeviceError, match=r"nobody subscribes to /motion_target/target_joint_state_arm .*launch"
        ),
    ):
        connect(vendor)


def test_the_vendor_is_told_no_more_than_the_speed_of_the_cell(vendor: SimulatedA1X) -> None:
    config = replace(vendor.config, max_joint_velocities=[3.0, 0.5, 3.0, 5.0, 5.0, 5.0])
    arm = A1XArm(config, CLOCK, max_joint_speed=0.6)
    arm.connect()
    topics = arm._topics
    assert topics is not None
    assert topics._config.max_joint_velocities == [0.6, 0.5, 0.6, 0.6, 0.6, 0.6]
    arm.close()


def test_refuses_joints_of_other_names(vendor: SimulatedA1X) -> None:
    config = replace(vendor.config, joint_names=[f"joint{i}" for i in range(6)])
    with pytest.raises(DeviceError, match=r"carries joints \['arm_joint1'.*robot.a1x.joint_names"):
        A1XArm(config, CLOCK, max_joint_speed=1.0).connect()
