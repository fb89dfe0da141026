"""Branching: what follows a restored moment is bit-equal to what followed it the first time."""

from __future__ import annotations

import numpy as np
import pytest

from robot.clock import WallClock
from robot.factory import ObsKind, RobotConfig, make_expert, make_robot_env
from robot.interfaces import RobotFault
from robot.safety import GovernorState
from robot.sim.branch import capture, restore
from robot.types import ACTION_DIM


def actions(n: int, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(seed).uniform(-1, 1, (n, ACTION_DIM)).astype(np.float32)


def run(env, sequence):  # type: ignore[no-untyped-def]
    seen = []
    for action in sequence:
        values, reward, terminated, truncated, info = env.step(action)
        physics = env.workcell.world.get_state().physics
        seen.append(
            (
                values["proprio"],
                info["action"],
                reward,
                terminated,
                truncated,
                info["gripper_changed"],
                physics,
            )
        )
    return seen


def same(a, b) -> bool:  # type: ignore[no-untyped-def]
    return len(a) == len(b) and all(
        all(np.array_equal(x, y) for x, y in zip(one, two, strict=True))
        for one, two in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("task", ["press", "insert", "pick_place", "sort", "assemble"])
def test_the_same_actions_give_the_same_future_bit_by_bit(task: str) -> None:
    env = make_robot_env(RobotConfig(task=task, obs=ObsKind.STATE), seed=3)
    other = make_robot_env(RobotConfig(task=task, obs=ObsKind.STATE), seed=9)
    try:
        env.reset(seed=5)
        run(env, actions(6, 0))
        moment = capture(env)
        future, distances = run(env, actions(8, 1)), env.workcell.distances.copy()
        run(env, actions(3, 2))
        seen = restore(env, moment)
        assert np.array_equal(seen.proprio, moment.observation.proprio)
        assert same(run(env, actions(8, 1)), future)
        assert env.workcell.distances == pytest.approx(distances, abs=1e-12)
        other.reset(seed=1)
        restore(other, moment)
        assert same(run(other, actions(8, 1)), future), (
            "another environment of the same kind can go on from there"
        )
        restore(env, moment)
        assert not same(run(env, actions(8, 7)), future)
    finally:
        env.close()
        other.close()


def test_images_come_again_bit_by_bit_and_their_times_to_rounding() -> None:
    env = make_robot_env(RobotConfig(task="press", obs=ObsKind.PIXELS, image_px=32), seed=3)
    try:
        env.reset(seed=5)
        moment = capture(env)
        futures = []
        for _ in range(2):
            futures.append([env.step(action) for action in actions(4, 1)])
            restore(env, moment)
        for (one, *_, info), (two, *_, again) in zip(*futures, strict=True):
            assert one["images"].keys() == two["images"].keys() and one["images"]
            for view, image in one["images"].items():
                assert np.array_equal(image, two["images"][view])
            assert again["image_timestamps"] == pytest.approx(info["image_timestamps"], abs=1e-9)
    finally:
        env.close()


def test_success_and_time_limit_count_on_from_the_moment() -> None:
    env = make_robot_env(RobotConfig(task="press", obs=ObsKind.STATE), seed=0)
    try:
        env.reset(seed=2)
        expert, moments, lengths = make_expert(env, np.random.default_rng(0)), [], 0
        expert.reset()
        terminated = False
        while not terminated:
            moments.append(capture(env))
            action = expert.act()
            _, _, terminated, truncated, info = env.step(action)
            lengths += 1
            assert not truncated
        restore(env, moments[-1])
        _, reward, terminated, _, again = env.step(info["requested_action"])
        assert terminated and reward == 1.0 and again["success"]
    finally:
        env.close()


def test_the_governor_goes_back_and_still_stops_a_bad_action() -> None:
    env = make_robot_env(RobotConfig(task="press", obs=ObsKind.STATE), seed=0)
    try:
        env.reset(seed=2)
        moment = capture(env)
        run(env, actions(4, 0))
        restore(env, moment)
        assert env.robot._governor.state is GovernorState.READY
        with pytest.raises(RobotFault, match="bad_action"):
            env.step(np.full(ACTION_DIM, np.nan, np.float32))
    finally:
        env.close()


def test_a_fault_in_one_future_is_unknown_in_another() -> None:
    env = make_robot_env(RobotConfig(task="press", obs=ObsKind.STATE), seed=0)
    try:
        env.reset(seed=2)
        moment = capture(env)
        with pytest.raises(RobotFault, match="bad_action"):
            env.robot.act(np.full(ACTION_DIM, 2.0, np.float32))
        restore(env, moment)
        assert env.robot._governor.fault is None
        run(env, actions(2, 0))
    finally:
        env.close()


def test_a_real_clock_has_one_past() -> None:
    env = make_robot_env(RobotConfig(task="press", obs=ObsKind.STATE), seed=0)
    try:
        env.reset(seed=2)
        env.robot.clock = WallClock()
        with pytest.raises(ValueError, match="virtual"):
            capture(env)
    finally:
        env.close()
