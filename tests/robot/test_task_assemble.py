"""assemble: only a ring around the yellow peg, let go, counts; the expert gets it there from wherever it lies."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from robot.env import RobotEnv
from robot.factory import ObsKind, RobotConfig, make_corrector, make_expert, make_robot_env
from robot.sim.expert import ExpertNoise
from robot.sim.scene import SIDE_VIEW, WRIST_VIEW
from robot.sim.tasks.assemble import PEG_HEIGHT, PLAY, RING_RADIUS, TUBE_RADIUS
from robot.wrappers import HumanIntervention

IDLE = np.zeros(7, np.float32)


@pytest.fixture(scope="module")
def env() -> Iterator[RobotEnv]:
    made = make_robot_env(RobotConfig(task="assemble", obs=ObsKind.STATE))
    yield made
    made.close()


def world_of(env: RobotEnv) -> Any:
    return env.workcell.world  # type: ignore[attr-defined]


def place_ring(env: RobotEnv, position: np.ndarray, tilt: float = 0.0) -> None:
    """Put the ring at rest at `position` (3,) [m], tilted about x by `tilt` [rad]."""
    world = world_of(env)
    world.place_body("ring", position)
    start = world.model.joint(world.model.body("ring").jntadr[0]).qposadr[0]
    world.data.qpos[start + 3 : start + 7] = [np.cos(tilt / 2), np.sin(tilt / 2), 0.0, 0.0]
    env.step(IDLE)


def finish(env: RobotEnv, policy: Any, steps: int) -> bool:
    """Let the policy act; whether it succeeded."""
    for _ in range(steps):
        *_, terminated, truncated, _ = env.step(policy.act())
        if terminated or truncated:
            return bool(terminated)
    return False


def test_ring_on_the_goal_peg_counts_only_once_let_go_and_held(env: RobotEnv) -> None:
    env.reset(seed=0)
    world = world_of(env)
    place_ring(env, world.body_position("goal_peg") + np.array([PLAY / 2, 0.0, TUBE_RADIUS]))
    assert env.workcell.success()
    outcomes = [env.step(IDLE)[2] for _ in range(env.robot.spec.hold_steps - 1)]
    assert outcomes == [False, True]

    env.reset(seed=0)
    env.step(np.array([0, 0, 0, 0, 0, 0, -1], np.float32))  # closed, in the air
    place_ring(env, world.body_position("goal_peg") + np.array([0.0, 0.0, TUBE_RADIUS]))
    for _ in range(5):
        env.step(IDLE)
    assert not env.workcell.success()
    assert env.workcell.failure() == "not let go"


@pytest.mark.parametrize(
    ("offset", "tilt", "why"),
    [
        ((0.0, 0.0, PEG_HEIGHT + TUBE_RADIUS), 1.2, "askew on the goal peg"),
        ((0.0, RING_RADIUS + TUBE_RADIUS + 0.008, TUBE_RADIUS), 0.0, "dropped"),
    ],
)
def test_ring_that_is_not_around_the_peg_does_not_count(
    env: RobotEnv, offset: tuple[float, float, float], tilt: float, why: str
) -> None:
    env.reset(seed=1)
    place_ring(env, world_of(env).body_position("goal_peg") + offset, tilt)
    assert not env.workcell.success()
    assert env.workcell.failure() == why


def test_pegs_leave_room_for_the_open_fingers_and_the_ring_starts_on_its_own(env: RobotEnv) -> None:
    world, places = world_of(env), []
    for seed in range(40):
        env.reset(seed=seed)
        start, goal = world.body_position("start_peg"), world.body_position("goal_peg")
        assert start[1] - goal[1] > 0.062 + 0.006 + 0.01  # fingers outside, peg, and some room
        assert np.linalg.norm((world.body_position("ring") - start)[:2]) <= PLAY
        assert not env.workcell.success()
        for _ in range(2):
            env.step(IDLE)
        assert world.body_position("ring")[2] == pytest.approx(TUBE_RADIUS, abs=5e-4)
        places.append([*start[:2], *goal[:2]])
    assert (np.ptp(places, axis=0) > 0.03).all()


def test_expert_assembles_at_its_default_noise(env: RobotEnv) -> None:
    expert, lengths = make_expert(env, np.random.default_rng(0)), []
    for seed in range(6):
        env.reset(seed=seed)
        expert.reset()
        steps, ended = 0, False
        while not ended:
            *_, terminated, truncated, _ = env.step(expert.act())
            steps, ended = steps + 1, terminated or truncated
        assert terminated, (seed, env.workcell.failure())
        lengths.append(steps)
    assert np.mean(lengths) <= 60


@pytest.mark.parametrize("tilt", [0.0, 0.5, 0.9])
def test_expert_picks_up_a_dropped_ring_however_it_lies(env: RobotEnv, tilt: float) -> None:
    expert = make_expert(env, np.random.default_rng(0), ExpertNoise(0.0))
    for seed, beside in enumerate(([0.03, -0.05], [0.0, -0.03])):  # on the table, and leaning on its peg
        env.reset(seed=seed)
        expert.reset()
        height = TUBE_RADIUS + RING_RADIUS * np.sin(tilt) + 0.001
        place_ring(env, world_of(env).body_position("start_peg") + np.array([*beside, height]), tilt)
        assert finish(env, expert, 110), (seed, env.workcell.failure())


def test_corrector_rescues_an_idle_policy(env: RobotEnv) -> None:
    corrected = HumanIntervention(env, make_corrector(env, np.random.default_rng(0)))
    for seed in range(3):
        corrected.reset(seed=seed)
        ended = False
        while not ended:
            *_, terminated, truncated, _ = corrected.step(IDLE)
            ended = terminated or truncated
        # Watching takes more than half of the time, so the limit may come first, but not before the ring moved.
        assert terminated or env.workcell.task.progress(world_of(env)) < 0.3, seed  # type: ignore[attr-defined]


def test_progress_falls_through_all_phases(env: RobotEnv) -> None:
    task, world = env.workcell.task, world_of(env)  # type: ignore[attr-defined]
    expert = make_expert(env, np.random.default_rng(0), ExpertNoise(0.0))
    for seed in range(3):
        env.reset(seed=seed)
        left, ended = [task.progress(world)], False
        while not ended:
            *_, terminated, truncated, _ = env.step(expert.act())
            left.append(task.progress(world))
            ended = terminated or truncated
        assert terminated and left[-1] < 0.02
        fall = np.array(left)
        # What the corrector judges: no window of eight steps without a centimetre of progress.
        assert (fall[:-8] - fall[8:]).min() > 0.01, seed


def test_privileged_state_tells_where_ring_and_peg_are(env: RobotEnv) -> None:
    spec = env.workcell.task.privileged_spec  # type: ignore[attr-defined]
    for seed in range(20):
        proprio = env.reset(seed=seed)[0]["proprio"][-spec.dim :]
        assert np.abs((proprio - spec.offset) / spec.scale).max() < 2.0
    world = world_of(env)
    place_ring(env, world.body_position("goal_peg") + np.array([0.0, 0.0, TUBE_RADIUS]))
    values = env.step(IDLE)[0]["proprio"][-spec.dim :]
    np.testing.assert_allclose(values[3:], 0.0, atol=1e-3)
    np.testing.assert_allclose(values[:3], world.body_position("ring") - world.tcp().position, atol=1e-6)


def test_nothing_leaves_the_reach_of_the_tool(env: RobotEnv) -> None:
    world, spec = world_of(env), env.robot.spec
    for seed in range(3):
        env.reset(seed=seed)
        start = world.model.joint(world.model.body("ring").jntadr[0]).dofadr[0]
        angle = 2.0 * seed
        place_ring(env, np.array([0.28, 0.0, 0.05]))
        world.data.qvel[start : start + 3] = [np.cos(angle), np.sin(angle), 0.3]  # m/s
        for _ in range(15):
            env.step(IDLE)
        ring = world.body_position("ring")
        assert (ring[:2] > spec.workspace_lower[:2]).all() and (ring[:2] < spec.workspace_upper[:2]).all()


def test_both_views_show_ring_and_goal_peg_at_start_and_end() -> None:
    env = make_robot_env(RobotConfig(task="assemble"))
    expert = make_expert(env, np.random.default_rng(0))

    def masks(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        red, green, blue = np.moveaxis(image.astype(int), 2, 0)
        return (red > 150) & (green < 90) & (blue > 150), (red > 150) & (green > 120) & (blue < 90)

    for seed in range(3):
        images = env.reset(seed=seed)[0]["images"]
        for view in (WRIST_VIEW, SIDE_VIEW):
            ring, peg = masks(images[view])
            assert ring.sum() >= 30 and peg.sum() >= 30, (seed, view)
        expert.reset()
        terminated = False
        while not terminated:
            values, _, terminated, truncated, _ = env.step(expert.act())
            assert not truncated
        for view in (WRIST_VIEW, SIDE_VIEW):
            ring, peg = masks(values["images"][view])
            rows, columns = np.nonzero(ring)
            # The peg stands out of the ring: yellow within the ring's outline.
            inside = peg[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
            assert inside.sum() >= 3, (seed, view)
    env.close()


def test_same_seed_same_episode(env: RobotEnv) -> None:
    def episode() -> np.ndarray:
        expert = make_expert(env, np.random.default_rng(1))
        seen = [env.reset(seed=9)[0]["proprio"]]
        for _ in range(25):
            seen.append(env.step(expert.act())[0]["proprio"])
        return np.stack(seen)

    np.testing.assert_array_equal(episode(), episode())
