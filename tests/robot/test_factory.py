"""RobotConfig is checked where it is written; wrong names come back with the nearest right one."""

from typing import Any

import numpy as np
import pytest

from robot.factory import ObsKind, RobotConfig, make_expert, make_robot_env, make_task, safety_config
from robot.kinematics import Kinematics
from robot.tasks import PROPRIO_NAMES
from robot.timing import TimingConfig
from tests.robot.attended_rig import CELL


@pytest.mark.parametrize(
    "wrong",
    [
        {"image_px": 31},
        {"image_px": 513},
        {"control_hz": 0.5},
        {"views": []},
        {"views": ["side", "side"]},
    ],
)
def test_ranges(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"robot.{next(iter(wrong))}: expected"):
        RobotConfig(**wrong)


def test_unknown_task_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"robot.task=pres: no such task; did you mean press\? known: press"):
        make_robot_env(RobotConfig(task="pres"))


def test_views_choose_the_cameras() -> None:
    env = make_robot_env(RobotConfig(image_px=32, views=["side"]))
    values, info = env.reset(seed=0)
    assert list(values["images"]) == list(info["image_timestamps"]) == ["side"]
    env.close()


def test_the_seed_is_that_of_the_first_unseeded_reset() -> None:
    first, second, other = (
        make_robot_env(RobotConfig(obs=ObsKind.STATE), seed=seed).reset()[0]["proprio"] for seed in (4, 4, 5)
    )
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - other).max() > 1e-3


def test_scripted_hands_need_a_simulated_cell() -> None:
    env = make_robot_env(RobotConfig(obs=ObsKind.STATE))
    env.workcell = object()  # type: ignore[assignment]
    with pytest.raises(ValueError, match="simulated cell"):
        make_expert(env, np.random.default_rng(0))


def test_a_physical_arm_is_not_commanded_more_slowly_than_silence_stops_it() -> None:
    kinematics, slow = Kinematics(), 1.0
    with pytest.raises(ValueError, match=r"raise robot\.control_hz"):
        CELL.safety(CELL.spec("test", kinematics), kinematics, slow)
    make_robot_env(RobotConfig(obs=ObsKind.STATE, control_hz=1.0 / slow)).close()  # time stands still there


def test_an_unclipped_action_fits_the_limits_of_the_simulated_cell() -> None:
    spec = make_task("press").spec
    config = safety_config(spec, 0.1)
    assert config.max_position_step == pytest.approx(np.linalg.norm([spec.action_scale.position] * 3))
    assert config.leash_position > config.max_position_step


def test_proprio_spec_follows_the_task() -> None:
    spec = make_task("press").spec
    proprio = spec.proprio(0.1)
    assert tuple(proprio.names) == PROPRIO_NAMES and proprio.dim == 20
    np.testing.assert_allclose(
        proprio.offset[:3] + proprio.scale[:3], spec.workspace_upper, atol=1e-6
    )  # the box spans -1 .. 1
    assert proprio.scale[6] == pytest.approx(spec.action_scale.position / 0.1)
    assert proprio.fine[12] > 0 == proprio.fine[0]


@pytest.mark.parametrize(
    "wrong", [{"control_period": 0.0}, {"max_frame_age": 0.0}, {"max_observation_age": 0.0}]
)
def test_timing_is_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="TimingConfig"):
        TimingConfig(**wrong)
