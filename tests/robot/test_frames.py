"""Frames: exact inverses far from the base, tool axes that do not mix motions, and one frame for all that is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot.env import RobotEnv
from robot.factory import ObsKind, RobotConfig, make_expert, make_robot_env
from robot.frames import ProprioFrame, RelativeFrame, along_tool_axes
from robot.geometry import DeltaFrame, Pose, apply_delta, rotvec_to_matrix
from robot.interfaces import TeleopCommand
from robot.sim.expert import ExpertNoise
from robot.teleop.scripted import ScriptedTeleop
from robot.types import Array, Float32
from robot.wrappers import HumanIntervention

POSE = slice(0, 6)
VELOCITY, LAG = slice(6, 9), slice(12, 15)


def make(action: DeltaFrame, proprio: ProprioFrame = ProprioFrame.BASE) -> RobotEnv:
    return make_robot_env(RobotConfig(obs=ObsKind.STATE, action_frame=action, proprio_frame=proprio))


def target(env: RobotEnv) -> Pose:
    return env.robot._governor.target.pose


def random_pose(rng: np.random.Generator, distance: float) -> Pose:
    return Pose(rng.normal(scale=distance, size=3), rotvec_to_matrix(rng.uniform(-1.7, 1.7, 3)))


def assert_same(one: Pose, other: Pose, atol: float = 1e-9) -> None:
    np.testing.assert_allclose(one.position, other.position, atol=atol)
    np.testing.assert_allclose(one.rotation, other.rotation, atol=atol)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), distance=st.sampled_from([0.3, 100.0]))
def test_round_trip_is_exact_far_from_the_base(seed: int, distance: float) -> None:
    rng = np.random.default_rng(seed)
    reference = random_pose(rng, 1.0).rotation
    origin, pose = random_pose(rng, distance), random_pose(rng, distance)
    frame = RelativeFrame(origin, reference)
    assert_same(frame.absolute(frame.relative(pose)), pose)
    np.testing.assert_allclose(frame.relative(origin), np.zeros(6), atol=1e-9)
    # Moved and turned as a whole, an episode looks the same.
    moved = random_pose(rng, distance)
    shifted = RelativeFrame(moved.compose(origin), reference)
    np.testing.assert_allclose(shifted.relative(moved.compose(pose)), frame.relative(pose), atol=1e-9)


def test_seen_from_an_upright_start_it_is_the_difference_in_the_base_frame() -> None:
    rng = np.random.default_rng(0)
    reference, start = random_pose(rng, 1.0).rotation, rng.normal(size=3)
    delta = np.array([0.1, -0.2, 0.3, 0.2, -0.1, 0.4])
    pose = apply_delta(Pose(start, reference), delta, DeltaFrame.BASE)
    np.testing.assert_allclose(
        RelativeFrame(Pose(start, reference), reference).relative(pose), delta, atol=1e-12
    )
    from_base = RelativeFrame(Pose(np.zeros(3), reference), reference).relative(pose)
    np.testing.assert_allclose(from_base, [*pose.position, *delta[3:]], atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_motion_along_base_axes_is_the_same_motion_along_tool_axes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pose, action = random_pose(rng, 1.0), rng.uniform(-1, 1, 6)
    turned = along_tool_axes(action, pose.rotation)
    assert np.abs(turned).max() <= 1.0
    shares = np.repeat(
        [
            np.linalg.norm(part) / np.linalg.norm(wish)
            for part, wish in zip(halves(turned), halves(action), strict=True)
        ],
        3,
    )
    assert (shares <= 1.0 + 1e-12).all() and (shares > 3**-0.5 - 1e-12).all()
    shortened = shares * action
    moved = apply_delta(pose, 0.1 * turned, DeltaFrame.TOOL)
    assert_same(moved, apply_delta(pose, 0.1 * shortened, DeltaFrame.BASE), 1e-12)
    small = 0.5 * action
    np.testing.assert_allclose(
        np.linalg.norm(along_tool_axes(small, pose.rotation)), np.linalg.norm(small), rtol=1e-12
    )


def halves(action: Array) -> tuple[Array, Array]:
    return action[:3], action[3:]


@pytest.mark.parametrize("axis", range(3))
def test_a_translation_along_a_tool_axis_moves_along_it_and_turns_nothing(axis: int) -> None:
    env = make(DeltaFrame.TOOL)
    env.reset(seed=0)
    action = np.zeros(7, np.float32)
    action[axis] = 0.5
    before = target(env)
    for _ in range(3):
        values, *_, info = env.step(action)
        np.testing.assert_allclose(info["action"], action, atol=1e-6)
        assert not info["clipped"]
    after = target(env)
    scale = env.robot.spec.action_scale.position
    np.testing.assert_allclose(
        after.position - before.position, 3 * scale * action[axis] * before.rotation[:, axis], atol=1e-6
    )
    np.testing.assert_allclose(after.rotation, before.rotation, atol=1e-9)
    velocity, lag = values["proprio"][VELOCITY], values["proprio"][LAG]
    others = [other for other in range(3) if other != axis]
    assert velocity[axis] * action[axis] > 0.25 * scale / 0.1 * abs(action[axis])
    assert np.abs(velocity[others]).max() < 0.2 * abs(velocity[axis])
    assert lag[axis] * action[axis] > 0


@pytest.mark.parametrize("frame", list(DeltaFrame))
def test_what_is_stored_is_what_was_executed_whoever_led(frame: DeltaFrame) -> None:
    """Policy, demonstration and correction speak of the same axes: a recorded episode can be played back."""
    env = make(frame, ProprioFrame.RESET)
    expert = make_expert(env, np.random.default_rng(0), ExpertNoise(0.0))
    env.reset(seed=3)
    executed: list[Float32] = []
    seen: list[Any] = []
    scale = np.repeat([env.robot.spec.action_scale.position, env.robot.spec.action_scale.rotation], 3)
    success = terminated = truncated = False
    while not (terminated or truncated):
        wish = expert.act()
        hand = HumanIntervention(env, ScriptedTeleop([TeleopCommand(wish[:6].astype(float), engaged=True)]))
        before = target(env)
        values, _, terminated, truncated, info = hand.step(np.zeros(7, np.float32))
        assert info["intervened"]
        assert_same(apply_delta(before, scale * info["action"][:6], frame), target(env), 1e-6)
        executed.append(info["action"])
        seen.append(values["proprio"])
        success = info["success"]
    assert success
    env.reset(seed=3)
    for action, expected in zip(executed, seen, strict=True):
        values, _, terminated, _, info = env.step(action)
        np.testing.assert_allclose(values["proprio"], expected, atol=2e-4)
    assert terminated and info["success"]


def test_a_person_steers_along_base_axes_in_every_frame() -> None:
    up = TeleopCommand(delta=np.array([0, 0, 1.0, 0, 0, 0]), engaged=True)
    for frame in DeltaFrame:
        env = make(frame)
        led = HumanIntervention(env, ScriptedTeleop([up]))
        led.reset(seed=0)
        before = target(env)
        led.step(np.zeros(7, np.float32))
        shift = target(env).position - before.position
        np.testing.assert_allclose(shift, [0, 0, env.robot.spec.action_scale.position], atol=1e-6)


def test_from_the_reset_the_pose_begins_at_zero_and_then_follows_the_base_frame() -> None:
    base, reset = make(DeltaFrame.BASE), make(DeltaFrame.BASE, ProprioFrame.RESET)
    np.testing.assert_array_equal(reset.proprio_spec.offset[:3], 0.0)
    np.testing.assert_array_equal(reset.proprio_spec.scale, base.proprio_spec.scale)
    rng = np.random.default_rng(1)
    for seed in (0, 1):
        start, zero = (env.reset(seed=seed)[0]["proprio"] for env in (base, reset))
        np.testing.assert_allclose(zero[POSE], 0.0, atol=1e-7)
        assert np.abs(start[:3]).max() > 0.1
        np.testing.assert_array_equal(zero[6:], start[6:])
        for _ in range(5):
            action = rng.uniform(-0.5, 0.5, 7).astype(np.float32)
            there, here = (env.step(action)[0]["proprio"] for env in (base, reset))
            np.testing.assert_allclose(here[POSE], there[POSE] - start[POSE], atol=1e-3)
            np.testing.assert_array_equal(here[6:], there[6:])
