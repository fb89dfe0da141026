"""`groundhog clone-policy`: it learns what the data show, never draws what is held out, and names bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl.agent.acting import MODE, ActingPolicy
from rl.agent.spec import AgentSpec, GripperControl
from rl.clone_policy import main
from rl.cloning import ClonePolicyConfig, Cloning, opened, recorded_spec
from rl.config import load
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.replay.schema import StoreSchema
from rl.replay.writer import StoreWriter
from rl.runtime.weights import WeightsDirectory
from robot.types import Float32, Observation, ProprioSpec, Transition

STEPS = 12
SMALL = ["cpu_minutes=null", "steps=120", "batch_size=32", "agent.hidden=32", "agent.encoder.feature_dim=8"]
SMALL += ["holdout.every=3", "agent.bc_lr=3e-3"]


def wanted(proprio: Float32) -> Float32:
    """The demonstrated action: a function of the proprio alone; the fourth to sixth entry stay 0."""
    action = np.zeros(7, np.float32)
    action[:3] = 0.8 * proprio[0], -0.5 * proprio[1], 0.3
    action[6] = 1.0 if proprio[0] > 0 else -1.0
    return action


def record(path: Path, episodes: int = 9, views: tuple[str, ...] = ("front", "wrist")) -> Path:
    zeros, ones = np.zeros(2, np.float32), np.ones(2, np.float32)
    spec = ProprioSpec(names=("a", "b"), offset=zeros, scale=ones, fine=zeros)
    rng = np.random.default_rng(0)

    def seen(step: int) -> Observation:
        images = {view: rng.integers(0, 256, (16, 16, 3), dtype=np.uint8) for view in views}
        return Observation(images, rng.uniform(-1, 1, 2).astype(np.float32), 0.1 * step)

    with StoreWriter(
        path, StoreSchema("toy", dict.fromkeys(views, (16, 16)), spec, segment_rows=64)
    ) as writer:
        for _ in range(episodes):
            before = seen(0)
            writer.begin_episode(before)
            for step in range(STEPS):
                after, action = seen(step + 1), wanted(before.proprio)
                writer.add(
                    Transition(
                        observation=before,
                        action=action,
                        requested_action=action,
                        reward=0.0,
                        next_observation=after,
                        terminated=False,
                        truncated=step == STEPS - 1,
                    )
                )
                before = after
            writer.end_episode(EpisodeOutcome(EndReason.TIMEOUT))
    return path


def test_falls_below_both_baselines_and_the_published_policy_acts(tmp_path: Path) -> None:
    store, out = record(tmp_path / "store"), tmp_path / "out"
    overrides = [*SMALL, f"data={store}", f"out={out}", "views=[wrist]"]
    assert main(overrides) == 0
    result = json.loads((out / "cloning.json").read_text())
    rows = {row["by"]: row for row in result["rows"]}
    assert result["updates"] == 120 and rows["policy"]["steps"] == 3 * STEPS
    for baseline in ("mean", "previous"):
        assert rows["policy"]["error"] < 0.6 * rows[baseline]["error"]
        assert rows["policy"]["gripper_accuracy"] > rows[baseline]["gripper_accuracy"]
    assert set(rows["policy"]["per_axis"]) == {"x", "y", "z"}

    spec = AgentSpec.from_json(json.loads((out / "spec.json").read_text()))
    assert (
        spec.active == (0, 1, 2) and spec.gripper is GripperControl.DISCRETE and set(spec.views) == {"wrist"}
    )
    policy = ActingPolicy(load("clone-policy", overrides).agent, spec, device=torch.device("cpu"), seed=1)
    policy.load_tensors(WeightsDirectory(out / "weights").load().tensors)
    observation = Observation(
        {"wrist": np.zeros((16, 16, 3), np.uint8)}, np.array([0.8, -0.8], np.float32), 0.0
    )
    error = np.abs(policy.act(observation, noise=MODE) - wanted(observation.proprio))
    assert error.max() < 0.35


def cloned(config: ClonePolicyConfig) -> Cloning:
    with opened(config, print) as parts:
        cloning = Cloning(config, parts, lambda: 0.0)
        for _ in cloning.train():
            pass
    return cloning


def test_the_weights_nearest_to_the_held_out_episodes_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, out = record(tmp_path / "store"), tmp_path / "out"
    distances = iter([0.5, 0.2, 0.4, 0.4])  # after 10, 20 and 30 updates, and once more at the end
    asked = [*SMALL, f"data={store}", f"out={out}", "steps=30", "judge_every=10"]
    with monkeypatch.context() as patch:
        patch.setattr(Cloning, "distance", lambda *_: next(distances))
        assert main(asked) == 0
    result = json.loads((out / "cloning.json").read_text())
    assert (result["updates"], result["kept_update"], result["kept_distance"]) == (30, 20, 0.2)
    shorter = cloned(load("clone-policy", [*asked, "steps=20"])).agent.policy_tensors()
    published = WeightsDirectory(out / "weights").load()
    assert published.updates == 20
    assert all(torch.equal(tensor, shorter[name]) for name, tensor in published.tensors.items())


def test_the_last_weights_are_kept_where_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load("clone-policy", [*SMALL, f"data={record(tmp_path / 'store')}", "steps=3", "judge_every=0"])
    distances = iter([0.2, 0.5])
    monkeypatch.setattr(Cloning, "distance", lambda *_: next(distances))
    with opened(config, print) as parts:
        cloning = Cloning(config, parts, lambda: 0.0)
        assert cloning.keep().update == 0
        for _ in cloning.train():
            pass
        assert cloning.keep().update == 3


def test_the_distance_counts_every_entry_that_is_controlled(tmp_path: Path) -> None:
    with opened(load("clone-policy", [*SMALL, f"data={record(tmp_path / 'store')}"]), print) as parts:
        cloning = Cloning(load("clone-policy", [*SMALL, f"data={tmp_path / 'store'}"]), parts, lambda: 0.0)
        policy = cloning.agent.robot_policy
        rows = cloning.judge(cloning.keep())
        motion = rows[0]["error"]
        wrong = 1.0 - rows[0]["gripper_accuracy"]
        gripper = 4.0 * cloning.distance(policy) - 3.0 * motion  # three axes move
    assert 0.0 < wrong <= gripper + 1e-6 <= 2.0 * wrong + 2e-6, "a wrong command is 1 or 2 off"


def test_held_out_episodes_are_never_drawn_and_a_seed_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = record(tmp_path / "store", episodes=4)
    config = load("clone-policy", [*SMALL, f"data={store}", "steps=10", "holdout.episodes=[1,2]"])
    drawn: list[np.ndarray] = []
    gather = StoreReader.gather

    def watched(self: StoreReader, rows: np.ndarray, *rest: Any) -> None:
        drawn.append(self.records(rows)["observation"]["episode"])
        gather(self, rows, *rest)

    monkeypatch.setattr(StoreReader, "gather", watched)
    first = cloned(config)
    assert set(np.concatenate(drawn).tolist()) == {0, 3}
    again = cloned(config).agent.policy_tensors()
    assert all(torch.equal(tensor, again[name]) for name, tensor in first.agent.policy_tensors().items())


def test_spec_follows_the_recorded_actions(tmp_path: Path) -> None:
    schema = StoreReader(record(tmp_path / "store", episodes=1)).schema
    actions = np.zeros((4, 7), np.float32)
    actions[:, 4] = 0.2
    spec = recorded_spec(schema, actions, [])
    assert spec.active == (4,) and spec.gripper is GripperControl.FIXED and len(spec.views) == 2
    actions[1, 6] = 0.37
    assert recorded_spec(schema, actions, []).gripper is GripperControl.CONTINUOUS


@pytest.mark.parametrize(
    ("episodes", "views", "overrides", "message"),
    [
        (1, ("front",), [], "expected at least 2"),
        (3, ("front",), ["holdout.episodes=[0,1,2]"], "none is to learn from"),
        (3, ("front",), ["holdout.episodes=[7]"], "none is held out"),
        (3, (), [], "no images"),
        (3, ("front",), ["views=[side]"], "choose among front"),
        (3, ("front",), ["steps=null"], "one of cpu_minutes and steps"),
        (3, ("front",), ["data=nowhere"], "neither a store nor a run"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    episodes: int,
    views: tuple[str, ...],
    overrides: list[str],
    message: str,
) -> None:
    store = record(tmp_path / "store", episodes, views)
    assert main([*SMALL, f"data={store}", *overrides]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    assert not (store / "cloned").exists()
