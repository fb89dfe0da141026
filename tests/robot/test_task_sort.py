"""sort: the named item in the tray, alone, counts; the expert also clears away what does not belong there."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from robot import factory
from robot.env import RobotEnv
from robot.factory import ObsKind, RobotConfig, make_corrector, make_expert, make_robot_env
from robot.sim.expert import ExpertNoise
from robot.sim.tasks.sort import ITEMS, LANE, SPACING, TRAY_FLOOR, TRAY_HALF, Category, SortTask
from robot.wrappers import HumanIntervention

IDLE = np.zeros(7, np.float32)
CONFIG = RobotConfig(task="sort", obs=ObsKind.STATE)


@pytest.fixture(scope="module")
def env() -> Iterator[RobotEnv]:
    made = make_robot_env(CONFIG)
    limit = made.robot.spec.max_steps
    made.robot.spec = replace(made.robot.spec, max_steps=3 * limit)
    yield made
    made.close()


def world_of(env: RobotEnv) -> Any:
    return env.workcell.world  # type: ignore[attr-defined]


def place_in_tray(world: Any, category: Category, sideways: float = 0.0) -> None:
    item = ITEMS[category]
    world.place_body(item.body, world.body_position("tray") + [sideways, 0.0, TRAY_FLOOR + item.rest])


def finish(env: RobotEnv, policy: Any) -> tuple[bool, int]:
    """Let the policy act; whether it succeeded, and after how many steps."""
    steps = 0
    while True:
        *_, terminated, truncated, _ = env.step(policy.act())
        steps += 1
        if terminated or truncated:
            return bool(terminated), steps


def test_the_named_item_in_the_tray_counts_once_it_has_lain_there(env: RobotEnv) -> None:
    env.reset(seed=0)
    place_in_tray(world_of(env), Category.BLOCK)
    outcomes = [env.step(IDLE)[2] for _ in range(env.robot.spec.hold_steps)]
    assert outcomes == [False, False, True]


@pytest.mark.parametrize("wrong", [Category.BALL, Category.BANANA, Category.CAN])
def test_another_item_in_the_tray_does_not_count_and_spoils_it(env: RobotEnv, wrong: Category) -> None:
    env.reset(seed=0)
    world = world_of(env)
    place_in_tray(world, wrong, sideways=-0.025)
    assert not env.workcell.success()
    assert env.workcell.failure() == f"took the {ITEMS[wrong].body}"  # type: ignore[attr-defined]
    place_in_tray(world, Category.BLOCK, sideways=0.025)
    assert not env.workcell.success()
    world.place_body(ITEMS[wrong].body, np.array([0.3, 0.1, 0.02]))
    assert env.workcell.success()


def test_on_the_wall_of_the_tray_it_does_not_count(env: RobotEnv) -> None:
    env.reset(seed=0)
    world = world_of(env)
    world.place_body("block", world.body_position("tray") + [TRAY_HALF - 0.005, 0.0, 0.01 + 0.018])
    assert not env.workcell.success()
    assert env.workcell.failure() == "put down beside the goal"  # type: ignore[attr-defined]


def test_layouts_leave_room_for_the_open_fingers(env: RobotEnv) -> None:
    world = world_of(env)
    seen = []
    for seed in range(60):
        env.reset(seed=seed)
        named, *others = (world.body_position(item.body)[:2] for item in ITEMS.values())
        assert all((np.abs(other - named) > LANE - 2e-3).any() for other in others)
        places = np.stack([named, *others])
        gaps = np.linalg.norm(places[:, None] - places, axis=2) + np.eye(4)
        assert gaps.min() >= SPACING - 2e-3
        assert (np.abs(places - world.body_position("tray")[:2])[:, 1] > TRAY_HALF + 0.03).all()
        seen.append(named)
    assert (np.ptp(seen, axis=0) > [0.08, 0.1]).all()


def test_expert_succeeds_at_its_default_noise(env: RobotEnv) -> None:
    expert = make_expert(env, np.random.default_rng(0))
    lengths = []
    for seed in range(10):
        env.reset(seed=seed)
        expert.reset()
        success, steps = finish(env, expert)
        assert success, seed
        lengths.append(steps)
    assert np.mean(lengths) <= 50


@pytest.mark.parametrize("category", [Category.BALL, Category.BANANA, Category.CAN])
def test_every_category_can_be_asked_for(category: Category, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "make_task", lambda name: SortTask(category))
    env = make_robot_env(CONFIG)
    assert category.value in env.robot.spec.instruction
    expert = make_expert(env, np.random.default_rng(0))
    for seed in range(2):
        env.reset(seed=seed)
        expert.reset()
        assert finish(env, expert)[0], seed
        assert env.workcell.success()
        assert np.linalg.norm(_offset(world_of(env), ITEMS[category].body)) < TRAY_HALF
    env.close()


@pytest.mark.parametrize("wrong", [Category.BALL, Category.BANANA, Category.CAN])
def test_expert_takes_a_wrong_item_out_of_the_tray_first(env: RobotEnv, wrong: Category) -> None:
    env.reset(seed=2)
    place_in_tray(world_of(env), wrong)
    task: Any = env.workcell.task  # type: ignore[attr-defined]
    assert task.progress(world_of(env)) > 1.0
    assert finish(env, make_expert(env, np.random.default_rng(0)))[0]
    assert np.abs(_offset(world_of(env), ITEMS[wrong].body)).max() > TRAY_HALF


def test_expert_takes_over_from_wherever_a_random_policy_went(env: RobotEnv) -> None:
    expert = make_expert(env, np.random.default_rng(0))
    for seed in range(6):
        env.reset(seed=seed)
        expert.reset()
        rng = np.random.default_rng(seed)
        for step in range(30):
            if step % 3 == 0:
                action = rng.choice([-1.0, 0.0, 1.0], 7).astype(np.float32)
            env.step(action)
        assert finish(env, expert)[0], seed


def test_the_jaws_turn_away_from_a_neighbour(env: RobotEnv) -> None:
    env.reset(seed=0)
    world = world_of(env)
    task: Any = env.workcell.task  # type: ignore[attr-defined]
    for i, item in enumerate(ITEMS.values()):
        world.place_body(item.body, np.array([0.22 + 0.04 * i, 0.15, item.rest]))
    world.place_body("block", np.array([0.28, 0.05, 0.018]))
    assert task.privileged(world)[3] == pytest.approx(0.0, abs=0.02)
    world.place_body("can", np.array([0.28, 0.105, 0.02]))  # where a finger would come down
    assert abs(task.privileged(world)[3]) > 0.4


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
    for seed in range(4):
        env.reset(seed=seed)
        expert.reset()
        left, terminated = [task.progress(world_of(env))], False
        while not terminated:
            *_, terminated, _, _ = env.step(expert.act())
            left.append(task.progress(world_of(env)))
        assert (np.array(left[:-8]) - np.array(left[8:])).min() > 0.01
        assert left[-1] == pytest.approx(0.0, abs=1e-3)


def test_privileged_state_tells_where_the_others_are(env: RobotEnv) -> None:
    values, _ = env.reset(seed=4)
    told = dict(zip(env.proprio_spec.names, values["proprio"].tolist(), strict=True))
    world = world_of(env)
    tool, can = world.tcp().position, world.body_position("can")
    assert told["can_dx"] == pytest.approx(can[0] - tool[0], abs=1e-4)
    assert told["can_dy"] == pytest.approx(can[1] - tool[1], abs=1e-4)
    assert told["tray_dy"] == pytest.approx(_offset(world, "block")[1] * -1, abs=1e-4)


def test_a_random_policy_neither_succeeds_nor_faults(env: RobotEnv) -> None:
    rng = np.random.default_rng(0)
    for seed in range(3):
        env.reset(seed=seed)
        for _ in range(100):
            *_, terminated, truncated, _ = env.step(rng.uniform(-1, 1, 7).astype(np.float32))
            assert not terminated and not truncated


def test_both_views_show_the_named_item_and_whether_it_is_in_the_tray() -> None:
    env = make_robot_env(RobotConfig(task="sort"))
    world = world_of(env)
    for seed in range(15):
        values, _ = env.reset(seed=seed)
        place_in_tray(world, Category.BLOCK)
        for camera in env.robot.cameras:
            before = values["images"][camera.name].astype(int)
            red, green, blue = np.moveaxis(before, 2, 0)
            assert ((red > 120) & (green < 60) & (blue < 60)).sum() >= 30, (seed, camera.name)
            change = np.abs(camera.read().image.astype(int) - before).max(axis=2)
            assert (change > 60).sum() >= 40, (seed, camera.name)
    env.close()


def _offset(world: Any, body: str) -> np.ndarray:
    """(2,) m from the tray's centre."""
    offset: np.ndarray = (world.body_position(body) - world.body_position("tray"))[:2]
    return offset
