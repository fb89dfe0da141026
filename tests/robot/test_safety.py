"""The governor under random actions, poses, delays and faults: inside the limits or stopped, and honest."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot.geometry import DeltaFrame, Pose, apply_delta, matrix_to_rotvec
from robot.interfaces import ArmState, RobotFault
from robot.kinematics import IKResult, Kinematics
from robot.safety import (
    ActionScale,
    ClipReason,
    FeedbackLimits,
    GovernedCommand,
    GovernorState,
    GovernorTransition,
    SafetyConfig,
    SafetyGovernor,
)
from robot.types import Array

HOME = np.array([0.0, 1.75, -1.45, 1.27, 0.0, 0.0])  # tool down at (0.243, 0, 0.200) m
SCALE = ActionScale(position=0.005, rotation=0.03)
KINEMATICS = Kinematics()
PERIOD = 0.1
UNHURRIED = settings(deadline=None, max_examples=60)


def config(**changes: object) -> SafetyConfig:
    fields: dict[str, object] = {
        "workspace_lower": np.array([0.18, -0.20, 0.02]),
        "workspace_upper": np.array([0.36, 0.20, 0.25]),
    }
    return SafetyConfig(**(fields | changes))  # type: ignore[arg-type]


def measured(joints: Array, time: float, **changes: object) -> ArmState:
    # The efforts tell that the feedback is alive.
    state = ArmState(joints.copy(), np.zeros(6), np.full(6, 1e-6 * time), 1.0, time)
    return dataclasses.replace(state, **changes)  # type: ignore[arg-type]


def action(**entries: float) -> Array:
    names = ("x", "y", "z", "rx", "ry", "rz", "gripper")
    return np.array([entries.get(name, 0.0) for name in names])


class Rig:
    """A governor, its clock, and an arm that reaches a share `follow` of the way to its target per step."""

    def __init__(self, joints: Array = HOME, follow: float = 1.0, **changes: object) -> None:
        self.config = config(**changes)
        self.seen: list[GovernorTransition] = []
        self.governor = SafetyGovernor(self.config, KINEMATICS, on_transition=self.seen.append)
        self.joints = joints.copy()
        self.follow = follow
        self.time = 0.0
        self.governor.unlock(measured(self.joints, 0.0), 0.0)

    def step(
        self,
        wish: Array,
        scale: ActionScale = SCALE,
        frame: DeltaFrame = DeltaFrame.BASE,
        dt: float = PERIOD,
        **changes: object,
    ) -> GovernedCommand:
        self.time += dt
        state = measured(self.joints, self.time, **changes)
        command = self.governor.command(wish, scale, state, self.time, frame=frame)
        self.joints += self.follow * (command.joint_positions - self.joints)
        return command

    def fault(self, wish: Array, **changes: object) -> RobotFault:
        with pytest.raises(RobotFault) as caught:
            self.step(wish, **changes)  # type: ignore[arg-type]
        return caught.value


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


@UNHURRIED
@given(
    field=st.sampled_from(
        ["action", "joint_positions", "joint_velocities", "joint_efforts", "gripper_opening", "timestamp"]
    ),
    entry=st.integers(0, 5),
    bad=st.sampled_from([math.nan, math.inf, -math.inf]),
    good_steps=st.integers(0, 3),
)
def test_nan_anywhere_is_a_fault_and_never_a_motion(
    field: str, entry: int, bad: float, good_steps: int
) -> None:
    rig = Rig()
    for _ in range(good_steps):
        rig.step(action(x=1.0))
    joints_before = rig.governor.target.joint_positions
    wish = action(x=1.0)
    changes: dict[str, object] = {}
    if field == "action":
        wish[entry] = bad
    elif field in ("gripper_opening", "timestamp"):
        changes[field] = bad
    else:
        value = rig.joints.copy() if field == "joint_positions" else np.zeros(6)
        value[entry] = bad
        changes[field] = value
    rig.fault(wish, **changes)
    assert rig.governor.state is GovernorState.FAULTED
    assert np.array_equal(rig.governor.target.joint_positions, joints_before)
    assert rig.fault(action(x=1.0)).name == "faulted"


def test_starts_locked_and_refuses_commands() -> None:
    governor = SafetyGovernor(config(), KINEMATICS)
    assert governor.state is GovernorState.LOCKED
    with pytest.raises(RobotFault, match="locked"):
        governor.command(action(), SCALE, measured(HOME, 0.0), 0.0)
    with pytest.raises(RobotFault, match="locked"):
        _ = governor.target
    assert governor.watch(measured(HOME, 9.0), 9.0) is GovernorState.LOCKED


def test_workspace_has_no_default() -> None:
    with pytest.raises(TypeError, match="workspace"):
        SafetyConfig()  # type: ignore[call-arg]


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


def test_unlock_may_set_the_held_gripper_opening() -> None:
    rig = Rig()
    rig.governor.unlock(measured(HOME, 0.0), 0.0, gripper_opening=0.2)
    command = rig.step(action())
    assert (command.gripper_opening, rig.governor.gripper_command) == (0.2, -1.0)
    command = rig.step(action(gripper=-1.0))
    assert command.gripper_opening == 0.0 and command.gripper_changed


def test_late_feedback_holds_and_later_faults() -> None:
    rig = Rig()
    moved = rig.step(action(x=1.0))
    held = rig.step(action(x=1.0), timestamp=rig.time - 0.05)
    assert rig.governor.state is GovernorState.HOLDING
    assert held.clipped == {ClipReason.HOLD}
    assert np.array_equal(held.joint_positions, moved.joint_positions)
    assert rig.step(action(x=1.0)).executed_action[0] == pytest.approx(1.0)
    assert rig.governor.state is GovernorState.READY
    assert rig.fault(action(), timestamp=rig.time - 0.2).name == "stale_feedback"


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
    rig.governor.hold(measured(rig.joints * math.nan, rig.time), rig.time)
    assert np.array_equal(rig.governor.target.joint_positions, kept)
    rig.governor.hold(measured(rig.joints, rig.time), rig.time)
    assert rig.governor.state is GovernorState.HOLDING
    assert np.array_equal(rig.governor.target.joint_positions, rig.joints)
    assert rig.step(action(x=1.0)).executed_action[0] == pytest.approx(1.0)
    rig.governor.lock()
    rig.governor.hold(measured(rig.joints, rig.time), rig.time)
    assert rig.governor.state is GovernorState.LOCKED


def test_a_hold_does_not_count_as_commanded_motion() -> None:
    rig = Rig(follow=0.5)
    rig.step(action(x=1.0), joint_efforts=np.zeros(6))
    resting = measured(rig.joints, rig.time + 0.4, joint_efforts=np.zeros(6))
    assert rig.governor.watch(resting, rig.time + 0.4) is GovernorState.HOLDING
    rig.time += 0.4
    for _ in range(10):
        rig.step(action(), joint_efforts=np.zeros(6))


def test_watch_checks_the_feedback_too() -> None:
    rig = Rig()
    assert rig.governor.watch(measured(HOME, 0.0), 0.15) is GovernorState.HOLDING
    with pytest.raises(RobotFault, match="stale_feedback"):
        rig.governor.watch(measured(HOME, 0.0), 0.26)


def test_frozen_feedback_is_a_fault_only_while_motion_is_commanded() -> None:
    still = Rig(follow=0.0)
    for _ in range(20):
        still.step(action(), joint_efforts=np.zeros(6))
    moving = Rig(follow=0.0)
    with pytest.raises(RobotFault, match="frozen_feedback"):
        for _ in range(7):
            moving.step(action(z=1.0), joint_efforts=np.zeros(6))
    assert 0.5 <= moving.seen[-1].value < 0.65

    alive = Rig(follow=0.0)
    for _ in range(10):
        alive.step(action(z=1.0))


@pytest.mark.parametrize(("pattern", "faults"), [((1, 1, 1), True), ((1, 1, 0, 1, 1), False)])
def test_effort_above_its_limit_for_three_samples(pattern: tuple[int, ...], faults: bool) -> None:
    limits = FeedbackLimits(effort_limits=(10, 10, 10, 5, 5, 5))
    rig = Rig(feedback=limits)
    stopped = False
    for high in pattern:
        try:
            rig.step(action(), joint_efforts=np.array([0, 0, 0, -5.5 * high, 0, 0]))
        except RobotFault as fault:
            assert fault.name == "effort" and "joint 4" in fault.detail
            stopped = True
    assert stopped == faults


def test_rereading_one_sample_counts_once() -> None:
    rig = Rig(feedback=FeedbackLimits(effort_limits=(10, 10, 10, 5, 5, 5)))
    for _ in range(6):
        rig.step(action(), dt=0.01, timestamp=0.01, joint_efforts=np.full(6, 6.0))


def test_lag_of_a_slow_joint_is_a_fault() -> None:
    pushed = np.array([0.0, 0.15, 0.0, 0.0, 0.0, 0.0])
    rig = Rig(follow=0.0)
    rig.joints += pushed
    with pytest.raises(RobotFault, match=r"lag.*joint 2"):
        for _ in range(4):
            rig.step(action())
    # Moving, or standing still only now and then: it follows.
    for speeds in ((0.5, 0.5), (0.0, 0.5)):
        moving = Rig(follow=0.0)
        moving.joints += pushed
        for i in range(10):
            moving.step(action(), joint_velocities=np.full(6, speeds[i % 2]))


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
        joints = governor.follow(waypoint, measured(joints, time), time)
        time += PERIOD
    assert governor.state is GovernorState.LOCKED
    governor.unlock(measured(joints, time), time)
    assert governor.state is GovernorState.READY


def test_follow_locks_out_commands_and_stops_a_jump() -> None:
    rig = Rig()
    rig.governor.follow(HOME + 0.05, measured(HOME, 0.1), 0.1)
    assert rig.governor.state is GovernorState.LOCKED
    with pytest.raises(RobotFault, match="reset_step"):
        rig.governor.follow(HOME + 0.2, measured(HOME + 0.05, 0.2), 0.2)
    assert rig.governor.state is GovernorState.FAULTED


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workspace_lower": np.array([0.4, -0.2, 0.0])}, "workspace_lower < workspace_upper"),
        ({"workspace_lower": np.array([np.nan, -0.2, 0.0])}, "workspace_lower"),
        ({"reference_rotation": np.ones((3, 3))}, "rotation matrix"),
        ({"rotation_limit": np.array([2.0, 2.0, 0.1])}, "rotation_limit"),
        ({"max_joint_speed": 0.0}, "max_joint_speed"),
        ({"silence_fault": 0.1}, "silence_fault"),
        ({"leash_joint": 0.3}, "leash_joint"),
    ],
)
def test_bad_configuration_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**changes)


def test_bad_scale_and_feedback_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="ActionScale"):
        ActionScale(position=5.0, rotation=0.0)
    with pytest.raises(ValueError, match="max_age"):
        FeedbackLimits(max_age=0.05)
    with pytest.raises(ValueError, match="effort_limits"):
        FeedbackLimits(effort_limits=(1.0, 2.0))
