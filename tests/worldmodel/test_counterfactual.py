"""Properties of counterfactual actions: what may change, by how much, and that a seed gives it again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot.factory import make_task
from robot.frames import ProprioFrame, RelativeFrame
from robot.geometry import DeltaFrame, Pose, apply_delta, matrix_to_rotvec, rotvec_to_matrix
from robot.types import Clip
from worldmodel.counterfactual import (
    BranchKind,
    CounterfactualConfig,
    Motion,
    draw,
    make_branches,
    perturb,
    project,
)
from worldmodel.interface import WorldModelError

SPEC = make_task("insert").spec
CONFIG = CounterfactualConfig()

seeds = st.integers(0, 2**31 - 1)
frames = st.sampled_from(list(DeltaFrame))


def random_actions(seed: int, steps: int = 24) -> np.ndarray:
    """(T, 7): persistent motion, some entries inactive, the gripper at times."""
    rng = np.random.default_rng(seed)
    actions = np.clip(rng.normal(0, 0.4, (steps, 7)) + rng.normal(0, 0.4, 7), -1, 1)
    actions[:, :6] *= rng.random(6) < 0.7
    actions[:, 6] = rng.choice([-1.0, 0.0, 1.0], steps)
    return actions.astype(np.float32)


def random_start(seed: int, motion: Motion) -> Pose:
    """Anywhere in the box, at its very border too."""
    rng = np.random.default_rng([seed, 1])
    place = rng.choice([0.0, 1.0, rng.random()], 3)
    turn = rng.uniform(-1, 1, 3) * motion.rotation_limit * rng.choice([0.3, 1.0])
    return Pose(
        motion.lower + place * (motion.upper - motion.lower),
        rotvec_to_matrix(turn) @ motion.reference_rotation,
    )


def walk(motion: Motion, start: Pose, actions: np.ndarray) -> list[Pose]:
    """By the robot's own arithmetic."""
    units = np.repeat([motion.scale.position, motion.scale.rotation], 3)
    poses = [start]
    for action in actions[:, :6].astype(np.float64):
        poses.append(apply_delta(poses[-1], action * units, motion.frame))
    return poses


def clip_of(actions: np.ndarray, history: int = 0, valid: np.ndarray | None = None) -> Clip:
    count, steps = actions.shape[:2]
    return Clip(
        images={},
        proprio=np.zeros((count, steps + 1, 20), np.float32),
        action=actions,
        reward=np.zeros((count, steps), np.float32),
        terminated=np.zeros((count, steps), np.bool_),
        valid=np.ones((count, steps), np.bool_) if valid is None else valid,
        episode=np.zeros(count, np.int64),
        step=np.zeros(count, np.int64),
        history=history,
    )


@given(seed=seeds, frame=frames)
@settings(max_examples=30, deadline=None)
def test_inactive_entries_and_the_gripper_stay_bit_equal_and_the_rest_in_range(
    seed: int, frame: DeltaFrame
) -> None:
    motion = Motion.of(SPEC, frame)
    actions = random_actions(seed)
    changed = perturb(actions, seed, CONFIG, motion, random_start(seed, motion))
    inactive = np.append(np.abs(actions[:, :6]).max(axis=0) <= CONFIG.active, True)
    np.testing.assert_array_equal(changed[:, inactive], actions[:, inactive])
    assert np.abs(changed).max() <= 1.0
    assert changed.dtype == np.float32


@given(seed=seeds, frame=frames)
@settings(max_examples=30, deadline=None)
def test_the_commanded_path_stays_in_the_box_and_the_window(seed: int, frame: DeltaFrame) -> None:
    motion = Motion.of(SPEC, frame)
    start = random_start(seed, motion)
    actions = np.random.default_rng(seed).uniform(-1, 1, (24, 7)).astype(np.float32)
    for pose in walk(motion, start, project(actions, motion, start)):
        assert (pose.position >= motion.lower - 1e-6).all() and (pose.position <= motion.upper + 1e-6).all()
        turn = np.abs(matrix_to_rotvec(pose.rotation @ motion.reference_rotation.T))
        assert (turn <= motion.rotation_limit + 1e-5).all()


@given(seed=seeds, frame=frames)
@settings(max_examples=30, deadline=None)
def test_projection_only_takes_away_and_leaves_what_is_allowed(seed: int, frame: DeltaFrame) -> None:
    motion = Motion.of(SPEC, frame)
    start = random_start(seed, motion)
    actions = random_actions(seed)
    once = project(actions, motion, start)
    assert (np.abs(once) <= np.abs(actions) + 1e-6).all()
    assert (once * actions >= 0).all()
    np.testing.assert_allclose(project(once, motion, start), once, atol=2e-4)
    centre = Pose((motion.lower + motion.upper) / 2, motion.reference_rotation)
    small = actions * np.float32(0.01)
    np.testing.assert_array_equal(project(small, motion, centre), small)


def test_a_start_outside_the_box_may_come_back_but_not_go_further() -> None:
    motion = Motion.of(SPEC, DeltaFrame.BASE)
    start = Pose(motion.upper + 0.01, motion.reference_rotation)
    out, back = np.ones((1, 7), np.float32), -np.ones((1, 7), np.float32)
    assert (project(out, motion, start)[0, :3] == 0).all()
    assert (project(back, motion, start)[0, :3] == -1).all()


def test_the_arm_slides_along_a_wall_of_the_box() -> None:
    motion = Motion.of(SPEC, DeltaFrame.BASE)
    start = Pose(np.append((motion.lower + motion.upper)[:2] / 2, motion.lower[2]), motion.reference_rotation)
    action = np.array([[0.5, -0.5, -0.5, 0, 0, 0, 0]], np.float32)
    np.testing.assert_allclose(project(action, motion, start)[0], [0.5, -0.5, 0, 0, 0, 0, 0], atol=1e-6)


@given(seed=seeds)
@settings(max_examples=30, deadline=None)
def test_one_scale_for_all_steps_and_noise_for_each(seed: int) -> None:
    motion = Motion.of(SPEC, DeltaFrame.BASE)
    actions = random_actions(seed) * np.float32(0.5)
    xi, eps = draw(seed, len(actions), CONFIG)
    assert (np.abs(xi - 1) <= CONFIG.scale).all()
    assert len(np.unique(eps)) == eps.size
    active = np.abs(actions[:, :6]).max(axis=0) > CONFIG.active
    expected = np.where(active, xi * actions[:, :6] + eps, 0.0).clip(-1, 1)
    np.testing.assert_allclose(perturb(actions, seed, CONFIG, motion)[:, :6], expected, atol=1e-6)
    np.testing.assert_array_equal(
        perturb(actions, seed, CONFIG, motion), perturb(actions, seed, CONFIG, motion)
    )


def test_noise_and_scale_have_the_stated_spread() -> None:
    drawn = [draw(seed, 24, CONFIG) for seed in range(400)]
    assert np.std([eps for _, eps in drawn]) == pytest.approx(0.05, rel=0.03)
    scales = np.array([xi for xi, _ in drawn])
    assert scales.std() == pytest.approx(0.4 / np.sqrt(12), rel=0.05)
    assert abs(np.corrcoef(scales.T) - np.eye(6)).max() < 0.2


@given(seed=seeds, frame=frames)
@settings(max_examples=8, deadline=None)
def test_branches_stay_near_the_real_path_and_a_recorded_seed_gives_them_again(
    seed: int, frame: DeltaFrame
) -> None:
    motion = Motion.of(SPEC, frame)
    actions = np.stack([random_actions(seed + k, 12) for k in range(2)])
    starts = [random_start(seed + k, motion) for k in range(2)]
    branches = make_branches(clip_of(actions), motion, np.random.default_rng(seed), CONFIG, starts)
    assert branches.of_kind(BranchKind.REPLAY).sum() == 2
    for k in range(len(branches)):
        source = branches.source[k]
        if branches.kind[k] is BranchKind.REPLAY:
            np.testing.assert_array_equal(branches.actions[k], actions[source])
            continue
        again = perturb(actions[source], int(branches.seed[k]), CONFIG, motion, starts[source])
        np.testing.assert_array_equal(branches.actions[k], again)
        real = walk(motion, starts[source], actions[source])
        changed = walk(motion, starts[source], branches.actions[k])
        distance = max(np.linalg.norm(a.position - b.position) for a, b in zip(real, changed, strict=True))
        assert distance <= CONFIG.max_position + 1e-9
        assert distance == pytest.approx(branches.position_deviation[k], abs=1e-9)


def test_branches_repeat_with_the_generator_and_differ_from_each_other() -> None:
    motion = Motion.of(SPEC, DeltaFrame.BASE)
    clip = clip_of(np.full((1, 12, 7), 0.3, np.float32))
    first, second = (make_branches(clip, motion, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(first.actions, second.actions)
    assert len(first) == 1 + CONFIG.branches
    assert len({actions.tobytes() for actions in first.actions}) == len(first)


def test_a_draw_that_cannot_stay_near_is_left_out() -> None:
    motion = Motion.of(SPEC, DeltaFrame.BASE)
    clip = clip_of(np.full((1, 24, 7), 0.8, np.float32))
    tight = CounterfactualConfig(max_position=1e-4)
    branches = make_branches(clip, motion, np.random.default_rng(0), tight)
    assert branches.kind == (BranchKind.REPLAY,)


def test_history_and_padding_are_not_perturbed() -> None:
    motion = Motion.of(SPEC, DeltaFrame.BASE)
    actions = np.full((1, 10, 7), 0.3, np.float32)
    valid = np.ones((1, 10), np.bool_)
    actions[:, 8:], valid[:, 8:] = 0.0, False
    branches = make_branches(
        clip_of(actions, history=3, valid=valid),
        motion,
        np.random.default_rng(0),
        policy=lambda clip: np.ones((1, 7, 7), np.float32),
    )
    assert branches.actions.shape[1:] == (7, 7)
    assert (branches.actions[:, 5:] == 0).all()
    assert (branches.actions[:, :5] != 0).all()


def test_policy_branches_are_projected_and_their_deviation_is_told() -> None:
    motion = Motion.of(SPEC, DeltaFrame.BASE)
    clip = clip_of(np.zeros((2, 5, 7), np.float32))
    wish = np.zeros((2, 5, 7), np.float32)
    wish[0, :, 0], wish[1, :, 2] = 2.0, 0.5
    branches = make_branches(clip, motion, np.random.default_rng(0), policy=lambda _: wish)
    policy = branches.of_kind(BranchKind.POLICY)
    assert policy.sum() == 2
    np.testing.assert_array_equal(branches.actions[policy], wish.clip(-1, 1))
    np.testing.assert_allclose(
        branches.position_deviation[policy], np.array([5.0, 2.5]) * motion.scale.position, rtol=1e-6
    )


@pytest.mark.parametrize("wrong", [np.full((2, 5, 7), np.nan), np.zeros((2, 4, 7))])
def test_a_policy_with_wrong_actions_is_refused(wrong: np.ndarray) -> None:
    clip = clip_of(np.zeros((2, 5, 7), np.float32))
    with pytest.raises(WorldModelError, match=r"expected finite actions \(2, 5, 7\)"):
        make_branches(
            clip, Motion.of(SPEC, DeltaFrame.BASE), np.random.default_rng(0), policy=lambda _: wrong
        )


@pytest.mark.parametrize("frame", list(DeltaFrame))
def test_the_commanded_pose_is_the_measured_one_with_its_lag(frame: DeltaFrame) -> None:
    motion = Motion.of(SPEC, frame)
    measured = random_start(5, motion)
    delta = np.array([0.004, -0.003, 0.002, 0.02, -0.01, 0.03])
    seen_from = RelativeFrame(Pose(np.zeros(3), SPEC.reference_rotation), SPEC.reference_rotation)
    proprio = np.zeros((1, SPEC.proprio(0.1, ProprioFrame.BASE).dim), np.float32)
    proprio[0, :6] = seen_from.relative(measured)
    proprio[0, 12:18] = delta
    commanded = motion.commanded_poses(proprio)[0]
    expected = apply_delta(measured, delta, frame)
    np.testing.assert_allclose(commanded.position, expected.position, atol=1e-6)
    np.testing.assert_allclose(commanded.rotation, expected.rotation, atol=1e-5)
