"""What an arm is really commanded once it was held, moved away or stopped: every motion starts there, in bounds."""

from __future__ import annotations

import numpy as np
import pytest

from robot.arms.ramp import MAX_DISPLACED, SETTLED
from robot.geometry import Pose
from robot.interfaces import DeviceError, RobotFault
from robot.safety import ClipReason, GovernorState
from tests.robot.safety_rig import HOME, PERIOD, Rig
from tests.robot.safety_rig import action as entries
from tests.robot.streamed_arm import CELL, KINEMATICS, RESET, Cell

SINK = np.array([0.4, 0.3, 0.0, 0.0, 0.0, 0.0])  # rad by which an arm without power sinks here
CAP = CELL.max_joint_speed * (1.0 + 1e-6)


def lose_power(cell: Cell, sink: np.ndarray = SINK) -> None:
    cell.arm.power = False
    cell.arm.joints = cell.arm.joints + sink


def test_power_that_returns_to_a_held_arm_moves_nothing_and_a_person_is_asked() -> None:
    cell = Cell()
    cell.act(entries(x=1.0))
    cell.robot.hold()
    lose_power(cell)
    cell.wait(0.5)
    assert cell.governor.state is GovernorState.FAULTED and cell.governor.fault is not None
    assert cell.governor.fault.reason == "lag"
    lying = cell.arm.joints.copy()
    cell.arm.power = True
    cell.wait(1.0)
    assert np.array_equal(cell.arm.joints, lying)
    with pytest.raises(RobotFault, match="lag"):
        cell.robot.act(entries(x=1.0))


def test_power_and_feedback_that_return_together_move_nothing() -> None:
    cell = Cell()
    cell.robot.hold()
    lose_power(cell)
    cell.arm.silent = True
    cell.wait(5.0)
    assert cell.governor.state is GovernorState.FAULTED
    lying = cell.arm.joints.copy()
    cell.arm.power, cell.arm.silent = True, False
    cell.wait(1.0)
    assert np.array_equal(cell.arm.joints, lying)


@pytest.mark.parametrize("state", [GovernorState.FAULTED, GovernorState.RESETTING])
def test_in_every_state_the_command_follows_an_arm_that_sinks(state: GovernorState) -> None:
    cell = Cell()
    if state is GovernorState.FAULTED:
        with pytest.raises(RobotFault, match="bad_action"):
            cell.robot.act(entries(x=2.0))
    else:
        cell.robot.move_joints(RESET)  # and now the operator is asked whether the scene is ready
        cell.wait(SETTLED + 0.1)
    assert cell.governor.state is state
    for _ in range(4):
        lose_power(cell, 0.25 * SINK)
        cell.wait(0.12)
    assert cell.governor.state is state and cell.gap() <= MAX_DISPLACED


def test_a_reset_after_the_consent_starts_where_the_arm_lies_and_keeps_to_its_speed() -> None:
    cell = Cell()
    cell.robot.hold()
    lose_power(cell)
    cell.wait(0.5)
    cell.arm.power = True
    cell.robot.allow_motion()
    since = len(cell.arm.commands)
    lying = cell.arm.joints.copy()
    for waypoint in cell.governor.plan_reset(cell.arm.state().origin, RESET):
        cell.arm.send_joints(cell.governor.follow(waypoint, cell.arm.state(), cell.clock.now()), PERIOD)
        cell.wait(PERIOD)
    assert cell.speed(since) <= CAP
    np.testing.assert_allclose(cell.arm.commands[since], lying, atol=0.01)
    np.testing.assert_allclose(cell.arm.joints, RESET, atol=1e-9)


def test_an_arm_that_is_not_where_it_is_sent_is_refused() -> None:
    rig = Rig()
    away = {"joint_positions": HOME + 0.3 * np.eye(6)[0]}
    with pytest.raises(RobotFault, match=r"lag.*where its driver sends it"):
        rig.governor.unlock(rig.state(rig.time, **away), rig.time)
    with pytest.raises(RobotFault, match=r"lag.*where its driver sends it"):
        rig.governor.follow(HOME, rig.state(rig.time, **away), rig.time)
    assert rig.governor.state is GovernorState.FAULTED
    with pytest.raises(RobotFault, match=r"lag.*where its driver sends it"):
        rig.governor.acknowledge(rig.state(rig.time, **away), rig.time)
    rig.governor.acknowledge(rig.state(rig.time), rig.time)
    assert rig.governor.state is GovernorState.LOCKED


def test_the_first_waypoint_is_bounded_from_where_the_driver_sends_the_arm() -> None:
    rig = Rig()
    rig.joints = HOME + 0.08 * np.eye(6)[0]
    with pytest.raises(
        RobotFault, match="reset_step"
    ):  # 0.07 rad from there in one period, 0.01 from the arm
        rig.governor.follow(HOME + 0.07 * np.eye(6)[0], rig.state(PERIOD), PERIOD)


def test_an_arm_that_holds_outside_the_box_goes_on_from_there_at_its_speed() -> None:
    cell = Cell()
    for _ in range(40):
        cell.act(entries(z=-1.0))
    pose = cell.governor.target.pose
    assert pose.position[2] == pytest.approx(0.06)
    # 2 mm below the floor of the box and 20 mm behind: within the leash.
    sagged = Pose(pose.position + np.array([0.0, -0.02, -0.002]), pose.rotation)
    cell.arm.joints = KINEMATICS.inverse(sagged, cell.arm.joints).joint_positions
    cell.robot.hold()
    held = cell.arm.ramp.goal()
    assert held is not None and np.array_equal(held, cell.governor.target.joint_positions)
    since = len(cell.arm.commands)
    executed = cell.act(entries(y=1.0))
    assert cell.speed(since) <= CAP
    moved = KINEMATICS.forward(cell.arm.joints).position - KINEMATICS.forward(held).position
    np.testing.assert_allclose(moved, executed[:3] * CELL.position_step, atol=3e-4)
    assert executed[1] > 0.5 and executed[2] > 0.2  # along, and back into the box
    position = cell.governor.target.pose.position
    assert position[2] == pytest.approx(0.06)


def test_an_arm_that_holds_far_outside_the_box_is_a_fault() -> None:
    rig = Rig(workspace_upper=KINEMATICS.forward(HOME).position + 0.001)
    rig.joints = rig.joints + 0.2 * np.eye(6)[0]  # 48 mm, more than the leash
    rig.hold()
    assert rig.fault(entries()).name == "outside_box"


def test_nothing_is_sent_on_old_feedback() -> None:
    cell = Cell()
    for _ in range(3):
        cell.act(entries(x=1.0))
    cell.robot.act(entries(x=1.0))
    cell.wait(0.04)
    cell.arm.silent = True
    cell.wait(0.12)
    assert cell.governor.state is GovernorState.HOLDING
    held = cell.arm.ramp.command()
    command = cell.robot.act(entries(x=1.0))
    assert command.clipped == {ClipReason.HOLD} and not command.executed_action.any()
    cell.clock.advance(0.05)
    assert np.array_equal(cell.arm.ramp.command(), held)  # type: ignore[arg-type]
    cell.arm.silent = False
    assert cell.act(entries(x=1.0))[0] == pytest.approx(1.0)


def test_old_feedback_at_a_command_holds_before_the_watchdog_looks() -> None:
    cell = Cell()
    cell.act(entries(x=1.0))
    cell.robot.act(entries(x=1.0))
    cell.arm.silent = True
    cell.clock.advance(0.05)
    cell.arm.stream.move(cell.governor.target.joint_positions, 0.2, cell.arm.joints)
    cell.clock.advance(0.1)
    underway = cell.arm.ramp.command()
    assert cell.robot.act(entries(x=1.0)).clipped == {ClipReason.HOLD}
    cell.clock.advance(0.1)
    np.testing.assert_allclose(cell.arm.ramp.command(), underway)


def test_a_target_that_was_never_sent_is_not_started_from(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell()
    sent = cell.arm.ramp.goal()

    def refuse(*_: object) -> None:
        raise DeviceError("nobody subscribes")

    with monkeypatch.context() as broken, pytest.raises(DeviceError):
        broken.setattr(cell.arm, "send_joints", refuse)
        cell.robot.act(entries(x=1.0))
    cell.robot.allow_motion()
    cell.robot.begin_episode()
    cell.wait(0.1)
    assert cell.robot.act(entries(x=1.0)).executed_action[0] == pytest.approx(1.0)
    assert sent is not None
    step = (
        KINEMATICS.forward(cell.governor.target.joint_positions).position - KINEMATICS.forward(sent).position
    )
    assert step[0] == pytest.approx(CELL.position_step, abs=2e-4)
