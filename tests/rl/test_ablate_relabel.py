"""A reward model in the place of the recorded outcome: rewards, ends, and its agreement with what was recorded."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from replay_data import VIEWS, observation, schema, transition

from reward_model.labels import Thresholds
from rl.ablation.relabel import Relabeller
from rl.ablation.stream import Stream
from rl.config import ConfigError
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from robot.types import Float32, Label

LENGTH = 4  # env steps; five frames
THRESHOLDS = Thresholds(success=0.8, failure=0.3, hold_frames=2)
# What the model says of the frames of each episode, and how the episode really ended.
SAID = {
    0: ([0.1, 0.1, 0.9, 0.9, 0.1], EndReason.SUCCESS),  # success held at frame 3, so after step 3
    1: ([0.1, 0.1, 0.1, 0.1, 0.9], EndReason.SUCCESS),  # one frame is no hold: a miss
    2: ([0.1, 0.2, 0.1, 0.2, 0.1], EndReason.TIMEOUT),
    3: ([0.1, 0.9, 0.9, 0.9, 0.9], EndReason.FAILURE),  # a false success
    4: ([0.1, 0.5, 0.5, 0.1, 0.1], EndReason.TIMEOUT),  # neither
    5: ([0.9, 0.9, 0.9, 0.9, 0.9], EndReason.FAULT),  # nobody knows how it would have ended
}


class Model:
    """A reward model that knows the episode by its first frame; sees the first view alone."""

    def __init__(self, first_frames: dict[bytes, int]) -> None:
        self._first_frames = first_frames
        self.task, self.version, self.thresholds = "insert", 1, THRESHOLDS
        self.views, self.readings = {"front": VIEWS["front"]}, ("step",)

    def score(self, images: Any, readings: Any = None) -> Float32:
        np.testing.assert_array_equal(readings["step"], [range(LENGTH + 1)])
        episode = self._first_frames[images["front"][0, 0].tobytes()]
        return np.array([SAID[episode][0]], np.float32)


@pytest.fixture
def reader(tmp_path: Path) -> StoreReader:
    with StoreWriter(tmp_path / "real", schema()) as writer:
        for episode, (_, reason) in SAID.items():
            writer.begin_episode(observation(episode, 0))
            for step in range(LENGTH):
                last = step == LENGTH - 1
                success = reason is EndReason.SUCCESS
                writer.add(
                    transition(episode, step, terminated=last and success, truncated=last and not success)
                )
            writer.end_episode(EpisodeOutcome(reason))
    return StoreReader(tmp_path / "real")


def relabeller(reader: StoreReader, threshold: float | None = None) -> Relabeller:
    first = {observation(episode, 0).images["front"].tobytes(): episode for episode in SAID}
    return Relabeller.of(Model(first), threshold, reader)  # type: ignore[arg-type]


def shown(reader: StoreReader, episode: int) -> Any:
    recording: Any = SimpleNamespace(real=reader, episodes=reader.episodes())
    return Stream(recording, frozenset(), corrections=True, relabeller=relabeller(reader)).episode(episode)


def test_a_success_ends_the_episode_where_it_was_seen_to_hold(reader: StoreReader) -> None:
    episode = shown(reader, 0)
    assert len(episode.steps) == 3 and episode.length == LENGTH
    assert [step.reward for step in episode.steps] == [0, 0, 1]
    assert [step.terminated for step in episode.steps] == [False, False, True]
    assert episode.outcome.reason is EndReason.SUCCESS and episode.steps[-1].label is Label.SUCCESS


@pytest.mark.parametrize(("number", "label"), [(1, Label.FAILURE), (2, Label.FAILURE), (4, Label.UNKNOWN)])
def test_without_one_it_is_cut_off_and_no_terminal_failure(
    reader: StoreReader, number: int, label: Label
) -> None:
    episode = shown(reader, number)
    assert len(episode.steps) == LENGTH
    assert not any(step.reward or step.terminated for step in episode.steps)
    assert [step.truncated for step in episode.steps] == [False] * (LENGTH - 1) + [True]
    assert episode.steps[-1].label is label and episode.outcome.reason is EndReason.TIMEOUT


def test_what_is_said_early_does_not_depend_on_later_frames(reader: StoreReader) -> None:
    """The success of episode 0 stands although its last frame shows none."""
    assert relabeller(reader).verdict(0).steps == 3


def test_agreement_with_the_recorded_outcomes(reader: StoreReader) -> None:
    found = relabeller(reader).agreement(reader.episodes())
    assert found.as_json() == {
        "true_successes": 1,
        "false_successes": 1,
        "missed_successes": 1,
        "true_failures": 1,
        "unknown_labels": 1,
        "precision": 0.5,
        "recall": 0.5,
    }
    strict = relabeller(reader, 0.95).agreement(reader.episodes())
    assert strict.precision is None and strict.recall == 0.0


def test_a_model_of_another_task_or_without_a_threshold_is_refused(reader: StoreReader) -> None:
    model = Model({})
    model.task = "press"
    with pytest.raises(ConfigError, match=r"it judges press .* the run recorded insert"):
        Relabeller.of(model, None, reader)  # type: ignore[arg-type]
    model = Model({})
    model.readings = ("lag_z",)
    with pytest.raises(ConfigError, match=r"'lag_z'\], the run recorded insert .*'step'"):
        Relabeller.of(model, None, reader)  # type: ignore[arg-type]
    model = Model({})
    model.thresholds = Thresholds(None, None)
    with pytest.raises(ConfigError, match="success_threshold"):
        Relabeller.of(model, None, reader)  # type: ignore[arg-type]
