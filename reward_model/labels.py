"""From success probabilities to labels: success held for k frames, three-way thresholds, and the soft hazard target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from reward_model.interface import RewardModelError
from robot.types import Array, Float32, Label

Labels = NDArray[np.int8]  # values of robot.types.Label


def held_probability(success_prob: Float32, hold_frames: int) -> Float32:
    """(B, T) to (B, T): the smallest of the last `hold_frames` probabilities, that success has held so long.

    0 for the first hold_frames - 1 frames: within this clip it cannot have held yet. Where it may have, the clip
    has to begin with as many real frames before. NaN (unknown) where any of those frames is.
    """
    if success_prob.ndim != 2 or hold_frames < 1:
        raise RewardModelError(
            f"held_probability: expected (B, T) and hold_frames >= 1, got {success_prob.shape}, {hold_frames}"
        )
    held: Float32 = np.zeros_like(success_prob)
    if success_prob.shape[1] >= hold_frames:
        windows = np.lib.stride_tricks.sliding_window_view(success_prob, hold_frames, axis=1)
        held[:, hold_frames - 1 :] = windows.min(axis=2)
    return held


def success_hazard(held: Float32) -> Float32:
    """(B, T) held probabilities to hazards h (B, T): success comes at t, given that it has not come before.

        h_t = max(0, p_t - max_{k<t} p_k) / (1 - max_{k<t} p_k + 1e-6)

    A soft target for the critic, y_t = h_t + (1 - h_t) * discount * Q(s_{t+1}, a'), that is the hard label for
    h in {0, 1}, and unbiased where p is calibrated. NaN from the first unknown frame on.
    """
    before = np.zeros_like(held)
    before[:, 1:] = np.maximum.accumulate(held, axis=1)[:, :-1]
    hazard: Float32 = (np.maximum(0.0, held - before) / (1.0 - before + 1e-6)).astype(np.float32)
    return hazard


def false_success_bias(hazard: float, discount: float, synthetic_ratio: float) -> float:
    """Value that a critic gives a hopeless state whose imagined steps are false successes with `hazard`, per step.

    Q = r h / (1 - discount * (1 - r h)) at a share r of imagined samples; 0.05 at h = .0053, r = .3, discount .97.
    """
    rate = synthetic_ratio * hazard
    return rate / (1.0 - discount * (1.0 - rate))


@dataclass(frozen=True)
class LabelConfig:
    """How probabilities become labels.

    hold_frames: frames in a row that must show success. max_false_positive: bound on the share of failures that are
    called success; max_false_negative: of successes that are called failure; both hold with `confidence`.
    floor: nothing less probable is called success, and nothing that probable is called failure.
    """

    hold_frames: int = 2
    max_false_positive: float = 0.05
    max_false_negative: float = 0.10
    confidence: float = 0.95
    floor: float = 0.5

    def __post_init__(self) -> None:
        if self.hold_frames < 1:
            raise ValueError(f"labels.hold_frames: expected >= 1, got {self.hold_frames}")
        for name in ("max_false_positive", "max_false_negative", "confidence", "floor"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise ValueError(f"labels.{name}: expected (0, 1), got {getattr(self, name)}")


@dataclass(frozen=True)
class Thresholds:
    """Success from `success` on, failure up to `failure`, unknown between; None: too little evidence to say it at all.

    They are for probabilities held over `hold_frames`. negatives, positives: episodes that the choice rests on.
    """

    success: float | None
    failure: float | None
    hold_frames: int = 2
    negatives: int = 0
    positives: int = 0

    def __post_init__(self) -> None:
        if self.success is not None and self.failure is not None and not self.failure < self.success:
            raise RewardModelError(
                f"thresholds: expected failure < success, got {self.failure} and {self.success}"
            )


def choose_thresholds(scores: Array, succeeded: NDArray[np.bool_], config: LabelConfig) -> Thresholds:
    """Thresholds from held-out trials, one score (N,) per episode: the largest held probability while it failed
    (or the largest of its success), and whether it `succeeded` (N,).

    `success` is the smallest value, from `floor` on, whose Clopper-Pearson upper bound on the false-positive rate
    keeps to its limit: just above the (c+1)-th largest failure score, c the most errors that the number of failures
    allows. As c does not depend on the scores, the bound is exact for the value chosen (the false-positive rate
    above an order statistic is Beta(c+1, n-c), whose quantile Clopper-Pearson's bound is), not only for one fixed
    beforehand. `failure` likewise from below. Where no held-out score lies between the two, all of that gap is
    unknown, since it was never seen; both bounds still hold. Trials of unknown score (NaN) do not enter.
    """
    if scores.shape != succeeded.shape or scores.ndim != 1:
        raise RewardModelError(
            f"choose_thresholds: expected (N,) and (N,), got {scores.shape}, {succeeded.shape}"
        )
    known = np.isfinite(scores)
    failures = np.sort(scores[known & ~succeeded])[::-1].astype(np.float32)
    successes = np.sort(scores[known & succeeded]).astype(np.float32)
    worst = _allowed_errors(len(failures), config.max_false_positive, config.confidence)
    least = _allowed_errors(len(successes), config.max_false_negative, config.confidence)
    upper = None if worst is None else failures[worst]
    lower = None if least is None else successes[least]
    if (
        upper is None or lower is None or lower <= upper
    ):  # strictly beyond the last score that may not be passed
        upper = None if upper is None else np.nextafter(upper, np.float32(2.0))
        lower = None if lower is None else np.nextafter(lower, np.float32(-1.0))
    else:
        upper, lower = lower, upper
    floor = np.float32(config.floor)
    success = None if upper is None or upper > 1.0 else float(max(upper, floor))
    failure = (
        None if lower is None or lower < 0.0 else float(min(lower, np.nextafter(floor, np.float32(-1.0))))
    )
    return Thresholds(success, failure, config.hold_frames, len(failures), len(successes))


def by_episode(
    scores: Array, succeeded: NDArray[np.bool_], episode: Sequence[str]
) -> tuple[Array, NDArray[np.bool_]]:
    """For (N,) trials the score that errs most of each episode's failures, and of its successes; unknown ones drop out.

    Trials of one episode are not independent evidence.
    """
    worst: dict[tuple[str, bool], float] = {}
    for score, success, name in zip(scores.tolist(), succeeded.tolist(), episode, strict=True):
        if np.isfinite(score):
            errs_most = min if success else max
            worst[name, success] = errs_most(worst.get((name, success), score), score)
    return np.array(list(worst.values()), np.float64), np.array([success for _, success in worst], np.bool_)


def _allowed_errors(trials: int, limit: float, confidence: float) -> int | None:
    """The most errors in `trials` whose Clopper-Pearson upper bound keeps to `limit`; None if even 0 does not."""
    errors = np.arange(trials)
    bounds = beta.ppf(confidence, errors + 1, trials - errors)
    return int(np.sum(bounds <= limit)) - 1 if np.any(bounds <= limit) else None


@dataclass(frozen=True)
class ClipLabels:
    """What B clips show. label (B,); step (B,): first frame at which success has held, -1 without one.

    score (B,): largest held probability that is known, NaN without one. hazard (B, T): see `success_hazard`.
    """

    label: Labels
    step: NDArray[np.int64]
    score: Float32
    hazard: Float32


def label_clips(success_prob: Float32, thresholds: Thresholds) -> ClipLabels:
    """Label clips by their probabilities (B, T), raw or calibrated, on the scale of the thresholds.

    Success: some held probability reaches `thresholds.success`. Failure: every frame is known and none is above
    `thresholds.failure`. Everything else is unknown, a clip shorter than the hold as well.
    """
    hold_frames = thresholds.hold_frames
    held = held_probability(success_prob, hold_frames)
    batch, length = held.shape
    seen = held[:, hold_frames - 1 :]
    known = np.isfinite(seen)
    score = np.where(known, seen, -np.inf).max(axis=1, initial=-np.inf)
    label = np.full(batch, Label.UNKNOWN, np.int8)
    step = np.full(batch, -1, np.int64)
    if thresholds.failure is not None and length >= hold_frames:
        label[known.all(axis=1) & (score <= thresholds.failure)] = Label.FAILURE
    if thresholds.success is not None:
        reached = known & (seen >= thresholds.success)
        succeeded = reached.any(axis=1)
        label[succeeded] = Label.SUCCESS
        not_yet = (np.cumsum(reached, axis=1) == 0).sum(axis=1)
        step[succeeded] = not_yet[succeeded] + hold_frames - 1
    score = np.where(np.isfinite(score), score, np.nan).astype(np.float32)
    return ClipLabels(label, step, score, success_hazard(held))


def agreed(labels: Sequence[Labels]) -> Labels:
    """K labellings (B,) of the same branches, as from K seeds of a world model: the label on which all agree.

    Unknown where they differ or where one of them does not know.
    """
    if not labels:
        raise RewardModelError("agreed: expected at least one labelling, got none")
    stacked = np.stack(labels)
    common: Labels = np.where((stacked == stacked[0]).all(axis=0), stacked[0], Label.UNKNOWN).astype(np.int8)
    return common


def stricter(choices: Sequence[Thresholds]) -> Thresholds:
    """The thresholds that keep the bounds of all `choices`, for one hold; None where one of them has none."""
    if len({choice.hold_frames for choice in choices}) != 1:
        raise RewardModelError(f"stricter: expected thresholds for one hold_frames, got {list(choices)}")
    success = [choice.success for choice in choices]
    failure = [choice.failure for choice in choices]
    return Thresholds(
        success=None if None in success else max(s for s in success if s is not None),
        failure=None if None in failure else min(f for f in failure if f is not None),
        hold_frames=choices[0].hold_frames,
        negatives=min(choice.negatives for choice in choices),
        positives=min(choice.positives for choice in choices),
    )
