"""The governor's states: locked at first, stopped until acknowledged, held in silence, every change told."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from robot.feedback import Fault
from robot.interfaces import RobotFault
from robot.safety import GovernorState, GovernorTransition, Reason, SafetyGovernor
from robot.types import Array
from tests.robot.safety_rig import HOME, KINEMATICS, SCALE, Rig, action, config, measured


def test_starts_locked_and_refuses_commands() -> None:
    governor = SafetyGovernor(config(), KINEMATICS)
    assert governor.state is GovernorState.LOCKED
    with pytest.raises(RobotFault, match="locked"):
        governor.command(action(), SCALE, measured(HOME, 0.0), 0.0)
    with pytest.raises(RobotFault, match="locked"):
        _ = governor.target
    assert governor.watch(measured(HOME, 9.0), 9.0) is GovernorState.LOCKED


def test_unlock_seeds_the_target_with_the_measured_joints() -> None:
    joints = HOME + 0.02
    rig = Rig(joints)
    pose, target = rig.governor.target
    assert np.array_equal(target, joints)
    np.testing.assert_allclose(pose.position, KINEMATICS.forward(joints).position)


@pytest.mark.parametrize(
    ("joints", "time", "name"),
    [
        (np.zeros(6), 1.0, "outside_box"),
        (HOME + 1.3 * np.eye(6)[5], 1.0, "outside_orientation"),
        (HOME + 2.0 * np.eye(6)[2], 1.0, "joint_limits"),
        (HOME, 0.85, "stale_feedback"),
        (HOME, 2.0, "clock_mismatch"),
        (HOME * math.nan, 1.0, "nan_feedback"),
        (np.append(HOME, 0.0), 1.0, "malformed_feedback"),
    ],
)
def test_unlock_refuses(joints: Array, time: float, name: str) -> None:
    governor = SafetyGovernor(config(), KINEMATICS)
    with pytest.raises(RobotFault) as caught:
        governor.unlock(measured(joints, time), 1.0)
    assert caught.value.name == name
    assert governor.state is GovernorState.LOCKED


def test_a_refused_unlock_locks_a_ready_governor() -> None:
    rig = Rig()
    with pytest.raises(RobotFault, match="outside_box"):
        rig.governor.unlock(measured(np.zeros(6), 0.1), 0.1)
    assert rig.governor.state is GovernorState.LOCKED


def test_stays_stopped_after_a_fault_until_acknowledged_then_needs_unlock() -> None:
    rig = Rig()
    rig.fault(action(x=2.0))
    for _ in range(3):
        assert rig.fault(action()).name == "faulted"
    state = measured(HOME, rig.time)
    with pytest.raises(RobotFault, match="bad_action"):
        rig.governor.unlock(state, rig.time)
    with pytest.raises(RobotFault, match="bad_action"):
        rig.governor.follow(HOME, state, rig.time)
    rig.governor.lock()
    assert rig.governor.watch(state, rig.time) is GovernorState.FAULTED
    with pytest.raises(RobotFault, match="stale_feedback"):
        rig.governor.acknowledge(measured(HOME, rig.time - 1.0), rig.time)
    assert rig.governor.state is GovernorState.FAULTED
    rig.governor.acknowledge(state, rig.time)
    assert rig.governor.state is GovernorState.LOCKED
    assert rig.fault(action()).name == "locked"
    rig.governor.unlock(measured(rig.joints, rig.time), rig.time)
    assert rig.step(action(x=1.0)).executed_action[0] == pytest.approx(1.0)


def test_every_change_of_state_is_told_with_its_reason() -> None:
    rig = Rig()
    rig.step(action())
    rig.fault(action(), timestamp=rig.time - 0.9)
    rig.governor.acknowledge(measured(HOME, rig.time), rig.time)
    rig.governor.lock()
    told = [(t.before.value, t.after.value, str(t.reason)) for t in rig.seen]
    assert told == [
        ("locked", "ready", "unlock"),
        ("ready", "faulted", "stale_feedback"),
        ("faulted", "locked", "acknowledge"),
    ]
    assert rig.seen[1].value == pytest.approx(1.0) and rig.seen[1].time == pytest.approx(0.2)


def test_unlock_may_set_the_held_gripper_opening() -> None:
    rig = Rig()
    rig.governor.unlock(measured(HOME, 0.0), 0.0, gripper_opening=0.2)
    command = rig.step(action())
    assert (command.gripper_opening, rig.governor.gripper_command) == (0.2, -1.0)
    command = rig.step(action(gripper=-1.0))
    assert command.gripper_opening == 0.0 and command.gripper_changed


def test_policy_silence_holds_at_the_measured_arm_then_faults() -> None:
    rig = Rig(follow=0.5)
    rig.step(action(x=1.0))
    governor, start = rig.governor, rig.time
    watch: Callable[[float], GovernorState] = lambda t: governor.watch(measured(rig.joints, t), t)  # noqa: E731
    assert watch(start + 0.29) is GovernorState.READY
    assert watch(start + 0.31) is GovernorState.HOLDING
    assert np.array_equal(governor.target.joint_positions, rig.joints)
    rig.time = start + 0.5
    rig.step(action())
    assert governor.state is GovernorState.READY
    watch(rig.time + 0.4)
    with pytest.raises(RobotFault, match="policy_silent"):
        watch(rig.time + 0.76)
    assert governor.state is GovernorState.FAULTED


def test_hold_restarts_from_the_measured_arm() -> None:
    rig = Rig(follow=0.5)
    rig.step(action(x=1.0))
    kept = rig.governor.target.joint_positions
    rig.governor.hold(rig.state(rig.time, joint_positions=rig.joints * math.nan), rig.time)
    assert np.array_equal(rig.governor.target.joint_positions, kept)  # the driver holds at its command
    rig.hold()
    assert rig.governor.state is GovernorState.HOLDING
    assert np.array_equal(rig.governor.target.joint_positions, rig.joints)
    assert rig.step(action(x=1.0)).executed_action[0] == pytest.approx(1.0)
    rig.governor.lock()
    rig.hold()
    assert rig.governor.state is GovernorState.LOCKED


def test_a_fault_of_the_caller_stops_it_and_the_first_one_stays() -> None:
    rig = Rig()
    rig.governor.trip(Fault(Reason.STALE_FRAME, math.nan, "wrist"), 0.1)
    rig.governor.trip(Fault(Reason.CAMERA_LOST, math.nan, "side"), 0.2)
    with pytest.raises(RobotFault, match="stopped by stale_frame"):
        rig.step(action())


def test_a_listener_that_fails_stops_no_stop(caplog: pytest.LogCaptureFixture) -> None:
    def full(_transition: GovernorTransition) -> None:
        raise OSError(28, "No space left on device")

    governor = SafetyGovernor(config(), KINEMATICS, on_transition=full)
    governor.unlock(measured(HOME, 0.0), 0.0)
    with pytest.raises(RobotFault, match="bad_action"):
        governor.command(action(x=2.0), SCALE, measured(HOME, 0.1), 0.1)
    assert governor.state is GovernorState.FAULTED and "No space left" in caplog.text
