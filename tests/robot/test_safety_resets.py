"""The governor's resets: planned within the caps, followed while commands are locked out."""

import numpy as np
import pytest

from robot.interfaces import RobotFault
from robot.safety import GovernorState, SafetyGovernor
from tests.robot.safety_rig import HOME, KINEMATICS, PERIOD, SCALE, Rig, action, config, measured


def test_reset_plan_respects_speed_and_acceleration_and_arrives() -> None:
    governor = SafetyGovernor(config(), KINEMATICS)
    for goal in (HOME, HOME * 0.001, HOME + 0.01):
        plan = governor.plan_reset(np.array([0.5, 1.6, -1.5, 1.2, 0.1, 0.0]), goal)
        path = np.vstack(([0.5, 1.6, -1.5, 1.2, 0.1, 0.0], plan))
        path = np.vstack((path[:1], path, path[-1:]))  # at rest before and after
        assert np.array_equal(plan[-1], goal)
        assert np.abs(np.diff(path, axis=0)).max() <= 0.6 * PERIOD + 1e-9
        assert np.abs(np.diff(path, n=2, axis=0)).max() <= 1.0 * PERIOD**2 + 1e-9
    assert np.array_equal(governor.plan_reset(HOME, HOME), HOME[None])


def test_reset_plan_refuses_a_way_through_the_table_and_a_goal_beyond_the_limits() -> None:
    governor = SafetyGovernor(config(), KINEMATICS)
    with pytest.raises(RobotFault, match=r"reset_path.*joint limits"):
        governor.plan_reset(HOME, HOME + 3.0 * np.eye(6)[2])
    start, goal = np.array([-2.0, 3.0, -0.4, 0.9, 0.0, 0.0]), np.array([2.0, 2.8, -2.4, 0.1, 0.0, 0.0])
    heights = [KINEMATICS.forward(start + share * (goal - start)).position[2] for share in (0.0, 0.5, 1.0)]
    assert heights[0] > 0.1 and heights[1] < -0.1 and heights[2] > 0.1
    with pytest.raises(RobotFault, match=r"reset_path.*below"):
        governor.plan_reset(start, goal)


def test_a_reset_from_the_folded_arm_ends_in_unlock() -> None:
    governor = SafetyGovernor(config(), KINEMATICS)
    joints, time = np.zeros(6), 0.0
    for waypoint in governor.plan_reset(joints, HOME):
        joints = waypoint
        assert governor.follow(waypoint, measured(joints, time), time) is not None
        time += PERIOD
    assert governor.state is GovernorState.RESETTING
    governor.unlock(measured(joints, time), time)
    assert governor.state is GovernorState.READY


def test_follow_locks_out_commands_and_stops_a_jump() -> None:
    rig = Rig()
    rig.governor.follow(HOME + 0.05, measured(HOME, 0.1), 0.1)
    assert rig.governor.state is GovernorState.RESETTING
    with pytest.raises(RobotFault, match="locked"):
        rig.governor.command(action(), SCALE, measured(HOME, 0.1), 0.1)
    with pytest.raises(RobotFault, match="reset_step"):
        rig.governor.follow(HOME + 0.2, measured(HOME + 0.05, 0.2), 0.2)
    assert rig.governor.state is GovernorState.FAULTED


def test_the_watchdog_judges_the_feedback_of_a_reset() -> None:
    rig = Rig()
    rig.governor.follow(HOME + 0.05, measured(HOME, 0.1), 0.1)
    assert rig.governor.watch(measured(HOME, 0.1), 0.19) is GovernorState.RESETTING
    assert rig.governor.watch(measured(HOME, 0.1), 0.21) is GovernorState.LOCKED  # old: the arm holds
    rig.governor.follow(HOME + 0.05, measured(HOME, 0.3), 0.3)
    pushing = {"joint_efforts": np.full(6, 100.0)}
    for time in (0.32, 0.34):
        rig.governor.watch(measured(HOME, time, **pushing), time)
    with pytest.raises(RobotFault, match="effort"):
        rig.governor.watch(measured(HOME, 0.36, **pushing), 0.36)


def test_a_reset_does_not_go_on_with_old_feedback() -> None:
    rig = Rig()
    assert rig.governor.follow(HOME + 0.05, measured(HOME, 0.1), 0.21) is None
    assert rig.governor.state is GovernorState.LOCKED


def test_a_hold_gives_a_reset_up() -> None:
    rig = Rig()
    rig.governor.follow(HOME + 0.05, measured(HOME, 0.1), 0.1)
    rig.governor.hold(measured(HOME, 0.1), 0.1)
    assert rig.governor.state is GovernorState.LOCKED
