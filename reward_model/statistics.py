"""Intervals that evidence on success labels needs: Clopper-Pearson bounds, and a bootstrap over whole episodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from robot.types import Array


def clopper_pearson_upper(events: float, trials: float, confidence: float = 0.95) -> float:
    """One-sided upper bound of a binomial proportion; 1 without trials.

    The p at which P[Binomial(trials, p) <= events] = 1 - confidence. 0 of 59 gives 0.0495 at 95%.
    """
    if not 0 <= events <= trials:
        raise ValueError(f"expected 0 <= events <= trials, got {events} of {trials}")
    return 1.0 if events == trials else float(beta.ppf(confidence, events + 1, trials - events))


def clopper_pearson(events: float, trials: float, confidence: float = 0.95) -> tuple[float, float]:
    """Two-sided exact interval of a binomial proportion; (0, 1) without trials.

    Real-valued, for a share of correlated samples that is worth `trials` independent episodes.
    """
    if not 0 <= events <= trials:
        raise ValueError(f"expected 0 <= events <= trials, got {events} of {trials}")
    if trials == 0:
        return 0.0, 1.0
    tail = (1.0 - confidence) / 2.0
    low = 0.0 if events == 0 else float(beta.ppf(tail, events, trials - events + 1.0))
    high = 1.0 if events == trials else float(beta.ppf(1.0 - tail, events + 1.0, trials - events))
    return low, high


def cluster_bootstrap(
    statistic: Callable[[NDArray[np.int64]], float],
    groups: Sequence[str],
    rng: np.random.Generator,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Percentile interval of `statistic(indices)` where whole groups (episodes) are drawn with replacement.

    Samples of one episode are not independent, so the episode is the unit. Resamples without a defined statistic
    (NaN) are left out; (NaN, NaN) where all are.
    """
    names = np.unique(np.asarray(groups), return_inverse=True)[1]
    members = [np.flatnonzero(names == g) for g in range(names.max(initial=-1) + 1)]
    if not members:
        return math.nan, math.nan
    values: list[float] = []
    for _ in range(resamples):
        picks = rng.integers(len(members), size=len(members))
        values.append(statistic(np.concatenate([members[p] for p in picks])))
    known: Array = np.asarray(values)[np.isfinite(values)]
    if not len(known):
        return math.nan, math.nan
    tail = (1.0 - confidence) / 2.0
    return float(np.quantile(known, tail)), float(np.quantile(known, 1.0 - tail))
