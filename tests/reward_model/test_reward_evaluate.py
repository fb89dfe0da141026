"""Trials, rates with intervals by episode, reliability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reward_model.dataset import KnownClip, Origin
from reward_model.evaluate import ScoredClip, reliability, report, score_clips, thresholds_of, trials_of
from reward_model.interface import Images, Readings, RewardModelError
from reward_model.labels import LabelConfig, Thresholds
from reward_model.reliability import draw_reliability
from robot.types import Float32, Label
from tests.reward_model.frames import VIEWS, clip, clips

RNG = np.random.default_rng(0)
THRESHOLDS = Thresholds(0.8, 0.2)


class SquareModel:
    """Knows the made-up task: 0.9 where the square is, 0.1 elsewhere."""

    task = "press"
    version = 1
    readings: tuple[str, ...] = ()
    views: Mapping[str, tuple[int, int]] = VIEWS

    def score(self, images: Images, readings: Readings | None = None) -> Float32:
        return np.where(images["wrist"][:, :, 8, 8, 0] > 200, 0.9, 0.1).astype(np.float32)

    def save(self, path: Path) -> None: ...


def scored(known: KnownClip, *held: float) -> ScoredClip:
    return ScoredClip(known, np.array(held, np.float32), 2)


def test_a_success_makes_two_trials_and_a_failure_one() -> None:
    trials = trials_of(score_clips(SquareModel(), [clip(0, Label.SUCCESS), clip(1, Label.FAILURE)], 2))
    assert [(t.succeeded, round(t.score, 1)) for t in trials] == [(True, 0.9), (False, 0.1), (False, 0.1)]
    assert trials[0].end == 7


def test_windows_across_the_boundary_and_unknown_scores_make_no_trial() -> None:
    """Frames: failure, failure, success, success. Only windows of one label count, and only known scores."""
    known = clip(0, Label.SUCCESS, length=4)
    trials = trials_of([scored(known, 0.0, 0.3, 0.99, float("nan"))])
    assert [(t.succeeded, round(t.score, 1)) for t in trials] == [(False, 0.3)]
    assert trials_of([scored(clip(0, Label.UNKNOWN, length=4), 0.0, 0.3, 0.9, 0.9)]) == []


def test_clips_of_another_task_are_refused() -> None:
    with pytest.raises(RewardModelError, match="judges press"):
        score_clips(SquareModel(), [replace(clip(0, Label.SUCCESS), task="insert")], 2)


def test_rates_count_trials_and_their_intervals_count_episodes() -> None:
    """Eight clips of one failed episode, half of them wrong: half an error of one episode, not four of eight."""
    wrong = scored(clip(1, Label.FAILURE, length=3), 0.0, 0.9, 0.0)
    right = scored(clip(1, Label.FAILURE, length=3), 0.0, 0.1, 0.0)
    good = scored(clip(0, Label.SUCCESS, length=3), 0.0, 0.0, 0.9)
    result = report([wrong, right] * 4 + [good], THRESHOLDS, "press", Origin.REAL, RNG)
    assert result.false_positive_rate == 0.5 and result.fpr_upper95 > 0.9
    assert result.recall == 1.0 and result.recall_interval[0] == pytest.approx(0.025)
    assert result.precision == pytest.approx(1 / 5)
    assert (result.clips, result.episodes, result.positives, result.negatives) == (9, 2, 1, 8)
    assert result.false_hazard == 0.5 and result.unknown == 0.0


def test_origins_and_tasks_are_reported_apart() -> None:
    all_scored = score_clips(SquareModel(), clips(6) + clips(4, Origin.GENERATED), 2)
    real = report(all_scored, THRESHOLDS, "press", Origin.REAL, RNG)
    made = report(all_scored, THRESHOLDS, "press", Origin.GENERATED, RNG)
    assert (real.clips, made.clips) == (6, 4)
    assert real.auc == made.auc == 1.0
    nothing = report(all_scored, THRESHOLDS, "insert", Origin.REAL, RNG)
    assert nothing.clips == 0 and np.isnan(nothing.auc) and np.isnan(nothing.precision)
    assert nothing.fpr_upper95 == 1.0


def test_without_a_threshold_nothing_is_called_success() -> None:
    result = report(
        score_clips(SquareModel(), clips(6), 2), Thresholds(None, None), "press", Origin.REAL, RNG
    )
    assert result.recall == 0.0 and np.isnan(result.precision) and result.unknown == 1.0


def test_an_episode_counts_once_in_the_choice_of_thresholds_by_its_worst_clip() -> None:
    failures = [scored(clip(i, Label.FAILURE, length=3), 0.0, 0.1, 0.0) for i in range(59)]
    worse = [scored(clip(i, Label.FAILURE, length=3), 0.0, 0.7, 0.0) for i in range(59)]
    chosen = thresholds_of(trials_of(failures + worse), LabelConfig())
    assert chosen.negatives == 59 and chosen.success == pytest.approx(0.7, abs=1e-5)
    few = [scored(clip(i % 20, Label.FAILURE, length=3), 0.0, 0.1, 0.0) for i in range(200)]
    assert thresholds_of(trials_of(few), LabelConfig()).success is None


def test_reliability_of_a_model_that_says_what_happens() -> None:
    """Probability 0.25 at four windows of which one succeeds."""
    kinds = [Label.SUCCESS, Label.FAILURE, Label.FAILURE, Label.FAILURE]
    honest = [scored(clip(i, kind, length=2, hold=2), 0.0, 0.25) for i, kind in enumerate(kinds)]
    honest = [
        replace(s, clip=replace(s.clip, label=np.full(2, kinds[i], np.int8))) for i, s in enumerate(honest)
    ]
    bins, ece = reliability(honest)
    np.testing.assert_allclose(bins, [[0.25, 0.25, 4]])
    assert ece == pytest.approx(0.0)
    boastful = [replace(s, held=np.array([0.0, 0.95], np.float32)) for s in honest]
    assert reliability(boastful)[1] == pytest.approx(0.7, abs=1e-6)


def test_the_reliability_plot_is_a_picture(tmp_path: Path) -> None:
    entry = report(score_clips(SquareModel(), clips(6), 2), THRESHOLDS, "press", Origin.REAL, RNG)
    empty = report([], THRESHOLDS, "press", Origin.GENERATED, RNG)
    path = draw_reliability(tmp_path / "plots" / "r.png", [entry, empty], THRESHOLDS)
    with Image.open(path) as picture:
        assert picture.size[0] > 300 and len(set(picture.convert("L").tobytes())) > 2
