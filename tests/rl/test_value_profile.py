"""The value profile: the tool stands where the map says, unreachable cells stay empty, a run is left as it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rl import checkpoint
from rl.agent.sac import SACAgent
from rl.batch import Batch
from rl.build import make_spec
from rl.config import load_dict
from rl.diagnostics.value_profile import ValueProfile, ValueProfileConfig, value_profile
from rl.report import PROFILE, write_value_profile
from rl.runtime.run_dir import RunDir
from robot.env import RobotEnv
from robot.factory import ObsKind, RobotConfig, make_expert, make_robot_env
from robot.sim.expert import ExpertNoise, ScriptedExpert
from robot.types import Float32, Observation

SMALL = ValueProfileConfig(points=3, yaw_points=3, layouts=2)


class Reading:
    """Its value is one entry of the proprio, whatever it does."""

    def __init__(self, env: RobotEnv, name: str) -> None:
        self._index = list(env.proprio_spec.names).index(name)
        self.seen: list[Observation] = []

    def act(self, observation: Observation, *, noise: Float32 | None = None) -> Float32:
        assert noise is not None and not noise.any()
        self.seen.append(observation)
        return np.zeros(7, np.float32)

    def q_values(self, batch: Batch) -> NDArray[np.float32]:
        return batch.proprio[:, self._index]


@pytest.fixture
def env() -> Iterator[RobotEnv]:
    env = make_robot_env(RobotConfig(obs=ObsKind.STATE))
    yield env
    env.close()


def expert_of(env: RobotEnv) -> ScriptedExpert:
    return make_expert(env, np.random.default_rng(0), ExpertNoise(0.0))


def profile_of(env: RobotEnv, name: str, config: ValueProfileConfig = SMALL) -> ValueProfile:
    profile = value_profile(env, Reading(env, name), expert_of(env), config, first_seed=7)
    assert profile is not None and profile.layouts == config.layouts
    return profile


def test_rows_are_x_and_columns_are_y(env: RobotEnv) -> None:
    x, y = profile_of(env, "lever_dx"), profile_of(env, "lever_dy")
    for profile in (x, y):  # the lever is on the other side by as much as the tool was displaced
        profile.value[...] -= profile.value[1, 1]
    np.testing.assert_allclose(x.value, -x.x[:, None] * np.ones((1, 3)), atol=2e-4)
    np.testing.assert_allclose(y.value, -np.ones((3, 1)) * y.y[None], atol=2e-4)


def test_yaw_turns_the_tool_and_nothing_else(env: RobotEnv) -> None:
    turned, moved = profile_of(env, "ee_rz"), profile_of(env, "ee_x")
    np.testing.assert_allclose(turned.yaw_value - turned.yaw_value[1], turned.yaw, atol=2e-3)
    np.testing.assert_allclose(moved.yaw_value, moved.yaw_value[1], atol=2e-4)


def test_the_policy_sees_an_arm_at_rest_near_the_goal(env: RobotEnv) -> None:
    agent = Reading(env, "ee_x")
    value_profile(env, agent, expert_of(env), replace(SMALL, layouts=1), first_seed=7)
    names = list(env.proprio_spec.names)
    for observation in agent.seen:
        values = dict(zip(names, observation.proprio.tolist(), strict=True))
        assert all(abs(values[n]) < 1e-5 for n in names if "velocity" in n or "lag" in n)
        assert -0.08 < values["lever_dz"] < 0.0 and values["lever_depth"] == pytest.approx(0.0, abs=1e-3)


def test_where_the_arm_must_not_be_there_is_no_value(env: RobotEnv) -> None:
    profile = profile_of(env, "ee_x", ValueProfileConfig(reach=0.1, points=3, yaw_points=3, layouts=1))
    assert np.isnan(profile.value).any() and np.isfinite(profile.value[1, 1])
    shape, text = profile.shape(), json.dumps(profile.as_json())
    assert shape is not None and np.isfinite([shape.contrast, shape.spread]).all()
    assert "NaN" not in text and "null" in text


def test_shape_names_peak_contrast_and_spread() -> None:
    x = np.array([-0.01, 0.0, 0.01])
    value = np.zeros((3, 3))
    value[2, 0] = 0.9
    shape = ValueProfile(x, x, value, x, np.full(3, 0.5), 1).shape()
    assert shape is not None and shape.peak == (0.01, -0.01) and shape.spread == pytest.approx(0.9)
    assert shape.contrast == pytest.approx((0.9 - 0.1) / value.std())
    flat = ValueProfile(x, x, value, x, np.full(3, 0.5), 1).yaw_shape()
    assert flat is not None and (flat.contrast, flat.spread) == (0.0, 0.0)


def test_a_real_arm_is_refused(env: RobotEnv) -> None:
    agent, expert = Reading(env, "ee_x"), expert_of(env)
    env.workcell = object()  # type: ignore[assignment]
    with pytest.raises(ValueError, match="simulated cell"):
        value_profile(env, agent, expert, SMALL, first_seed=7)


def digest(path: Path) -> dict[str, str]:
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def test_a_run_gets_picture_and_numbers_of_its_newest_checkpoint(tmp_path: Path, env: RobotEnv) -> None:
    overrides = ["robot.obs=state", "robot.clock=wall", "pacing.actor_waits=episode"]
    overrides += ["agent.hidden=16", "agent.num_critics=2"]
    run = RunDir.create(tmp_path / "run", load_dict("train", overrides))
    run.spec = make_spec(env, run.config.gripper)
    assert write_value_profile(run, run.config, SMALL) is None  # nothing learnt yet
    agent = SACAgent(run.config.agent, run.spec, device=torch.device("cpu"), seed=3)
    tensors, meta = agent.state()
    checkpoint.save(run.checkpoints, tensors, {"updates": 12, "learner": {}, "agent": meta})
    before = digest(run.path)
    picture = write_value_profile(run, run.config, SMALL)
    assert picture is not None and picture.stat().st_size > 1000
    content = run.read_json(f"{PROFILE}.json")
    assert content is not None and content["updates"] == 12 and content["layouts"] == 2
    assert np.asarray(content["value"]).shape == (3, 3) and content["spread"] > 0
    after = digest(run.path)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {f"{PROFILE}.png", f"{PROFILE}.json"}
