"""How far a reward model can be trusted: trials of known outcome against its scores, by task and origin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reward_model.dataset import KnownClip, Origin
from reward_model.interface import RewardModel, RewardModelError
from reward_model.labels import LabelConfig, Thresholds, by_episode, choose_thresholds, held_probability
from reward_model.statistics import clopper_pearson, clopper_pearson_upper, clustered_auc
from robot.types import Array, Float32, Label

RELIABILITY_BINS = 10


@dataclass(frozen=True)
class ScoredClip:
    """A clip of known labels with what a model says of it: held (T,), see `held_probability`."""

    clip: KnownClip
    held: Float32
    hold_frames: int

    def windows(self, label: Label) -> NDArray[np.int64]:
        """Last frames of the windows of `hold_frames` that show `label` throughout and have a known score."""
        length, hold = len(self.clip.label), self.hold_frames
        if length < hold:
            return np.empty(0, np.int64)
        shown = np.lib.stride_tricks.sliding_window_view(self.clip.label, hold) == label
        ends: NDArray[np.int64] = np.flatnonzero(shown.all(axis=1)) + hold - 1
        return ends[np.isfinite(self.held[ends])]


@dataclass(frozen=True)
class Trial:
    """What a model made of one clip's success, or of its stretch before or without one.

    score: the largest held probability there. end: the frame of it.
    """

    scored: ScoredClip
    succeeded: bool
    score: float
    end: int


def score_clips(model: RewardModel, clips: Sequence[KnownClip], hold_frames: int) -> list[ScoredClip]:
    """Score every clip; raises RewardModelError for clips of another task."""
    others = sorted({clip.task for clip in clips} - {model.task})
    if others:
        raise RewardModelError(f"this reward model judges {model.task}, got clips of {others}; use their own")
    scored = []
    for clip in clips:
        prob = model.score(
            {view: clip.images[view][None] for view in model.views if view in clip.images},
            {name: values[None] for name, values in clip.readings.items()},
        )
        scored.append(ScoredClip(clip, held_probability(prob, hold_frames)[0], hold_frames))
    return scored


def trials_of(scored: Sequence[ScoredClip]) -> list[Trial]:
    """One trial for the success of a clip that has one, one for its failure frames; unknown frames make none."""
    trials = []
    for item in scored:
        for label in (Label.SUCCESS, Label.FAILURE):
            ends = item.windows(label)
            if len(ends):
                best = int(ends[item.held[ends].argmax()])
                trials.append(Trial(item, label is Label.SUCCESS, float(item.held[best]), best))
    return trials


def thresholds_of(trials: Sequence[Trial], config: LabelConfig) -> Thresholds:
    """Thresholds chosen on these trials; several clips of one episode count once."""
    return choose_thresholds(
        *by_episode(
            np.array([t.score for t in trials], np.float64),
            np.array([t.succeeded for t in trials], np.bool_),
            [t.scored.clip.episode for t in trials],
        ),
        config,
    )


@dataclass(frozen=True)
class Report:
    """A model against the known outcomes of one task and origin. Rates are NaN where nothing is counted.

    Intervals are at 95%. Those of rates are exact for as many independent trials as there are episodes behind the
    rate; that of `auc` draws whole episodes. fpr_upper95: one-sided. false_hazard: share of the failure frames
    at which success would be declared. unknown: share of trials without a label. ece: mean distance of the
    held probabilities from the observed rates, in equal-width bins; bins (K, 3): mean probability, rate, windows.
    """

    task: str
    origin: Origin
    clips: int
    episodes: int
    positives: int
    negatives: int
    auc: float
    auc_interval: tuple[float, float]
    precision: float
    precision_interval: tuple[float, float]
    recall: float
    recall_interval: tuple[float, float]
    false_positive_rate: float
    fpr_upper95: float
    false_hazard: float
    unknown: float
    ece: float
    bins: Array


def report(
    scored: Sequence[ScoredClip],
    thresholds: Thresholds,
    task: str,
    origin: Origin,
    rng: np.random.Generator,
) -> Report:
    """The report on the clips of `task` and `origin` among `scored`."""
    mine = [s for s in scored if s.clip.task == task and s.clip.origin is origin]
    trials = trials_of(mine)
    score = np.array([t.score for t in trials])
    truth = np.array([t.succeeded for t in trials], np.bool_)
    episode = np.array([t.scored.clip.episode for t in trials])
    called_success = _at_least(score, thresholds.success)
    called_failure = _at_most(score, thresholds.failure) & ~called_success
    precision = _rate(truth, called_success, episode)
    recall = _rate(called_success, truth, episode)
    wrong = _rate(called_success, ~truth, episode)
    bins, ece = reliability(mine)
    auc, auc_interval = clustered_auc(score, truth, list(episode), rng)
    failing = np.concatenate([s.held[s.windows(Label.FAILURE)] for s in mine]) if mine else np.empty(0)
    return Report(
        task=task,
        origin=origin,
        clips=len(mine),
        episodes=len({s.clip.episode for s in mine}),
        positives=int(truth.sum()),
        negatives=int((~truth).sum()),
        auc=auc,
        auc_interval=auc_interval,
        precision=precision.share,
        precision_interval=clopper_pearson(precision.events, precision.episodes),
        recall=recall.share,
        recall_interval=clopper_pearson(recall.events, recall.episodes),
        false_positive_rate=wrong.share,
        fpr_upper95=clopper_pearson_upper(wrong.events, wrong.episodes),
        false_hazard=float(_at_least(failing, thresholds.success).mean()) if len(failing) else math.nan,
        unknown=float((~called_success & ~called_failure).mean()) if len(trials) else math.nan,
        ece=ece,
        bins=bins,
    )


def reliability(scored: Sequence[ScoredClip]) -> tuple[Array, float]:
    """(K, 3) mean held probability, observed success rate and count of each filled bin, and the ECE over them."""
    prob = [s.held[s.windows(label)] for s in scored for label in (Label.FAILURE, Label.SUCCESS)]
    truth = [
        np.full(len(s.windows(label)), label) for s in scored for label in (Label.FAILURE, Label.SUCCESS)
    ]
    if not sum(map(len, prob)):
        return np.empty((0, 3)), math.nan
    p, y = np.concatenate(prob).astype(np.float64), np.concatenate(truth).astype(np.float64)
    place = np.minimum((p * RELIABILITY_BINS).astype(np.int64), RELIABILITY_BINS - 1)
    bins = np.array(
        [(p[place == k].mean(), y[place == k].mean(), (place == k).sum()) for k in np.unique(place)]
    )
    ece = float(np.sum(bins[:, 2] * np.abs(bins[:, 0] - bins[:, 1])) / len(p))
    return bins, ece


@dataclass(frozen=True)
class _Rate:
    """A share of trials, worth `events` of `episodes` independent ones."""

    share: float
    episodes: int

    @property
    def events(self) -> float:
        return self.share * self.episodes if self.episodes else 0.0


def _rate(hit: NDArray[np.bool_], among: NDArray[np.bool_], episode: NDArray[np.str_]) -> _Rate:
    share = float(hit[among].mean()) if among.any() else math.nan
    return _Rate(share, len(set(episode[among])))


def _at_least(score: Array | Float32, threshold: float | None) -> NDArray[np.bool_]:
    return np.zeros(len(score), np.bool_) if threshold is None else score >= threshold


def _at_most(score: Array | Float32, threshold: float | None) -> NDArray[np.bool_]:
    return np.zeros(len(score), np.bool_) if threshold is None else score <= threshold
