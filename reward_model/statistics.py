"""Intervals for what is known of success labels: exact ones of rates, and of the AUC over whole episodes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from reward_model.calibration.evidence import concordance
from robot.types import Array

RESAMPLES = 2000


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


def clustered_auc(
    score: Array, truth: NDArray[np.bool_], episode: Sequence[str], rng: np.random.Generator
) -> tuple[float, tuple[float, float]]:
    """P(a success scores above a failure), ties half, over (N,) trials, and its 95% interval over whole episodes.

    Trials of one episode are not independent, so episodes are drawn again, with replacement. Draws without both
    outcomes are left out. All NaN where the trials have not both.
    """
    if not 0 < truth.sum() < len(truth):
        return math.nan, (math.nan, math.nan)
    place = np.unique(np.asarray(episode), return_inverse=True)[1].astype(np.int64)
    num = int(place.max()) + 1
    wins, compared = concordance(score, truth.astype(np.float64), place, num)
    draws = rng.multinomial(num, np.full(num, 1.0 / num), size=RESAMPLES).astype(np.float64)
    won, total = (((draws @ pairs) * draws).sum(axis=1) for pairs in (wins, compared))
    low, high = np.quantile(won[total > 0] / total[total > 0], (0.025, 0.975))
    return float(wins.sum() / compared.sum()), (float(low), float(high))
