"""A run keeps the reward model that it was given; what one has labelled is not drawn when another judges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from replay_data import VIEWS, observation, schema, transition

from reward_model.classifier import ClassifierConfig, SuccessClassifier
from reward_model.interface import RewardModelError
from reward_model.labels import Thresholds
from rl.config import load_dict
from rl.preparation import _given_reward_model, _reward_model, _synthetic_store
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from rl.runtime.given import own_reward_model
from rl.runtime.imagining import WORKER_STATE
from rl.runtime.run_dir import RunDir
from rl.selection.queues import QueueConfig, SyntheticQueues
from robot.types import Label, Provenance, Source


def judge(path: Path, *, seed: int, task: str = "insert", readings: tuple[str, ...] = ()) -> Path:
    """Of version 1, as every first training writes."""
    SuccessClassifier(
        ClassifierConfig(channels=(4,), readings=readings),
        task,
        VIEWS,
        seed=seed,
        device=torch.device("cpu"),
        version=1,
        thresholds=Thresholds(0.8, 0.2),
    ).save(path)
    return path


class Sessions:
    """A run of which only what concerns the judge is prepared, session by session."""

    def __init__(self, path: Path) -> None:
        settings = ["experiment=insert_pixels", "synthetic.model=video"]
        self.run = RunDir.create(path / "run", load_dict("train", settings))
        self.said: list[str] = []

    def begin(self, path: Path) -> None:
        run = RunDir.open(self.run.path, (f"synthetic.video.reward_model={path}",))
        given = _given_reward_model(run, run.config, schema().proprio.names, self.said.append)
        _synthetic_store(run.synthetic, schema(), self.said.append)
        _reward_model(run, run.config, given, self.said.append)
        run.commit_config()

    def imagine(self) -> None:
        """A clip of each sign, and what the worker knows of its labels."""
        with StoreWriter(self.run.synthetic, schema(), durable=False) as writer:
            for label in (Label.SUCCESS, Label.FAILURE):
                writer.begin_episode(observation(1, 0))
                step = transition(1, 0, truncated=True)
                told = Provenance(world_model_version=1, reward_model_version=1)
                writer.add(replace(step, source=Source.SYNTHETIC, label=label, provenance=told))
                writer.end_episode(EpisodeOutcome(EndReason.TIMEOUT))
        self.run.write_json(WORKER_STATE, {"labeller": {}})

    @property
    def drawable(self) -> int:
        queues = SyntheticQueues(StoreReader(self.run.synthetic), QueueConfig())
        queues.load_state({"drawn": 1, "rows": [0], "uses": [1]})  # as a learner that continues
        return queues.size


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path)


def test_what_one_judge_has_labelled_is_not_drawn_when_another_judges(
    tmp_path: Path, sessions: Sessions
) -> None:
    first, second = judge(tmp_path / "a", seed=0), judge(tmp_path / "b", seed=1)
    sessions.begin(first)
    sessions.imagine()
    sessions.begin(first)
    assert sessions.drawable == 2 and sessions.run.read_json(WORKER_STATE) is not None
    sessions.begin(second)
    assert sessions.drawable == 0, "one version number, two judges"
    assert sessions.run.read_json(WORKER_STATE) is None, "no replay has told anything of the new one"
    assert own_reward_model(sessions.run).read_bytes() == second.read_bytes()
    (said,) = sessions.said
    assert f"{second}: not known to have judged in this run" in said


def test_the_same_file_trained_again_is_another_judge(tmp_path: Path, sessions: Sessions) -> None:
    path = judge(tmp_path / "a", seed=0)
    sessions.begin(path)
    sessions.imagine()
    before = own_reward_model(sessions.run).read_bytes()
    judge(path, seed=1)
    assert own_reward_model(sessions.run).read_bytes() == before, "nothing changes within a session"
    sessions.begin(path)
    assert sessions.drawable == 0


def test_a_run_goes_on_without_the_file_that_it_has_a_copy_of(tmp_path: Path, sessions: Sessions) -> None:
    path = judge(tmp_path / "a", seed=0)
    sessions.begin(path)
    sessions.imagine()
    path.unlink()
    sessions.begin(path)
    assert sessions.drawable == 2
    assert "the run's own copy goes on judging" in sessions.said[-1]


def test_a_run_from_before_copies_were_kept_begins_anew(tmp_path: Path, sessions: Sessions) -> None:
    path = judge(tmp_path / "a", seed=0)
    sessions.begin(path)
    sessions.imagine()
    own_reward_model(sessions.run).unlink()
    sessions.begin(path)
    assert sessions.drawable == 0 and own_reward_model(sessions.run).exists()


def test_a_judge_that_cannot_judge_this_run_is_refused_and_nothing_is_removed(
    tmp_path: Path, sessions: Sessions
) -> None:
    with pytest.raises(RewardModelError, match="no such file"):
        sessions.begin(tmp_path / "nothing")
    sessions.begin(judge(tmp_path / "a", seed=0))
    sessions.imagine()
    with pytest.raises(RewardModelError, match=r"judges 'press', this run is about 'insert'"):
        sessions.begin(judge(tmp_path / "b", seed=1, task="press"))
    with pytest.raises(
        RewardModelError, match=r"c: needs what this robot does not read; .*'ee_z'\] are missing"
    ):
        sessions.begin(judge(tmp_path / "c", seed=1, readings=("ee_z",)))
    assert sessions.drawable == 2


def test_a_judge_that_is_yet_to_be_trained_needs_no_reading_that_the_robot_lacks(tmp_path: Path) -> None:
    settings = ["experiment=insert_pixels", "synthetic.model=video"]
    settings += ["synthetic.video.reward_fit.classifier.readings=[ee_z]"]
    run = RunDir.create(tmp_path / "run", load_dict("train", settings))
    with pytest.raises(RewardModelError, match=r"'ee_z'\] are missing among \['episode', 'step'\]"):
        _given_reward_model(run, run.config, schema().proprio.names, lambda text: None)
