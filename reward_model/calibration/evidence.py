"""What a window of anchors proves: rank agreement, calibration error and bias, with whole episodes as the evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot.types import Array


@dataclass(frozen=True)
class Evidence:
    """Of a window of predictions made before their outcomes were known. All NaN where nothing can be said.

    episodes: distinct ones. auc: P(higher score | better outcome), ties half; auc_low, bias_low, bias_high: bounds of
    95% intervals. ece: calibration error. bias: mean residual f(x) - r; variance: of the residual. brier: mean squared
    residual. outcome_variance: of the real outcomes.
    """

    episodes: int = 0
    auc: float = math.nan
    auc_low: float = math.nan
    ece: float = math.nan
    bias: float = math.nan
    bias_low: float = math.nan
    bias_high: float = math.nan
    variance: float = math.nan
    brier: float = math.nan
    outcome_variance: float = math.nan


def weigh(
    predicted: Array, true: Array, episode: Array, resamples: int, rng: np.random.Generator
) -> Evidence:
    """Evidence in (N,) predictions, (N,) outcomes and the (N,) episodes that they come from."""
    if not len(predicted):
        return Evidence()
    place = np.unique(episode, return_inverse=True)[1]
    num = int(place.max()) + 1
    draws = _draws(num, resamples, rng)
    wins, compared = concordance(predicted, true, place, num)
    total = float(compared.sum())
    of_draws = ((draws @ compared) * draws).sum(axis=1)
    won = ((draws @ wins) * draws).sum(axis=1)
    # A resample with one outcome only proves nothing: it counts as 0, so that rare outcomes keep the bound low.
    aucs = np.divide(won, of_draws, out=np.zeros(resamples), where=of_draws > 0)
    residual = predicted - true
    sums, counts = np.bincount(place, residual), np.bincount(place)
    biases = (draws @ sums) / (draws @ counts)
    bias_low, bias_high = np.quantile(biases, [0.025, 0.975])
    return Evidence(
        episodes=num,
        auc=float(wins.sum()) / total if total else math.nan,
        auc_low=float(np.quantile(aucs, 0.025)) if total else math.nan,
        ece=calibration_error(predicted, true, place),
        bias=float(residual.mean()),
        bias_low=float(bias_low),
        bias_high=float(bias_high),
        variance=float(residual.var()),
        brier=float(np.mean(residual**2)),
        outcome_variance=float(true.var()),
    )


def concordance(predicted: Array, true: Array, place: NDArray[np.int64], num: int) -> tuple[Array, Array]:
    """(wins, comparisons), both (num, num): of the pairs with a better outcome in cluster i than in cluster j.

    Their totals give the AUC for outcomes 0 and 1, and the concordance for graded ones. As both are sums over pairs of
    clusters, every bootstrap resample is a quadratic form in its counts.
    """
    better = true[:, None] > true[None, :]
    won = better * (0.5 + 0.5 * np.sign(predicted[:, None] - predicted[None, :]))
    member = np.zeros((len(place), num))
    member[np.arange(len(place)), place] = 1.0
    return member.T @ won @ member, member.T @ better.astype(np.float64) @ member


def calibration_error(predicted: Array, true: Array, place: NDArray[np.int64]) -> float:
    """Expected calibration error over bins of equally many predictions, at least ten clusters' worth in each.

    sum_b n_b / n sqrt(max(0, gap_b^2 - noise_b)): the gap's own sampling variance is taken off, as with few anchors
    the plain gap is mostly noise.
    """
    num = int(place.max()) + 1
    error = 0.0
    for rows in np.array_split(np.argsort(predicted, kind="stable"), min(10, max(1, num // 10))):
        residual = predicted[rows] - true[rows]
        noise = residual.var() / max(1, len(np.unique(place[rows])) - 1)
        error += len(rows) / len(predicted) * math.sqrt(max(0.0, residual.mean() ** 2 - noise))
    return error


def _draws(num: int, resamples: int, rng: np.random.Generator) -> Array:
    """(resamples, num): how often each cluster is drawn when `num` are drawn with replacement."""
    picks = rng.integers(num, size=(resamples, num)) + num * np.arange(resamples)[:, None]
    return np.bincount(picks.ravel(), minlength=num * resamples).reshape(resamples, num).astype(np.float64)
