"""The governor's limits under random actions, poses and delays: every command inside them, and honestly reported."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot.geometry import DeltaFrame, Pose, apply_delta, matrix_to_rotvec
from robot.interfaces import RobotFault
from robot.kinematics import IKResult, Kinematics
from robot.safety import ActionScale, ClipReason, FeedbackLimits, GovernedCommand
from robot.types import Array
from tests.robot.safety_rig import HOME, KINEMATICS, PERIOD, UNHURRIED, Rig, action


def entries(size: float) -> st.SearchStrategy[Array]:
    return st.lists(st.floats(-size, size), min_size=7, max_size=7).map(np.array)


def assert_within_limits(rig: Rig, before: Pose, joints_before: Array, command: GovernedCommand) -> None:
    limits = rig.config
    position = command.target_pose.position
    assert (position >= limits.workspace_lower - 1e-12).all()
    assert (position <= limits.workspace_upper + 1e-12).all()
    turn = matrix_to_rotvec(command.target_pose.rotation @ limits.reference_rotation.T)
    assert (np.abs(turn) <= limits.rotation_limit + 1e-9).all()
    assert np.linalg.norm(position - before.position) <= limits.max_position_step + 1e-9
    angle = np.linalg.norm(matrix_to_rotvec(command.target_pose.rotation @ before.rotation.T))
    assert angle <= limits.max_rotation_step + 1e-9
    if command.joint_positions is None:
        assert command.clipped == {ClipReason.HOLD}
        return
    step = np.abs(command.joint_positions - joints_before).max()
    assert step <= limits.max_joint_speed * PERIOD * (1 + 1e-6)
    joint_limits = KINEMATICS.joint_limits
    assert (command.joint_positions >= joint_limits[:, 0]).all()
    assert (command.joint_positions <= joint_limits[:, 1]).all()
    real = KINEMATICS.forward(command.joint_positions)
    assert np.linalg.norm(real.position - position) <= limits.ik_position_tolerance


@UNHURRIED
@given(
    actions=st.lists(entries(1.0), min_size=1, max_size=25),
    bias=entries(0.8),
    scale=st.builds(
        ActionScale, st.sampled_from([0.0, 0.002, 0.01, 0.03]), st.sampled_from([0.0, 0.05, 0.3])
    ),
    frame=st.sampled_from(DeltaFrame),
    follow=st.sampled_from([0.2, 0.7, 1.0]),
    delays=st.lists(st.floats(0.0, 0.2), min_size=25, max_size=25),
    shove=st.floats(-0.05, 0.05),
    room=st.floats(0.001, 0.05),
    window=st.floats(0.01, 1.2),
)
def test_every_command_is_inside_the_limits_and_honestly_reported(
    actions: list[Array],
    bias: Array,
    scale: ActionScale,
    frame: DeltaFrame,
    follow: float,
    delays: list[float],
    shove: float,
    room: float,
    window: float,
) -> None:
    rig = Rig(
        follow=follow,
        feedback=FeedbackLimits(lag=10.0),
        workspace_lower=KINEMATICS.forward(HOME).position - room,
        workspace_upper=KINEMATICS.forward(HOME).position + room,
        rotation_limit=np.full(3, window),
    )
    for i, (wish, delay) in enumerate(zip(actions, delays, strict=False)):
        before, joints_before = rig.governor.target
        wish = np.clip(wish * 0.5 + bias, -1.0, 1.0)
        command = rig.step(wish, scale, frame, timestamp=rig.time + PERIOD - delay)
        assert_within_limits(rig, before, joints_before, command)
        assert command.executed_action.dtype == np.float32
        assert np.abs(command.executed_action).max() <= 1.0
        units = np.repeat([scale.position, scale.rotation], 3)
        again = apply_delta(before, command.executed_action[:6] * units, frame)
        np.testing.assert_allclose(again.position, command.target_pose.position, atol=1e-6)
        np.testing.assert_allclose(again.rotation, command.target_pose.rotation, atol=1e-6)
        if not command.clipped:
            np.testing.assert_allclose(command.executed_action[:6] * units, wish[:6] * units, atol=1e-6)
        if delay > 0.1 + 1e-9:
            assert command.clipped == {ClipReason.HOLD} and not command.executed_action.any()
        if i % 5 == 4:
            rig.joints[:] += shove


def test_free_motion_executes_exactly_what_was_asked() -> None:
    rig = Rig()
    start = rig.governor.target.pose
    wish = action(x=0.5, y=-0.25, z=-1.0, rx=0.1, ry=-0.2, rz=0.3)
    command = rig.step(wish)
    assert command.clipped == frozenset()
    np.testing.assert_allclose(command.executed_action, wish, atol=1e-6)
    np.testing.assert_allclose(command.target_pose.position - start.position, wish[:3] * 0.005, atol=1e-12)


def test_tool_frame_moves_along_the_tool() -> None:
    rig = Rig()
    start = rig.governor.target.pose
    command = rig.step(action(x=1.0), frame=DeltaFrame.TOOL)
    np.testing.assert_allclose(
        command.target_pose.position - start.position, 0.005 * start.rotation[:, 0], atol=1e-12
    )
    assert np.array_equal(command.target_pose.rotation, start.rotation)


def test_box_stops_the_target_at_the_wall_and_lets_it_slide() -> None:
    rig = Rig(workspace_upper=np.array([0.36, 0.012, 0.25]))
    commands = [rig.step(action(x=0.2, y=1.0)) for _ in range(4)]
    assert [ClipReason.BOX in command.clipped for command in commands] == [False, False, True, True]
    command = commands[-1]
    assert command.target_pose.position[1] == pytest.approx(0.012, abs=1e-12)
    np.testing.assert_allclose(command.executed_action[:2], [0.2, 0.0], atol=1e-6)


def test_orientation_window_stops_the_rotation_only() -> None:
    rig = Rig(rotation_limit=np.array([0.1, 0.1, 0.1]))
    for _ in range(5):
        command = rig.step(action(y=0.3, rz=1.0))
    assert command.clipped == {ClipReason.ORIENTATION}
    np.testing.assert_allclose(command.executed_action[[1, 5]], [0.3, 0.0], atol=1e-3)


def test_step_cap_shortens_a_large_step() -> None:
    rig = Rig()
    before = rig.governor.target.pose
    command = rig.step(action(y=1.0), ActionScale(0.05, 0.0))
    assert ClipReason.STEP in command.clipped
    assert command.target_pose.position[1] - before.position[1] == pytest.approx(0.01)
    assert command.executed_action[1] == pytest.approx(0.2)


def test_joint_speed_cap_shortens_the_step_and_follows_the_clock() -> None:
    rig = Rig(max_joint_speed=0.1)
    for dt in (PERIOD, 0.02, 3.0):
        before = rig.governor.target.joint_positions
        command = rig.step(action(y=1.0), dt=dt)
        assert ClipReason.SPEED in command.clipped
        step = np.abs(command.joint_positions - before).max()
        # Late commands earn no extra speed, early ones get less.
        assert 0.9 * min(dt, PERIOD) * 0.1 < step <= min(dt, PERIOD) * 0.1 + 1e-9
        assert 0.0 < command.executed_action[1] < 1.0


def test_the_target_does_not_wind_up_against_a_stuck_arm() -> None:
    rig = Rig(follow=0.0)
    for _ in range(30):
        command = rig.step(action(z=-1.0))
    lead = np.linalg.norm(command.target_pose.position - KINEMATICS.forward(HOME).position)
    assert 0.015 < lead <= 0.03 + 1e-9
    assert np.abs(command.joint_positions - HOME).max() <= math.radians(6.0) + 1e-9
    assert ClipReason.LEASH in command.clipped and not command.executed_action.any()
    # The way back is free at once.
    assert rig.step(action(z=1.0)).executed_action[2] == pytest.approx(1.0)


def test_the_target_is_pulled_after_a_displaced_arm() -> None:
    rig = Rig(follow=0.0)
    away = apply_delta(rig.governor.target.pose, np.array([0.0, 0.05, 0.0, 0, 0, 0]), DeltaFrame.BASE)
    rig.joints = KINEMATICS.inverse(away, HOME).joint_positions
    with pytest.raises(RobotFault, match="lag"):
        for _ in range(4):
            command = rig.step(action())
            assert ClipReason.LEASH in command.clipped and 0.0 < command.executed_action[1] <= 1.0


def test_the_leash_does_not_move_what_the_action_scale_locks() -> None:
    rig = Rig(follow=0.0)
    away = apply_delta(rig.governor.target.pose, np.array([0.0, 0.04, 0.0, 0, 0, 0]), DeltaFrame.BASE)
    rig.joints = KINEMATICS.inverse(away, HOME).joint_positions
    command = rig.step(action(rz=0.1), ActionScale(0.0, 0.03))
    np.testing.assert_allclose(command.target_pose.position, KINEMATICS.forward(HOME).position, atol=1e-12)


def test_unreachable_targets_are_refused() -> None:
    rig = Rig(
        workspace_lower=np.array([0.1, -0.5, 0.0]),
        workspace_upper=np.array([0.9, 0.5, 0.6]),
    )
    for _ in range(100):
        before = rig.governor.target
        command = rig.step(action(x=1.0))
        if ClipReason.IK in command.clipped:
            break
    assert ClipReason.IK in command.clipped
    assert not command.executed_action[:6].any()
    assert np.array_equal(command.joint_positions, before.joint_positions)


@pytest.mark.parametrize("limit", [{"ik_position_tolerance": 1e-12}, {"ik_rotation_tolerance": 1e-12}])
def test_a_residual_of_the_inverse_kinematics_is_refused(limit: dict[str, float]) -> None:
    rig = Rig(**limit)
    command = rig.step(action(y=1.0))
    assert command.clipped == {ClipReason.IK}
    assert np.array_equal(command.joint_positions, HOME)


def test_a_jump_to_another_branch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    monkeypatch.setattr(Kinematics, "inverse", lambda *_: IKResult(HOME + 0.5, 0.0, 0.0, 1, True))
    command = rig.step(action(y=1.0))
    assert command.clipped == {ClipReason.IK}
    assert np.array_equal(command.joint_positions, HOME)


def test_a_step_that_turns_the_joints_too_far_is_shortened() -> None:
    command = Rig(max_ik_step=0.006).step(action(y=1.0))
    assert ClipReason.IK in command.clipped
    assert 0.1 < command.executed_action[1] < 0.5
    assert np.abs(command.joint_positions - HOME).max() <= 0.006


def test_no_policy_is_trapped_near_full_reach() -> None:
    # Here 35 mm back and down turn the elbow by 0.34 rad; each of these steps used to be refused.
    stretched = np.array([-0.1413778, 2.32354274, -2.15092752, 1.49336573, -0.11777248, 0.18011706])
    rig = Rig(stretched, leash_position=0.05, leash_joint=0.2, max_position_step=0.04, max_joint_speed=2.0,
              feedback=FeedbackLimits(lag=0.8))  # fmt: skip
    heights = [
        rig.step(action(x=-1.0, y=1.0, z=-1.0), ActionScale(0.02, 0.08)).target_pose.position[2]
        for _ in range(4)
    ]
    assert heights[-1] < heights[0] - 0.03


def test_gripper_holds_between_thresholds_and_toggles_slowly() -> None:
    rig = Rig()
    assert rig.governor.gripper_command == 1.0
    told = []
    for wish in (0.49, -0.49, 1.0, -0.5, 0.0, 1.0, 1.0, 1.0, 1.0):
        command = rig.step(action(gripper=wish))
        told.append(
            (
                command.executed_action[6],
                command.gripper_opening,
                command.gripper_changed,
                bool(command.clipped),
            )
        )
    assert told == [
        (0.0, 1.0, False, False),
        (0.0, 1.0, False, False),
        (1.0, 1.0, False, False),
        (-1.0, 0.0, True, False),
        (0.0, 0.0, False, False),
        (0.0, 0.0, False, True),  # 0.2 s after the toggle
        (0.0, 0.0, False, True),
        (1.0, 1.0, True, False),
        (1.0, 1.0, False, False),
    ]
    assert rig.governor.gripper_command == 1.0
