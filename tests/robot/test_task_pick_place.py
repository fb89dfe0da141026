"""pick_place: only an aubergine that lies on the plate, let go, counts; the expert gets it there from anywhere."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from robot.env import RobotEnv
from robot.factory import ObsKind, RobotConfig, make_corrector, make_expert, make_robot_env
from robot.sim.expert import ExpertNoise
from robot.sim.scene import SIDE_VIEW, WRIST_VIEW
from robot.sim.tasks.carrying import CLEAR
from robot.sim.tasks.pick_place import ON_PLATE, PLATE_HEIGHT, PLATE_RADIUS, RADIUS
from robot.wrappers import HumanIntervention

IDLE = np.zeros(7, np.float32)
CLOSE = np.array([0, 0, 0, 0, 0, 0, -1], np.float32)


@pytest.fixture(scope="module")
def env() -> Iterator[RobotEnv]:
    made = make_robot_env(RobotConfig(task="pick_place", obs=ObsKind.STATE))
    limit = made.robot.spec.max_steps
    made.robot.spec = replace(made.robot.spec, max_steps=3 * limit)
    yield made
    made.close()


def world_of(env: RobotEnv) -> Any:
    return env.workcell.world  # type: ignore[attr-defined]


def on_plate(world: Any, sideways: float = 0.0, height: float = 0.0) -> np.ndarray:
    """A place for the aubergine, off the plate's centre and above it by so much [m]."""
    place: np.ndarray = world.body_position("plate") + [sideways, 0.0, PLATE_HEIGHT + RADIUS + height]
    return place


def finish(env: RobotEnv, policy: Any) -> tuple[bool, int]:
    """Let the policy act; whether it succeeded, and after how many steps."""
    steps = 0
    while True:
        *_, terminated, truncated, _ = env.step(policy.act())
        steps += 1
        if terminated or truncated:
            return bool(terminated), steps


def test_an_aubergine_on_the_plate_counts_once_it_has_lain_there(env: RobotEnv) -> None:
    env.reset(seed=0)
    world_of(env).place_body("aubergine", on_plate(world_of(env)))
    outcomes = [env.step(IDLE)[2] for _ in range(env.robot.spec.hold_steps)]
    assert outcomes == [False, False, True]


@pytest.mark.parametrize(
    ("sideways", "height"),
    [(ON_PLATE + 0.003, 0.0), (PLATE_RADIUS + RADIUS, -PLATE_HEIGHT), (0.0, 0.01)],
    ids=["on the rim", "beside the plate", "in the air"],
)
def test_elsewhere_it_does_not_count(env: RobotEnv, sideways: float, height: float) -> None:
    env.reset(seed=0)
    world = world_of(env)
    world.place_body("aubergine", on_plate(world, sideways, height))
    assert not env.workcell.success()
    world.place_body("aubergine", on_plate(world))
    assert env.workcell.success()


def test_it_does_not_count_before_the_gripper_has_let_go_and_risen(env: RobotEnv) -> None:
    env.reset(seed=0)
    world = world_of(env)
    world.place_body("aubergine", on_plate(world))
    env.step(CLOSE)
    env.step(CLOSE)
    assert not env.workcell.success()
    assert env.workcell.failure() == "not let go"  # type: ignore[attr-defined]

    env.reset(seed=0)
    down = np.array([0, 0, -1, 0, 0, 0, 0], np.float32)
    while world.tcp().position[2] > on_plate(world)[2] + CLEAR - 0.01:
        env.step(down)
    place = world.tcp().position
    world.place_body("plate", np.array([place[0], place[1], 0.0]))
    world.place_body("aubergine", on_plate(world))
    assert not env.workcell.success()


def test_expert_succeeds_at_its_default_noise(env: RobotEnv) -> None:
    expert = make_expert(env, np.random.default_rng(0))
    lengths = []
    for seed in range(12):
        env.reset(seed=seed)
        expert.reset()
        success, steps = finish(env, expert)
        assert success, seed
        lengths.append(steps)
    assert np.mean(lengths) <= 45


def test_more_noise_makes_it_harder(env: RobotEnv) -> None:
    lengths = []
    for level in (0.0, 0.7):
        expert = make_expert(env, np.random.default_rng(0), ExpertNoise(level))
        total = 0
        for seed in range(5):
            env.reset(seed=seed)
            expert.reset()
            total += finish(env, expert)[1]
        lengths.append(total)
    assert lengths[1] > 1.3 * lengths[0]


def test_expert_takes_over_from_wherever_a_random_policy_went(env: RobotEnv) -> None:
    expert = make_expert(env, np.random.default_rng(0))
    for seed in range(8):
        env.reset(seed=seed)
        expert.reset()
        rng = np.random.default_rng(seed)
        for step in range(30):
            if step % 3 == 0:
                action = rng.choice([-1.0, 0.0, 1.0], 7).astype(np.float32)
            env.step(action)
        assert finish(env, expert)[0], seed


@pytest.mark.parametrize("yaw", [-1.5, 0.8, 3.0])
def test_expert_grasps_it_however_it_lies(env: RobotEnv, yaw: float) -> None:
    env.reset(seed=1)
    world_of(env).place_body("aubergine", np.array([0.30, 0.08, RADIUS]), yaw)
    assert finish(env, make_expert(env, np.random.default_rng(0), ExpertNoise(0.0)))[0]


def test_corrector_rescues_an_idle_policy(env: RobotEnv) -> None:
    corrected = HumanIntervention(env, make_corrector(env, np.random.default_rng(0)))
    for seed in range(3):
        corrected.reset(seed=seed)
        while True:
            *_, terminated, truncated, _ = corrected.step(IDLE)
            if terminated or truncated:
                break
        assert terminated, seed


def test_progress_falls_through_all_phases(env: RobotEnv) -> None:
    task: Any = env.workcell.task  # type: ignore[attr-defined]
    expert = make_expert(env, np.random.default_rng(0), ExpertNoise(0.0))
    for seed in range(5):
        env.reset(seed=seed)
        expert.reset()
        left, terminated = [task.progress(world_of(env))], False
        while not terminated:
            *_, terminated, _, _ = env.step(expert.act())
            left.append(task.progress(world_of(env)))
        assert max(np.diff(left)) < 0.005  # no phase begins further from the end than the last one was
        falls = np.array(left[:-8]) - np.array(left[8:])
        assert falls.min() > 0.01  # as the corrector judges it
        assert left[0] > 0.3 and left[-1] == pytest.approx(0.0, abs=1e-3)


def test_privileged_state_tells_where_aubergine_and_plate_are(env: RobotEnv) -> None:
    values, _ = env.reset(seed=4)
    names = list(env.proprio_spec.names)
    told = dict(zip(names, values["proprio"].tolist(), strict=True))
    world = world_of(env)
    item, plate = world.body_position("aubergine"), world.body_position("plate")
    assert told["ee_x"] + told["item_dx"] == pytest.approx(item[0], abs=1e-4)
    assert item[1] + told["plate_dy"] == pytest.approx(plate[1], abs=1e-4)
    assert item[2] + told["plate_dz"] == pytest.approx(PLATE_HEIGHT + RADIUS, abs=1e-4)
    axis = world.body_pose("aubergine").rotation[:, 0]
    assert told["yaw_error"] == pytest.approx(np.arctan2(axis[1], axis[0]), abs=0.02)
    spec = env.proprio_spec
    assert (np.abs((values["proprio"] - spec.offset) / spec.scale)[20:] < 1.6).all()


def test_it_cannot_be_pushed_out_of_reach(env: RobotEnv) -> None:
    env.reset(seed=0)
    world, spec = world_of(env), env.robot.spec
    world.place_body("plate", np.array([0.28, -0.5, 0.0]))  # where nothing lands on it
    start = world.model.joint(world.model.body("aubergine").jntadr[0]).dofadr[0]
    for push in ([3.0, 0, 1.5], [-3.0, 0, 1.5], [0, 3.0, 1.5], [0, -3.0, 1.5]):
        world.data.qvel[start : start + 3] = push  # thrown
        for _ in range(10):
            env.step(IDLE)
        place = world.body_position("aubergine")
        assert (spec.workspace_lower[:2] - 0.01 < place[:2]).all()
        assert (place[:2] < spec.workspace_upper[:2] + 0.01).all()


def test_a_random_policy_neither_succeeds_nor_faults(env: RobotEnv) -> None:
    rng = np.random.default_rng(0)
    for seed in range(4):
        env.reset(seed=seed)
        for _ in range(100):
            *_, terminated, truncated, _ = env.step(rng.uniform(-1, 1, 7).astype(np.float32))
            assert not terminated and not truncated


def test_both_views_show_the_aubergine_and_whether_it_is_on_the_plate() -> None:
    env = make_robot_env(RobotConfig(task="pick_place"))
    world = world_of(env)
    for seed in range(15):
        values, _ = env.reset(seed=seed)
        world.place_body("aubergine", on_plate(world))
        for camera in env.robot.cameras:
            before = values["images"][camera.name].astype(int)
            red, green, blue = np.moveaxis(before, 2, 0)
            assert ((blue > red) & (red > green + 40) & (green < 60)).sum() >= 40, (seed, camera.name)
            change = np.abs(camera.read().image.astype(int) - before).max(axis=2)
            assert (change > 60).sum() >= 60, (seed, camera.name)
    assert {camera.name for camera in env.robot.cameras} == {WRIST_VIEW, SIDE_VIEW}
    env.close()


def test_same_seed_same_episode(env: RobotEnv) -> None:
    def episode() -> np.ndarray:
        expert = make_expert(env, np.random.default_rng(3))
        values, _ = env.reset(seed=3)
        seen = [values["proprio"]]
        for _ in range(25):
            seen.append(env.step(expert.act())[0]["proprio"])
        return np.stack(seen)

    np.testing.assert_array_equal(episode(), episode())
