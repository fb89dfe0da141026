"""Why an episode failed: by the distances on the way, and in the words of the press task."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from robot.env import RobotEnv
from robot.factory import ObsKind, RobotConfig, make_robot_env
from robot.geometry import Pose
from robot.kinematics import IKConfig, Kinematics
from robot.sim.failure import LOST, NEVER_REACHED, UNFINISHED, by_progress
from robot.sim.workcell import SimWorkcell
from robot.types import Array


@pytest.mark.parametrize(
    ("distances", "expected"),
    [
        ([0.20, 0.18, 0.15], NEVER_REACHED),
        ([0.20, 0.02, 0.03], UNFINISHED),
        ([0.20, 0.02, 0.15], LOST),
        ([], NEVER_REACHED),
    ],
)
def test_classes_by_progress(distances: list[float], expected: str) -> None:
    assert by_progress(distances) == expected


@pytest.fixture
def env() -> Iterator[RobotEnv]:
    env = make_robot_env(RobotConfig(obs=ObsKind.STATE))
    yield env
    env.close()


def cell_of(env: RobotEnv) -> SimWorkcell:
    assert isinstance(env.workcell, SimWorkcell)
    return env.workcell


def place_above_lever(env: RobotEnv, offset: Array) -> None:
    """The tool point at `offset` (3,) [m] from the middle of the lever."""
    cell = cell_of(env)
    goal = Pose(cell.world.body_position("lever") + offset, env.robot.spec.reference_rotation)
    found = Kinematics().inverse(goal, env.robot.spec.reset_joints, IKConfig(max_iterations=60))
    assert found.converged
    cell.world.place_arm(found.joint_positions, 0.0)


def test_press_names_a_lever_that_is_not_all_the_way_down(env: RobotEnv) -> None:
    env.reset(seed=0)
    cell_of(env).world.set_joint("lever", 0.02)
    assert cell_of(env).failure() == "not pressed through"


def test_press_names_a_finger_beside_the_lever(env: RobotEnv) -> None:
    env.reset(seed=0)
    place_above_lever(env, np.array([-0.004, 0.05, 0.0]))
    assert cell_of(env).failure() == "beside the lever"
    place_above_lever(env, np.array([-0.004, 0.05, 0.06]))
    assert cell_of(env).failure() != "beside the lever"


def test_the_last_step_says_why_and_no_other(env: RobotEnv) -> None:
    for episode in range(2):  # the second one begins with a clean record
        env.reset(seed=episode)
        up = np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], np.float32)
        ended = False
        while not ended:
            _, _, terminated, ended, info = env.step(up)
            assert not terminated and ("failure" in info) == ended
        assert info["failure"] == NEVER_REACHED
