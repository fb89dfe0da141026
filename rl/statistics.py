"""Interval estimates for success rates, and rank correlation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from robot.types import Array


def wilson_interval(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson score interval of a binomial proportion (95% at z = 1.96); (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    if not 0 <= successes <= trials:
        raise ValueError(f"expected 0 <= successes <= trials, got {successes} of {trials}")
    p = successes / trials
    centre = p + z * z / (2 * trials)
    spread = z * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


@dataclass(frozen=True)
class Pooled:
    """Successes of several evaluations together. low, high: the 95% Wilson interval."""

    successes: int
    trials: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """NaN without trials."""
        return self.successes / self.trials if self.trials else math.nan


def pooled(evaluations: Iterable[tuple[float, float]]) -> Pooled:
    """Of evaluations given as (success rate, episodes)."""
    counted = [(round(rate * episodes), int(episodes)) for rate, episodes in evaluations]
    successes, trials = sum(good for good, _ in counted), sum(asked for _, asked in counted)
    return Pooled(successes, trials, *wilson_interval(successes, trials))


def rank_correlation(x: Array, y: Array) -> float:
    """Spearman's correlation of (N,) and (N,), ties sharing their mean rank; NaN where either is constant."""
    first, second = _ranks(x), _ranks(y)
    if first.std() == 0 or second.std() == 0:
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Array) -> Array:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Array = (ends - (counts + 1) / 2)[place]
    return ranks
