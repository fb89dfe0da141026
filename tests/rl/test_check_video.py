"""What a run that imagines video is refused for before it starts."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from replay_data import DONE, VIEWS, observation, schema, transition

from reward_model.classifier import ClassifierConfig, SuccessClassifier
from rl.config import ConfigError, load
from rl.replay.fingerprint import fingerprints
from rl.replay.reader import StoreReader
from rl.replay.schema import StoreSchema
from rl.replay.writer import StoreWriter
from rl.runtime.given import own_reward_model, own_versions
from rl.runtime.imagining import check_synthetic
from rl.runtime.run_dir import RunDir
from rl.schemas import TrainConfig
from robot.types import ProprioSpec
from worldmodel.baselines import CopyLastFrame
from worldmodel.interface import ActionNormalisation, WorldModelSpec


def config(*arguments: str) -> TrainConfig:
    found = load(
        "train", ["experiment=press_pixels", "synthetic.model=video", "demos.episodes=20", *arguments]
    )
    assert isinstance(found, TrainConfig)
    return found


def recorded(path: Path, made: StoreSchema | None = None, episodes: int = 2) -> Path:
    """A store of `episodes` episodes, two steps each."""
    with StoreWriter(path, made or schema()) as writer:
        for number in range(episodes):
            writer.begin_episode(observation(number, 0))
            writer.add(transition(number, 0))
            writer.add(transition(number, 1, terminated=True))
            writer.end_episode(DONE)
    return path


def test_anchors_of_this_cell_are_taken(tmp_path: Path) -> None:
    check_synthetic(config(f"synthetic.video.anchors={recorded(tmp_path)}"), schema())


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"task": "press"}, "task differs: expected 'press' as in this run, got 'insert'"),
        ({"views": {"front": (3, 4)}}, "views differs"),
        (
            {"views": {"front": (3, 4), "wrist": (4, 5)}},
            r"views.wrist \(height, width\) differs: expected \(4, 5\)",
        ),
        ({"action_dim": 7}, "action_dim differs: expected 7 as in this run, got 3"),
        ({"metadata": {"frame": "tool", "action_scale": [0.01, 0.06, 1.0]}}, "metadata.frame differs"),
    ],
)
def test_anchors_of_another_cell_are_refused_by_the_first_difference(
    tmp_path: Path, changed: dict[str, object], named: str
) -> None:
    with pytest.raises(ConfigError, match=f"synthetic.video.anchors={tmp_path}: {named}"):
        check_synthetic(config(f"synthetic.video.anchors={recorded(tmp_path)}"), schema(**changed))  # type: ignore[arg-type]


def taught(path: Path, learned: frozenset[str] | None) -> Path:
    """A published world model that says that it has learned from these episodes."""
    spec = WorldModelSpec({"front": (3, 4)}, ActionNormalisation.identity(3))
    CopyLastFrame(spec, version=1).save(path, learned=learned)
    return path


def judge(path: Path, data: dict[str, list[str]]) -> Path:
    classifier = SuccessClassifier(
        ClassifierConfig(channels=(4,)), "insert", VIEWS, seed=0, device=torch.device("cpu"), data=data
    )
    classifier.save(path)
    return path


def test_anchors_that_a_model_has_learned_from_are_refused(tmp_path: Path) -> None:
    anchors = recorded(tmp_path / "anchors", episodes=3)
    names = sorted(fingerprints(StoreReader(anchors)))
    asked = f"synthetic.video.anchors={anchors}"
    model = taught(tmp_path / "model.safetensors", frozenset(names[:1]))
    with pytest.raises(
        ConfigError, match=r"1 of its 3 episodes are learned from, by synthetic.video.world_model"
    ):
        check_synthetic(config(asked, f"synthetic.video.world_model={model}"), schema())
    reward = judge(tmp_path / "judge.safetensors", {"fingerprints": names})
    with pytest.raises(
        ConfigError, match=r"3 of its 3 episodes are learned from, by synthetic.video.reward_model"
    ):
        check_synthetic(config(asked, f"synthetic.video.reward_model={reward}"), schema())
    moved = shutil.copytree(anchors, tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"3 of its 3 episodes are learned from, by demos.path"):
        check_synthetic(config(asked, f"demos.path={moved}"), schema())


def test_recordings_are_checked_as_anchors_are_and_share_no_episode_with_them(tmp_path: Path) -> None:
    store = recorded(tmp_path / "recordings", episodes=30)
    asked = f"synthetic.video.recordings={store}"
    check_synthetic(config(asked), schema())
    with pytest.raises(ConfigError, match=r"30 of its 30 .* learned from, by synthetic.video.recordings"):
        check_synthetic(config(asked, f"synthetic.video.anchors={store}"), schema())
    with pytest.raises(ConfigError, match=rf"synthetic.video.recordings={store}: task differs"):
        check_synthetic(config(asked), schema(task="press"))
    moved = shutil.copytree(store, tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"30 of its 30 episodes are those of demos.path"):
        check_synthetic(config(asked, f"demos.path={moved}"), schema())
    few = recorded(tmp_path / "few", episodes=1)
    with pytest.raises(ConfigError, match=r"expected at least \d+ transitions to fit .* got 2; record more"):
        check_synthetic(config(f"synthetic.video.recordings={few}"), schema())


def test_models_that_do_not_say_and_files_that_are_gone_refuse_nothing(tmp_path: Path) -> None:
    """The first are from before it was written down; a run that continues needs the second no more."""
    asked = f"synthetic.video.anchors={recorded(tmp_path / 'anchors')}"
    model, reward = taught(tmp_path / "model.safetensors", None), judge(tmp_path / "judge.safetensors", {})
    paths = (f"synthetic.video.world_model={model}", f"synthetic.video.reward_model={reward}")
    check_synthetic(config(asked, *paths), schema())
    for path in (model, reward):
        path.unlink()
    check_synthetic(config(asked, *paths), schema())


def test_the_models_that_a_run_goes_on_with_are_the_ones_that_count(tmp_path: Path) -> None:
    anchors = recorded(tmp_path / "anchors", episodes=3)
    names = sorted(fingerprints(StoreReader(anchors)))
    run, asked = RunDir(tmp_path / "run"), f"synthetic.video.anchors={anchors}"
    gone = [f"synthetic.video.{name}={tmp_path / 'gone'}" for name in ("world_model", "reward_model")]
    check_synthetic(config(asked, *gone), schema(), run)
    taught(own_versions(run).path(1), frozenset(names[:2]))
    with pytest.raises(ConfigError, match=r"2 of its 3 episodes are learned from, by .*run/world_model/"):
        check_synthetic(config(asked, *gone), schema(), run)
    taught(own_versions(run).path(2), frozenset())
    judge(own_reward_model(run), {"fingerprints": names})
    with pytest.raises(ConfigError, match=r"3 of its 3 episodes are learned from, by .*run/reward_model"):
        check_synthetic(config(asked, *gone), schema(), run)


def test_a_run_that_trained_its_world_model_is_not_continued_with_a_given_one(tmp_path: Path) -> None:
    run, model = RunDir(tmp_path / "run"), taught(tmp_path / "model.safetensors", None)
    asked = config(f"synthetic.video.world_model={model}")
    check_synthetic(asked, schema(), run)
    own_versions(run).directory.mkdir(parents=True)
    taught(own_versions(run).path(1), frozenset())
    with pytest.raises(
        ConfigError, match=r"synthetic\.video\.world_model=.*: not the world model that this run"
    ):
        check_synthetic(asked, schema(), run)


def test_anchors_with_other_readings_or_without_episodes_are_refused(tmp_path: Path) -> None:
    spec: ProprioSpec = schema().proprio
    other = schema(proprio=replace(spec, names=("episode", "tick")))
    with pytest.raises(ConfigError, match=r"proprio.names differs: expected \['episode', 'tick'\]"):
        check_synthetic(config(f"synthetic.video.anchors={recorded(tmp_path / 'one')}"), other)
    with pytest.raises(ConfigError, match="holds no finished episode"):
        check_synthetic(config(f"synthetic.video.anchors={recorded(tmp_path / 'no', episodes=0)}"), schema())
    for name in ("anchors", "recordings"):
        with pytest.raises(
            ConfigError, match=rf"no store here .* go on without it: synthetic.video.{name}=null"
        ):
            check_synthetic(config(f"synthetic.video.{name}={tmp_path / 'nothing'}"), schema())
