"""Windows of anchors and what they prove: rank, calibration error and bias, with whole episodes as the evidence."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reward_model.calibration.anchors import AnchorKind
from robot.types import Array


class Judged(NamedTuple):
    """A prediction made before its outcome was known, the outcome, and how that came about."""

    predicted: float
    true: float
    kind: AnchorKind


class Window:
    """The newest `episodes` episodes by their first pair, of each the newest `pairs_per_episode`."""

    def __init__(self, episodes: int, pairs_per_episode: int) -> None:
        self._size, self._pairs = episodes, pairs_per_episode
        self._kept: dict[int, deque[Judged]] = {}

    def add(self, episode: int, pair: Judged) -> None:
        self._kept.setdefault(episode, deque(maxlen=self._pairs)).append(pair)
        while len(self._kept) > self._size:
            del self._kept[next(iter(self._kept))]

    def clear(self) -> None:
        self._kept.clear()

    @property
    def episodes(self) -> set[int]:
        """Their numbers."""
        return set(self._kept)

    @property
    def rows(self) -> list[tuple[int, Judged]]:
        """(episode, pair), in the order in which the episodes came."""
        return [(episode, pair) for episode, pairs in self._kept.items() for pair in pairs]

    def state(self) -> list[Any]:
        """JSON-able."""
        return [
            [episode, [[pair.predicted, pair.true, pair.kind.value] for pair in pairs]]
            for episode, pairs in self._kept.items()
        ]

    def load_state(self, state: Sequence[Any]) -> None:
        """Continue from `state()`."""
        self._kept = {
            episode: deque(
                (Judged(predicted, true, AnchorKind(kind)) for predicted, true, kind in pairs), self._pairs
            )
            for episode, pairs in state
        }


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


def weigh_rows(
    rows: Sequence[tuple[int, Judged]],
    weight: Callable[[AnchorKind], float],
    resamples: int,
    rng: np.random.Generator,
) -> Evidence:
    """Evidence in the rows of windows. weight: how much a pair of a kind counts."""
    if not rows:
        return Evidence()
    columns = np.array([(p.predicted, p.true, episode, weight(p.kind)) for episode, p in rows], np.float64).T
    predicted, true, place, weights = columns
    return weigh(predicted, true, place, resamples, rng, weights)


def weigh(
    predicted: Array,
    true: Array,
    episode: Array,
    resamples: int,
    rng: np.random.Generator,
    weight: Array | None = None,
) -> Evidence:
    """Evidence in (N,) predictions, (N,) outcomes and the (N,) episodes that they come from.

    weight: (N,) of each pair, of which only the ratios matter; None: all alike. Episodes are counted whole.
    """
    if not len(predicted):
        return Evidence()
    weight = np.ones(len(predicted)) if weight is None else weight / weight.mean()
    place = np.unique(episode, return_inverse=True)[1]
    num = int(place.max()) + 1
    draws = _draws(num, resamples, rng)
    wins, compared = concordance(predicted, true, place, num, weight)
    total = float(compared.sum())
    of_draws = ((draws @ compared) * draws).sum(axis=1)
    won = ((draws @ wins) * draws).sum(axis=1)
    # A resample with one outcome only proves nothing: it counts as 0, so that rare outcomes keep the bound low.
    aucs = np.divide(won, of_draws, out=np.zeros(resamples), where=of_draws > 0)
    residual = predicted - true
    bias, variance = _moments(residual, weight)
    sums, counts = np.bincount(place, weight * residual), np.bincount(place, weight)
    biases = (draws @ sums) / (draws @ counts)
    bias_low, bias_high = np.quantile(biases, [0.025, 0.975])
    return Evidence(
        episodes=num,
        auc=float(wins.sum()) / total if total else math.nan,
        auc_low=float(np.quantile(aucs, 0.025)) if total else math.nan,
        ece=calibration_error(predicted, true, place, weight),
        bias=bias,
        bias_low=float(bias_low),
        bias_high=float(bias_high),
        variance=variance,
        brier=float(np.average(residual**2, weights=weight)),
        outcome_variance=_moments(true, weight)[1],
    )


def concordance(
    predicted: Array, true: Array, place: NDArray[np.int64], num: int, weight: Array | None = None
) -> tuple[Array, Array]:
    """(wins, comparisons), both (num, num): of the pairs with a better outcome in cluster i than in cluster j.

    A comparison counts as the product of both weights (N,), 1 without. Their totals give the AUC for outcomes 0 and 1,
    and the concordance for graded ones. As both are sums over pairs of clusters, every bootstrap resample is a
    quadratic form in its counts.
    """
    better = true[:, None] > true[None, :]
    won = better * (0.5 + 0.5 * np.sign(predicted[:, None] - predicted[None, :]))
    member = np.zeros((len(place), num))
    member[np.arange(len(place)), place] = 1.0 if weight is None else weight
    return member.T @ won @ member, member.T @ better.astype(np.float64) @ member


def calibration_error(predicted: Array, true: Array, place: NDArray[np.int64], weight: Array) -> float:
    """Expected calibration error over bins of equally many predictions, at least ten clusters' worth in each.

    sum_b w_b / w sqrt(max(0, gap_b^2 - noise_b)): the gap's own sampling variance is taken off, as with few anchors
    the plain gap is mostly noise. Unequal weights w (N,) leave fewer clusters' worth of evidence in a bin, in the ratio
    (sum w)^2 / (n sum w^2).
    """
    num = int(place.max()) + 1
    error = 0.0
    for rows in np.array_split(np.argsort(predicted, kind="stable"), min(10, max(1, num // 10))):
        residual = predicted[rows] - true[rows]
        w = weight[rows]
        gap, variance = _moments(residual, w)
        clusters = len(np.unique(place[rows])) * w.sum() ** 2 / (len(w) * (w**2).sum())
        noise = variance / max(1.0, clusters - 1.0)
        error += w.sum() / weight.sum() * math.sqrt(max(0.0, gap**2 - noise))
    return float(error)


def _moments(values: Array, weight: Array) -> tuple[float, float]:
    """Weighted mean and variance."""
    mean = np.average(values, weights=weight)
    return float(mean), float(np.average((values - mean) ** 2, weights=weight))


def _draws(num: int, resamples: int, rng: np.random.Generator) -> Array:
    """(resamples, num): how often each cluster is drawn when `num` are drawn with replacement."""
    picks = rng.integers(num, size=(resamples, num)) + num * np.arange(resamples)[:, None]
    return np.bincount(picks.ravel(), minlength=num * resamples).reshape(resamples, num).astype(np.float64)
