"""insert: the slot decides what goes in, the expert finds it from anywhere, and the views show it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from robot.env import RobotEnv
from robot.factory import ObsKind, RobotConfig, make_corrector, make_expert, make_robot_env, make_task
from robot.geometry import Pose, rotvec_to_matrix
from robot.kinematics import IKConfig, Kinematics
from robot.sim.expert import ExpertNoise
from robot.sim.scene import SIDE_VIEW, WRIST_VIEW, WRIST_ZOOM_VIEW
from robot.sim.tasks.insert import FLOOR, INSERTED, RIM, SLOT, TIP, InsertTask
from robot.wrappers import HumanIntervention

NAMES = ("insert", "insert_tight")
CLEARANCE = {"insert": 0.0015, "insert_tight": 0.0005}


@pytest.fixture(scope="module")
def envs() -> Iterator[dict[str, RobotEnv]]:
    made = {name: make_robot_env(RobotConfig(task=name, obs=ObsKind.STATE)) for name in NAMES}
    yield made
    for env in made.values():
        env.close()


def lower(env: RobotEnv, aside: tuple[float, float], yaw: float, steps: int = 12) -> Any:
    """Push the block straight down over a slot that stands straight, `aside` [m] of it and turned by `yaw`."""
    env.reset(seed=0)
    world, spec = env.workcell.world, env.robot.spec  # type: ignore[attr-defined]
    world.place_body("slot", SLOT)
    rotation = rotvec_to_matrix(np.array([0.0, 0.0, yaw])) @ spec.reference_rotation
    above = Pose(SLOT + np.array([*aside, RIM + 0.01 + TIP]), rotation)
    joints = Kinematics().inverse(above, spec.reset_joints, IKConfig(max_iterations=100))
    assert joints.converged
    world.place_arm(joints.joint_positions, spec.initial_gripper)
    env.robot.begin_episode()
    outcome: Any = None
    for _ in range(steps):
        outcome = env.step(np.array([0, 0, -0.5, 0, 0, 0, 0], np.float32))
        if outcome[2]:
            break
    return outcome


@pytest.mark.parametrize("name", NAMES)
def test_only_a_block_that_is_in_line_goes_in(envs: dict[str, RobotEnv], name: str) -> None:
    env, gap = envs[name], CLEARANCE[name]
    height = env.robot.proprio_spec.names.index("tip_height")
    for aside, yaw in (((0.0, 0.0), 0.0), ((0.7 * gap, -0.7 * gap), 0.0)):
        *_, terminated, _, info = outcome = lower(env, aside, yaw)
        assert terminated and info["success"], (aside, yaw)
        assert outcome[0]["proprio"][height] <= -INSERTED
    for aside, yaw in (((gap + 0.0015, 0.0), 0.0), ((0.0, -gap - 0.0015), 0.0), ((0.0, 0.0), 0.3)):
        values, reward, terminated, *_ = lower(env, aside, yaw)
        assert not terminated and reward == 0.0, (aside, yaw)
        assert values["proprio"][height] > -0.003  # the rim holds it, whatever presses


def test_beside_the_slot_is_no_success_however_low(envs: dict[str, RobotEnv]) -> None:
    values, _, terminated, *_ = lower(envs["insert"], (-0.05, 0.0), 0.0)
    height = envs["insert"].robot.proprio_spec.names.index("tip_height")
    assert values["proprio"][height] < FLOOR - RIM and not terminated
    assert envs["insert"].workcell.failure() == "beside the slot"


def test_failures_are_told_apart(envs: dict[str, RobotEnv]) -> None:
    lower(envs["insert"], (0.004, 0.0), 0.0)
    assert envs["insert"].workcell.failure() == "jammed on the rim"
    lower(envs["insert"], (0.0, 0.0), 0.0, steps=3)
    assert envs["insert"].workcell.failure() == "not pushed through"


@pytest.mark.parametrize(("name", "at_most"), [("insert", 35), ("insert_tight", 60)])
def test_expert_inserts_at_its_default_noise(envs: dict[str, RobotEnv], name: str, at_most: float) -> None:
    env, lengths = envs[name], []
    expert = make_expert(env, np.random.default_rng(0))
    for seed in range(8):
        env.reset(seed=seed)
        expert.reset()
        steps, ended = 0, False
        while not ended:
            *_, terminated, truncated, _ = env.step(expert.act())
            steps, ended = steps + 1, terminated or truncated
        assert terminated, (seed, env.workcell.failure())
        lengths.append(steps)
    assert np.mean(lengths) <= at_most


def test_expert_takes_over_from_wherever_a_random_policy_went(envs: dict[str, RobotEnv]) -> None:
    env = envs["insert"]
    expert = make_expert(env, np.random.default_rng(0))
    for seed in range(5):
        env.reset(seed=seed)
        rng, action = np.random.default_rng(seed), np.zeros(7)
        for step in range(50):
            if step % 4 == 0:
                action = rng.uniform(-1, 1, 7)
                action[2] = -0.5  # down onto whatever is there
            env.step(action)
        for _ in range(50):
            *_, terminated, truncated, _ = env.step(expert.act())
            if terminated or truncated:
                break
        assert terminated, seed


def test_corrector_rescues_an_idle_policy(envs: dict[str, RobotEnv]) -> None:
    corrected = HumanIntervention(envs["insert"], make_corrector(envs["insert"], np.random.default_rng(0)))
    for seed in range(4):
        corrected.reset(seed=seed)
        ended = False
        while not ended:
            *_, terminated, truncated, _ = corrected.step(np.zeros(7, np.float32))
            ended = terminated or truncated
        assert terminated, seed


def test_progress_falls_along_a_clean_demonstration(envs: dict[str, RobotEnv]) -> None:
    env = envs["insert"]
    task, world = env.workcell.task, env.workcell.world  # type: ignore[attr-defined]
    expert = make_expert(env, np.random.default_rng(0), ExpertNoise(0.0))
    for seed in range(5):
        env.reset(seed=seed)
        left = [task.progress(world)]
        for _ in range(40):
            *_, terminated, _, _ = env.step(expert.act())
            left.append(task.progress(world))
            if terminated:
                break
        assert left[-1] < 0.012 and np.diff(left).max() < 0.004, seed


def test_privileged_offsets_are_zero_in_the_slot_and_tell_its_turn() -> None:
    task = make_task("insert")
    assert task.privileged_spec.names[:4] == ("tip_dx", "tip_dy", "tip_height", "yaw_error")
    np.testing.assert_array_equal(task.privileged_spec.fine[:4], np.float32([0.003, 0.003, 0.01, 0.06]))
    env = make_robot_env(RobotConfig(task="insert", obs=ObsKind.STATE))
    places = []
    for seed in range(40):
        proprio = env.reset(seed=seed)[0]["proprio"][-7:]
        scaled = (proprio - task.privileged_spec.offset) / task.privileged_spec.scale
        assert np.abs(scaled).max() < 3.0
        assert proprio[3] == pytest.approx(proprio[6], abs=2e-3)  # the block starts straight
        places.append(proprio[4:])
    assert np.ptp(places, axis=0) == pytest.approx([0.1, 0.1, 0.44], rel=0.15)
    env.close()


def test_both_views_and_the_zoom_show_the_slot_and_whether_the_block_is_in() -> None:
    views = [WRIST_VIEW, SIDE_VIEW, WRIST_ZOOM_VIEW]
    env = make_robot_env(RobotConfig(task="insert", views=views))
    expert = make_expert(env, np.random.default_rng(0))

    def count(image: np.ndarray, magenta: bool) -> int:
        red, green, blue = np.moveaxis(image.astype(int), 2, 0)
        seen = (
            (red > 110) & (green < 70) & (blue > 100) if magenta else (blue > 90) & (red < 60) & (green < 90)
        )
        return int(seen.sum())

    for seed in range(6):
        images = env.reset(seed=seed)[0]["images"]
        assert min(count(images[view], magenta=False) for view in (WRIST_VIEW, SIDE_VIEW)) >= 60, seed
        assert min(count(images[view], magenta=True) for view in views) >= 5, seed
        expert.reset()
        terminated = False
        while not terminated:
            values, _, terminated, truncated, _ = env.step(expert.act())
            assert not truncated
        assert max(count(values["images"][view], magenta=True) for view in views) <= 3, seed
    # What the zoom resolves: the block is 18 mm wide.
    rows = env.reset(seed=0)[0]["images"][WRIST_ZOOM_VIEW].astype(int)
    wide = ((rows[..., 0] > 110) & (rows[..., 1] < 70) & (rows[..., 2] > 100)).sum(axis=1).max()
    assert 1.0 < 18.0 / wide < 1.5  # mm per pixel
    env.close()


def test_same_seed_same_episode(envs: dict[str, RobotEnv]) -> None:
    def episode() -> np.ndarray:
        env = envs["insert"]
        expert = make_expert(env, np.random.default_rng(1))
        seen = [env.reset(seed=9)[0]["proprio"]]
        for _ in range(10):
            seen.append(env.step(expert.act())[0]["proprio"])
        return np.stack(seen)

    np.testing.assert_array_equal(episode(), episode())


@pytest.mark.parametrize("clearance", [0.0, -0.001, 0.01])
def test_clearance_is_checked(clearance: float) -> None:
    with pytest.raises(ValueError, match="clearance"):
        InsertTask("insert", clearance)
