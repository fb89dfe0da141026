"""The commands about reward models: from stores to a model, a report and clips to relabel."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from reward_model.interface import RewardModelError
from rl import evaluate_reward_model, train_reward_model
from rl.replay.errors import StoreError
from rl.replay.fingerprint import fingerprint
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.replay.schema import StoreSchema
from rl.replay.writer import StoreWriter
from rl.reward_models.data import RewardDataConfig, outcome_of, read_episodes
from rl.reward_models.loading import load_classifier
from rl.reward_models.replays import ReplayConfig, replays
from robot.types import Label, Observation, ProprioSpec, Transition
from tests.reward_model.frames import VIEWS, clip
from worldmodel.baselines import CopyLastFrame
from worldmodel.interface import ActionNormalisation, WorldModelSpec

REASONS = (EndReason.SUCCESS, EndReason.TIMEOUT)
SMALL = ["classifier.channels=[8,8]", "classifier.width=16", "trainer.steps=40", "trainer.batch=16"]
FAST = ["trainer.learning_rate=0.003", "trainer.shift_px=1"]


def schema(task: str = "press") -> StoreSchema:
    one = np.ones(1, np.float32)
    return StoreSchema(
        task=task,
        views=VIEWS,
        proprio=ProprioSpec(("t",), 0 * one, one, 0 * one),
        action_dim=2,
        instruction="press the lever",
    )


def record(
    path: Path, first: int, count: int, reasons: tuple[EndReason, ...] = REASONS, task: str = "press"
) -> Path:
    """Episodes `first`, ... of the made-up task, ending for these reasons in turn."""
    with StoreWriter(path, schema(task)) as writer:
        for number in range(first, first + count):
            reason = reasons[number % len(reasons)]
            done = reason is EndReason.SUCCESS
            images = clip(number, Label.SUCCESS if done else Label.FAILURE).images
            seen = [
                Observation({v: f[t] for v, f in images.items()}, np.full(1, t, np.float32), 0.1 * t)
                for t in range(8)
            ]
            writer.begin_episode(seen[0])
            for t in range(7):
                action = np.full(2, 0.1, np.float32)
                last = t == 6
                writer.add(
                    Transition(
                        observation=seen[t],
                        action=action,
                        requested_action=action,
                        reward=float(done and last),
                        next_observation=seen[t + 1],
                        terminated=done and last,
                        truncated=last and not done,
                    )
                )
            writer.end_episode(EpisodeOutcome(reason))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with stores `seen` and `new`, and `model.safetensors` from the first."""
    folder = tmp_path_factory.mktemp("reward")
    record(folder / "seen", 0, 130)
    record(folder / "new", 200, 30)
    arguments = [f"data.paths=[{folder}/seen]", f"out={folder}/model.safetensors", *SMALL, *FAST]
    assert train_reward_model.main(arguments) == 0
    return folder


def test_the_model_carries_its_thresholds_and_what_it_has_seen(trained: Path) -> None:
    model = load_classifier(trained / "model.safetensors", torch.device("cpu"))
    assert (model.task, model.version) == ("press", 1)
    assert model.thresholds is not None and model.thresholds.success is not None
    assert model.thresholds.negatives >= 59
    assert len(model.data["learned"]) + len(model.data["thresholds"]) == 130
    assert not set(model.data["learned"]) & set(model.data["thresholds"])
    reader = StoreReader(trained / "seen")
    learned = {fingerprint(reader, int(name.rpartition("/")[2])) for name in model.data["learned"]}
    assert set(model.data["fingerprints"]) == learned, "of what it has learned from, wherever that lies"


def test_training_again_gives_the_next_version(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "again.safetensors"
    out.write_bytes((trained / "model.safetensors").read_bytes())
    arguments = [f"data.paths=[{trained}/new]", f"out={out}", *SMALL, "trainer.steps=1"]
    assert train_reward_model.main(arguments) == 0
    model = load_classifier(out, torch.device("cpu"))
    assert model.version == 2
    assert model.thresholds is not None and model.thresholds.success is None  # 15 episodes prove nothing


def test_the_evaluation_reports_on_unseen_episodes_alone(trained: Path, tmp_path: Path) -> None:
    arguments = [
        f"model={trained}/model.safetensors",
        f"data.paths=[{trained}/new,{trained}/seen]",
        f"out={tmp_path}/report",
    ]
    assert evaluate_reward_model.main(arguments) == 0
    content = json.loads((tmp_path / "report" / "report.json").read_text())
    (row,) = content["rows"]
    assert (row["task"], row["source"], row["episodes"]) == ("press", "real", 30)
    assert row["auc"] == 1.0 and row["false_positive_rate"] == 0.0
    assert row["fpr_upper95"] == pytest.approx(0.095, abs=0.001)  # 0 of 30
    assert (tmp_path / "report" / "reliability.png").exists()


def test_a_model_is_not_tested_on_what_it_has_seen(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [f"model={trained}/model.safetensors", f"data.paths=[{trained}/seen]"]
    assert evaluate_reward_model.main(arguments) == 2
    assert "has seen all 130 episodes" in capsys.readouterr().err


def test_false_positives_are_saved_and_their_corrections_are_learned_from(
    trained: Path, tmp_path: Path
) -> None:
    """An episode that shows success while the operator forgot the key: found, shown, corrected."""
    forgotten = tmp_path / "forgotten"
    forget(forgotten)
    out = tmp_path / "report"
    arguments = [f"model={trained}/model.safetensors", f"data.paths=[{forgotten}]", f"out={out}"]
    assert evaluate_reward_model.main(arguments) == 0
    file = out / "false_positives" / "false_positives.json"
    (entry,) = json.loads(file.read_text())["clips"]
    assert (out / "false_positives" / entry["film"]).stat().st_size > 0
    assert entry["label"] == "failure" and entry["source"] == "real"
    file.write_text(json.dumps({"clips": [entry | {"label": "success"}]}))
    (corrected,) = read_episodes(RewardDataConfig([str(forgotten)], corrections=[str(file)]))
    assert np.flatnonzero(corrected.label == Label.SUCCESS).tolist() == [entry["first"], entry["last"]]


def forget(path: Path) -> None:
    """One episode with success in its middle that ended by the time limit."""
    images = {view: frames.copy() for view, frames in clip(501, Label.FAILURE).images.items()}
    images["wrist"][3:6, 4:12, 4:12] = 230
    with StoreWriter(path, schema()) as writer:
        seen = [
            Observation({v: f[t] for v, f in images.items()}, np.full(1, t, np.float32), 0.1 * t)
            for t in range(8)
        ]
        writer.begin_episode(seen[0])
        for t in range(7):
            action = np.zeros(2, np.float32)
            writer.add(Transition(seen[t], action, action, 0.0, seen[t + 1], False, t == 6))
        writer.end_episode(EpisodeOutcome(EndReason.TIMEOUT))


def test_corrections_of_generated_frames_leave_the_real_ones_alone(tmp_path: Path) -> None:
    forget(tmp_path / "store")
    name = f"{tmp_path.name}/store/0"
    file = tmp_path / "fp.json"
    entry = {"source": "generated", "episode": name, "first": 0, "last": 7, "label": "success"}
    file.write_text(json.dumps({"clips": [entry]}))
    (episode,) = read_episodes(RewardDataConfig([str(tmp_path / "store")], corrections=[str(file)]))
    assert episode.name == name and (episode.label != Label.SUCCESS).all()
    file.write_text(json.dumps({"clips": [entry | {"label": "perhaps"}]}))
    with pytest.raises(StoreError, match=r"fp\.json"):
        read_episodes(RewardDataConfig([str(tmp_path / "store")], corrections=[str(file)]))


def test_faults_stops_and_discards_say_nothing() -> None:
    known = {
        EndReason.SUCCESS: Label.SUCCESS,
        EndReason.FAILURE: Label.FAILURE,
        EndReason.TIMEOUT: Label.FAILURE,
    }
    for reason in EndReason:
        assert outcome_of(reason) is known.get(reason, Label.UNKNOWN), reason
    assert outcome_of(EndReason.TIMEOUT, timeout_is_failure=False) is Label.UNKNOWN


def test_episodes_of_unknown_outcome_never_enter(tmp_path: Path) -> None:
    store = record(tmp_path / "s", 0, 6, (EndReason.SUCCESS, EndReason.FAULT, EndReason.STOPPED))
    assert [episode.info.episode for episode in read_episodes(RewardDataConfig([str(store)]))] == [0, 3]


def test_two_tasks_are_two_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stores = [record(tmp_path / task, 0, 4, task=task) for task in ("press", "insert")]
    arguments = [f"data.paths=[{stores[0]},{stores[1]}]", f"out={tmp_path}/m.safetensors"]
    assert train_reward_model.main(arguments) == 2
    assert "one task" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "data.paths"),
        (["data.paths=[/nowhere]"], "no such directory"),
        (["labels.hold_frames=0"], "labels.hold_frames"),
        (["classifier.trunk=frozen", "classifier.dropout=1.5"], "classifier.dropout"),
        (["traner.steps=3"], "trainer"),
        (["device=cuda:77"], "device"),
    ],
)
def test_wrong_words_are_one_readable_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_reward_model.main(arguments) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_hold_out_leaves_something_for_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    for main in (train_reward_model.main, evaluate_reward_model.main):
        assert main(["hold_out_every=1"]) == 2
        assert "hold_out_every: expected >= 2, got 1" in capsys.readouterr().err


def test_an_evaluation_needs_a_model_or_a_judge(capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate_reward_model.main(["data.paths=[x]"]) == 2
    assert "expected model=<file>, or a judge with judge.kind=" in capsys.readouterr().err


def replayed(folder: Path, config: ReplayConfig) -> list[np.ndarray]:
    store = record(folder / "s", 0, 2)
    spec = WorldModelSpec(VIEWS, ActionNormalisation.identity(2), context_frames=2, max_horizon=12)
    episodes = read_episodes(RewardDataConfig([str(store)]))
    made = replays(CopyLastFrame(spec), episodes, config, np.random.default_rng(0))
    assert [item.episode for item in made[:: config.per_episode]] == [episode.name for episode in episodes]
    assert all(frames.shape[0] == config.horizon for item in made for frames in item.images.values())
    return [item.label for item in made]


def test_replays_are_labelled_as_the_real_frames_that_followed(tmp_path: Path) -> None:
    success, failure = replayed(tmp_path, ReplayConfig(horizon=4, per_episode=1, min_psnr=0.0))
    assert success.tolist() == [Label.FAILURE, Label.FAILURE, Label.SUCCESS, Label.SUCCESS]
    assert failure.tolist() == [Label.FAILURE] * 3 + [
        Label.UNKNOWN
    ]  # success may have begun in the last frame


def test_clips_carry_what_the_arm_read(tmp_path: Path) -> None:
    """Replays that of the real frame which followed the same action."""
    store = record(tmp_path / "s", 0, 2)
    spec = WorldModelSpec(VIEWS, ActionNormalisation.identity(2), context_frames=2, max_horizon=12)
    episodes = read_episodes(RewardDataConfig([str(store)]))
    config = ReplayConfig(horizon=3, per_episode=1, min_psnr=0.0)
    made = replays(CopyLastFrame(spec), episodes, config, np.random.default_rng(0))
    for episode, replayed in zip(episodes, made, strict=True):
        proprio = episode.reader.episode(episode.info.episode).proprio
        for column, name in enumerate(episode.reader.schema.proprio.names):
            np.testing.assert_array_equal(episode.clip().readings[name], proprio[:, column])
            np.testing.assert_array_equal(replayed.readings[name], proprio[-3:, column])


def test_replays_that_lost_the_thread_are_unknown_from_there_on(tmp_path: Path) -> None:
    """The copied frame is noise beside noise, some 17 dB; when the square comes, it is further off still."""
    success, _ = replayed(tmp_path, ReplayConfig(horizon=4, per_episode=1, min_psnr=15.0))
    assert success.tolist() == [Label.FAILURE, Label.FAILURE, Label.UNKNOWN, Label.UNKNOWN]


def test_replays_behind_the_end_of_an_episode_are_unknown(tmp_path: Path) -> None:
    success, _ = replayed(tmp_path, ReplayConfig(horizon=9, per_episode=1, min_psnr=0.0))
    assert (success[7:] == Label.UNKNOWN).all() and (success[5:7] == Label.SUCCESS).all()


def test_a_frozen_trunk_is_made_from_its_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = record(tmp_path / "s", 0, 4)
    arguments = [
        f"data.paths=[{store}]",
        "classifier.trunk=frozen",
        "classifier.weights=/nowhere/alexnet.ckpt",
        f"out={tmp_path}/m.safetensors",
    ]
    assert train_reward_model.main(arguments) == 2
    assert "BackboneError" in capsys.readouterr().err


def test_a_damaged_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(b"torn")
    with pytest.raises(RewardModelError, match=r"m\.safetensors"):
        load_classifier(tmp_path / "m.safetensors", torch.device("cpu"))
