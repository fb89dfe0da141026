"""The simulated cell continues its episodes bit by bit; `groundhog audit-world-model` on the copied frame."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rl.audit_world_model import main
from rl.build import make_schema
from rl.simulated_cell import PlayedEpisode, SimulatedCell, play
from rl.world_models.data import make_spec
from robot.env import RobotEnv
from robot.factory import RobotConfig, make_expert, make_robot_env
from robot.types import Float32, Observation
from worldmodel.adapt import Scores, Versions
from worldmodel.baselines import CopyLastFrame

ROBOT = RobotConfig(task="press", image_px=32)
HORIZON, HISTORY = 6, 2


@pytest.fixture(scope="module")
def env() -> Iterator[RobotEnv]:
    env = make_robot_env(ROBOT)
    yield env
    env.close()


@pytest.fixture(scope="module")
def played(env: RobotEnv) -> PlayedEpisode:
    expert = make_expert(env, np.random.default_rng(0))
    return play(env, lambda _: expert.act(), seed=3)


@pytest.fixture(scope="module")
def cell(env: RobotEnv, played: PlayedEpisode) -> SimulatedCell:
    last = len(played.action)
    return SimulatedCell(env, [played], [(0, 0), (0, 5), (0, last - 2)])


def test_a_clip_holds_what_happened_and_is_padded_as_those_of_a_store(
    cell: SimulatedCell, played: PlayedEpisode
) -> None:
    clip = cell.clip(HORIZON, HISTORY)
    assert clip.images["wrist"].shape == (3, HISTORY + HORIZON + 1, 32, 32, 3)
    np.testing.assert_array_equal(clip.action[1], played.action[5 - HISTORY : 5 + HORIZON])
    np.testing.assert_array_equal(
        clip.images["side"][1, HISTORY], played.moments[5].observation.images["side"]
    )
    assert clip.valid[0].tolist() == [False] * HISTORY + [True] * HORIZON
    assert clip.valid[2].sum() == HISTORY + 2
    assert (clip.action[~clip.valid] == 0).all()
    np.testing.assert_array_equal(clip.images["wrist"][0, 0], clip.images["wrist"][0, HISTORY])


def test_replayed_actions_bring_the_same_frames_bit_by_bit_in_any_order(cell: SimulatedCell) -> None:
    clip = cell.clip(HORIZON, HISTORY)
    for index in (1, 0, 1, 2):
        done = cell.execute(index, clip.action[index, HISTORY:])
        kept = clip.valid[index, HISTORY:]
        np.testing.assert_array_equal(done.valid, kept)
        for view, frames in done.images.items():
            np.testing.assert_array_equal(frames, clip.images[view][index, HISTORY + 1 :])
        np.testing.assert_allclose(done.action[kept], clip.action[index, HISTORY:][kept], atol=1e-5)


def test_other_actions_bring_other_frames_and_the_governor_stays_in_front(cell: SimulatedCell) -> None:
    clip = cell.clip(HORIZON, HISTORY)
    down = np.zeros((HORIZON, 7), np.float32)
    down[:, 2] = -1.0
    done = cell.execute(1, down)
    assert (done.images["wrist"] != clip.images["wrist"][1, HISTORY + 1 :]).any()
    assert np.abs(done.action[:, 3:]).max() < 1e-6
    assert (done.action[:, 2] > -1.0 + 1e-3).any()  # the arm meets the toaster or the floor of its box


def test_a_leader_sees_what_comes_of_its_actions(cell: SimulatedCell) -> None:
    seen: list[Observation] = []

    def lead(observation: Observation) -> Float32:
        seen.append(observation)
        return np.array([0.3, 0, 0, 0, 0, 0, 0], np.float32)

    done = cell.lead(0, lead, 3)
    assert len(seen) == 3 and (np.diff([o.proprio[0] for o in seen]) > 0).all()
    np.testing.assert_array_equal(seen[1].images["side"], done.images["side"][0])


@pytest.fixture(scope="module")
def model(env: RobotEnv, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("audit")
    copied = CopyLastFrame(make_spec(make_schema(env), context_frames=3, max_horizon=8))
    Versions(out / "versions").publish(copied, Scores(20.0))
    return out


ARGUMENTS = ["robot.image_px=32", "episodes=2", "starts=2", "horizon=6", "local.branches=1"]


def test_the_command_writes_a_row_for_each_kind(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "counterfactual_audit.json"
    results.write_text(json.dumps({"rows": [{"task": "insert", "kind": "replay"}]}))
    assert main([f"model={model}", f"out={tmp_path}", f"results={results}", *ARGUMENTS]) == 0
    rows = json.loads((tmp_path / "audit.json").read_text())["rows"]
    assert [(row["task"], row["kind"]) for row in rows] == [("press", "replay"), ("press", "local")]
    assert all(row["psnr_gain"] == 0.0 and row["horizon_cap"] == 0 for row in rows)
    assert [row["task"] for row in json.loads(results.read_text())["rows"]] == ["insert", "press", "press"]
    assert "0 of 6 steps" in capsys.readouterr().out


def test_a_policy_sees_the_cameras_of_its_run_and_the_model_those_of_its_own(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forward(observation: Observation) -> Float32:
        assert {"wrist", "side"} <= set(observation.images)
        return np.array([0.5, 0, 0, 0, 0, 0, 0], np.float32)

    robot = RobotConfig(task="press", image_px=32, views=["wrist"])
    monkeypatch.setattr("rl.audit_world_model._policy", lambda config: (robot, forward))
    assert main([f"model={model}", f"out={tmp_path}", *ARGUMENTS]) == 0
    rows = json.loads((tmp_path / "audit.json").read_text())["rows"]
    assert [row["kind"] for row in rows] == ["replay", "local", "policy"]
    assert rows[2]["deviation_mm"] > rows[1]["deviation_mm"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("robot.image_px=64", "at 32x32 px, the data have"),
        ("robot.control_hz=5.0", "says nothing about another"),
        ("robot.obs=state", "holds no images"),
        ("noise=[0.5]", "expected [lowest, highest]"),
        ("horizon=9", "expected 1..8 steps, got 9"),
    ],
)
def test_a_robot_that_the_model_does_not_know_is_refused(
    more: str, message: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"model={model}", f"out={tmp_path}", *ARGUMENTS, more]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
