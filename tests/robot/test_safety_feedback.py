"""The governor's feedback: bad, late, frozen, lagging or strained, it holds or stops the arm."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot.interfaces import RobotFault
from robot.safety import ClipReason, FeedbackLimits, GovernorState
from tests.robot.safety_rig import HOME, UNHURRIED, Rig, action, measured


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


def test_late_feedback_holds_and_later_faults() -> None:
    rig = Rig()
    moved = rig.step(action(x=1.0))
    held = rig.step(action(x=1.0), timestamp=rig.time - 0.05)
    assert rig.governor.state is GovernorState.HOLDING
    assert held.clipped == {ClipReason.HOLD}
    assert held.joint_positions is None  # nothing is sent; the arm holds
    assert np.array_equal(held.target_pose.position, moved.target_pose.position)
    assert rig.step(action(x=1.0)).executed_action[0] == pytest.approx(1.0)
    assert rig.governor.state is GovernorState.READY
    assert rig.fault(action(), timestamp=rig.time - 0.2).name == "stale_feedback"


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


def test_a_hold_does_not_count_as_commanded_motion() -> None:
    rig = Rig(follow=0.5)
    rig.step(action(x=1.0), joint_efforts=np.zeros(6))
    resting = measured(rig.joints, rig.time + 0.4, joint_efforts=np.zeros(6))
    assert rig.governor.watch(resting, rig.time + 0.4) is GovernorState.HOLDING
    rig.time += 0.4
    for _ in range(10):
        rig.step(action(), joint_efforts=np.zeros(6))


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
