"""Labels of imagined video: thresholds, what replays tell of them, and the gate that says how far they are trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from video_cell import Cell, Still, recorded

from reward_model.calibration.anchors import AnchorKind, AnchorPair, ScorerKey
from reward_model.calibration.calibrator import CalibrationConfig, Calibrator
from reward_model.interface import Images, Readings
from reward_model.labels import Thresholds
from rl.imagination.clip import ImaginedClip
from rl.imagination.labels import RewardModelLabeller
from robot.types import Float32, Label
from worldmodel.counterfactual import BranchKind


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    with recorded(tmp_path_factory.mktemp("stores")) as made:
        yield made


class Judge:
    """Scores what it was told to, one number for all imagined frames; a real first one it calls no success."""

    task, version, real = "press", 4, 0.1
    readings: tuple[str, ...] = ()

    def __init__(self, cell: Cell, score: float) -> None:
        self.views: Mapping[str, tuple[int, int]] = cell.pool.schema.views
        self._score = score

    def score(self, images: Images, readings: Readings | None = None) -> Float32:
        self.heard = readings
        scores = np.full(next(iter(images.values())).shape[:2], self._score, np.float32)
        scores[:, 0] = self.real
        return scores

    def save(self, path: Path) -> None: ...


def labeller(cell: Cell, score: float, confidence: float = 0.5) -> RewardModelLabeller:
    return RewardModelLabeller(
        Judge(cell, score),
        Thresholds(0.8, 0.2),
        Calibrator(CalibrationConfig()),
        "press",
        confidence=confidence,
    )


@pytest.mark.parametrize(
    ("score", "label"),
    [(0.9, Label.SUCCESS), (0.1, Label.FAILURE), (0.5, Label.UNKNOWN), (np.nan, Label.UNKNOWN)],
)
def test_labels_follow_the_thresholds_and_unknown_is_never_failure(
    cell: Cell, score: float, label: Label
) -> None:
    clips = cell.imagination(clip_length=4, parallel=3).imagine(Still())
    for one in labeller(cell, score).label(clips):
        assert one.label is label and one.reward_model_version == 4
        assert one.length == (2 if label is Label.SUCCESS else 4), "success has held from the third frame on"


def test_a_model_that_takes_the_real_start_for_a_success_is_not_believed(cell: Cell) -> None:
    clips = cell.imagination(clip_length=4, parallel=3).imagine(Still())
    one = labeller(cell, 0.9)
    one._model.real = 0.8  # type: ignore[attr-defined]
    assert {(found.label, found.length) for found in one.label(clips)} == {(Label.UNKNOWN, 4)}
    one.label([with_truth(clips[0], False, episode) for episode in range(3)])
    assert one.metrics()["calibration/effective_anchors"] == 0, "what gets no label tells nothing of labels"


def test_the_judge_hears_what_the_arm_would_have_read_at_each_frame(cell: Cell) -> None:
    clips = cell.imagination(clip_length=3, parallel=2).imagine(Still())
    one = labeller(cell, 0.9)
    one.label(clips)
    heard = one._model.heard  # type: ignore[attr-defined]
    assert set(heard) == set(cell.pool.schema.proprio.names)
    for column, name in enumerate(cell.pool.schema.proprio.names):
        expected = [[observation.proprio[column] for observation in clip.observations] for clip in clips]
        np.testing.assert_array_equal(heard[name], expected)


def test_one_draw_of_the_readings_that_sinks_by_chance_is_no_success(cell: Cell) -> None:
    """Of three draws one is called a success; label and readings are those of their mean."""
    (clip,) = cell.imagination(clip_length=4, parallel=1).imagine(Still())
    stays = np.stack([seen.proprio for seen in clip.observations])
    sinks = stays.copy()
    sinks[1:, 2] -= 0.1
    one = labeller(cell, 0.0)

    class Deep(Judge):
        readings = ("ee_z",)

        def score(self, images: Images, readings: Readings | None = None) -> Float32:
            assert readings is not None
            return np.where(readings["ee_z"] < stays[0, 2] - 0.05, 0.95, 0.05).astype(np.float32)

    one._model = Deep(cell, 0.0)
    sunk = clip.reading(sinks)
    (alone,) = one.label([sunk])
    (drawn,) = one.label([replace(sunk, others=np.stack([stays, stays]))])
    assert alone.label is Label.SUCCESS and drawn.label is not Label.SUCCESS
    assert drawn.success_prob == pytest.approx(0.35)
    np.testing.assert_array_equal(np.stack([seen.proprio for seen in drawn.clip.observations]), stays)
    (most,) = one.label([replace(clip, others=np.stack([sinks] * 9))])
    assert most.label is Label.SUCCESS and most.clip.observations[-1].proprio[2] == sinks[-1, 2]


def with_truth(clip: ImaginedClip, success: bool, episode: int) -> ImaginedClip:
    truth = [Label.FAILURE] * (len(clip) - 1) + [Label.SUCCESS if success else Label.FAILURE]
    return replace(clip, kind=BranchKind.REPLAY, truth=truth, start=replace(clip.start, episode=episode))


def test_replays_open_the_gate_of_a_good_judge_and_not_of_a_blind_one(cell: Cell) -> None:
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    good, blind = labeller(cell, 0.9), labeller(cell, 0.5)
    assert good.gate == 0.0, "nothing is trusted before it was seen to be right"
    rng = np.random.default_rng(0)
    for episode in range(300):
        success = bool(rng.random() < 0.5)
        replay = with_truth(clip, success, episode)
        good._model._score = 0.9 if success else 0.1  # type: ignore[attr-defined]
        good.label([replay])
        blind._model._score = float(rng.uniform(0.1, 0.9))  # type: ignore[attr-defined]
        blind.label([replay])
    assert good.gate > 0.5 and blind.gate == 0.0
    assert good.metrics()["calibration/effective_anchors"] >= 100


def judged(
    one: RewardModelLabeller, clip: ImaginedClip, episodes: range, right: float, version: int = 0
) -> None:
    """Replays, half of them successes, that a judge scores rightly with probability `right`."""
    rng = np.random.default_rng(episodes.start)
    for episode in episodes:
        success = bool(rng.random() < 0.5)
        said = success if rng.random() < right else not success
        one._model._score = (0.9 if said else 0.1) + rng.normal(0.0, 0.03)  # type: ignore[attr-defined]
        one.label([replace(with_truth(clip, success, episode), world_model_version=version)])


@pytest.mark.parametrize(
    ("truth", "confidence", "success", "failure"),
    [
        ((0.0, 1.0), 0.9, Label.SUCCESS, Label.FAILURE),
        ((0.2, 0.8), 0.5, Label.SUCCESS, Label.FAILURE),
        ((0.2, 0.8), 0.9, Label.UNKNOWN, Label.UNKNOWN),  # right ranks, and not so sure
        ((0.0, 0.3), 0.5, Label.UNKNOWN, Label.FAILURE),  # what looks like success seldom is
        ((0.7, 1.0), 0.5, Label.SUCCESS, Label.UNKNOWN),
    ],
)
def test_a_label_that_the_calibrated_score_contradicts_is_unknown(
    cell: Cell, truth: tuple[float, float], confidence: float, success: Label, failure: Label
) -> None:
    """truth: how often what is scored .1, and what is scored .9, really succeeds."""
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    one = labeller(cell, 0.9, confidence)
    (before,) = one.label([clip])
    assert before.label is Label.SUCCESS, "no map is learnt yet"
    rng = np.random.default_rng(2)
    for episode in range(300):
        said = episode % 2
        one._model._score = (0.1, 0.9)[said]  # type: ignore[attr-defined]
        one.label([with_truth(clip, bool(rng.random() < truth[said]), episode)])
    for score, label in ((0.9, success), (0.1, failure), (0.5, Label.UNKNOWN), (np.nan, Label.UNKNOWN)):
        one._model._score = score  # type: ignore[attr-defined]
        (found,) = one.label([clip])
        assert found.label is label and found.length == (2 if label is Label.SUCCESS else 3)


def test_a_world_model_in_which_everything_succeeds_opens_no_gate(cell: Cell) -> None:
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    one = labeller(cell, 0.9)
    for episode in range(200):
        one.label([with_truth(clip, episode % 2 == 0, episode)])
    assert one.gate == 0.0


def test_reversed_ranks_open_no_gate(cell: Cell) -> None:
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    one = labeller(cell, 0.9)
    judged(one, clip, range(200), right=0.0)
    assert one.gate == 0.0


def test_a_judge_that_goes_wrong_later_is_shut_out_within_a_few_episodes(cell: Cell) -> None:
    """A frozen world model that the policy has left behind."""
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    one = labeller(cell, 0.9)
    judged(one, clip, range(300), right=1.0)
    assert one.gate > 0.5
    for begin in range(300, 340, 4):
        judged(one, clip, range(begin, begin + 4), right=0.5)
        if one.gate == 0.0:
            break
    assert one.gate == 0.0 and begin < 330


def test_another_version_has_to_prove_itself_anew(cell: Cell) -> None:
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    one = labeller(cell, 0.9)
    judged(one, clip, range(300), right=1.0)
    assert one.gate > 0.5
    judged(one, clip, range(300, 302), right=1.0, version=1)
    assert one.gate == 0.0
    judged(one, clip, range(302, 620), right=1.0, version=1)
    assert one.gate > 0.5


def test_a_scorer_asks_for_replays_until_its_gate_can_be_judged(cell: Cell) -> None:
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    one = labeller(cell, 0.9)
    assert one.wants_replays(0, 20) and not one.wants_replays(0, 19), "fewer episodes could never open it"
    judged(one, clip, range(300), right=1.0)
    assert not one.wants_replays(0, 20) and not one.newcomer
    assert one.wants_replays(1, 20), "of another version nothing is known"
    judged(one, clip, range(300, 302), right=1.0, version=1)
    assert one.gate == 0.0 and one.newcomer and one.wants_replays(1, 20)
    wrong = labeller(cell, 0.9)
    judged(wrong, clip, range(300), right=0.0)
    assert wrong.gate == 0.0 and not wrong.newcomer
    assert not wrong.wants_replays(0, 20), "more of the same proves nothing"


def test_only_replays_that_the_model_has_not_rehearsed_count_as_tests(cell: Cell) -> None:
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    seen: list[AnchorPair] = []

    class Told(Calibrator):
        def observe(self, key: ScorerKey, group: Sequence[AnchorPair]) -> None:
            seen.extend(group)

    judge = Judge(cell, 0.9)
    one = RewardModelLabeller(
        judge, Thresholds(0.8, 0.2), Told(CalibrationConfig()), "press", lambda start: start.episode >= 5
    )
    executed = replace(with_truth(clip, True, 4), kind=BranchKind.POLICY)
    one.label([*(with_truth(clip, True, episode) for episode in (4, 5)), executed])
    assert [pair.kind for pair in seen] == [
        AnchorKind.REPLAY,
        AnchorKind.HINDSIGHT,
        AnchorKind.COUNTERFACTUAL,
    ]


def test_a_run_with_calibration_of_an_older_format_goes_on_and_is_calibrated_anew(
    cell: Cell, caplog: pytest.LogCaptureFixture
) -> None:
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    one, resumed = labeller(cell, 0.9), labeller(cell, 0.9)
    judged(one, clip, range(300), right=1.0)
    assert one.trust(0) > 0.5
    resumed.load_state(one.state())
    assert resumed.trust(0) == one.trust(0)
    anew = labeller(cell, 0.9)
    anew.load_state(one.state() | {"format": 1})
    assert anew.trust(0) == 0.0 and "begin calibration anew" in caplog.text
