"""Means with intervals where samples of one episode are not independent: whole episodes are drawn again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot.types import Array

RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95% interval; the bounds are NaN where fewer than two episodes are behind it."""

    mean: float
    low: float
    high: float


def clustered_mean(values: Array, episode: NDArray[np.int64], rng: np.random.Generator) -> Estimate:
    """Mean of (N,) values, NaN left out, with the percentile interval of a bootstrap over whole episodes (N,).

    Resampled mean = sum_e k_e S_e / sum_e k_e N_e, with S_e and N_e sum and count of episode e, drawn k_e times.
    """
    known = np.isfinite(values)
    if not known.any():
        return Estimate(math.nan, math.nan, math.nan)
    place = np.unique(episode[known], return_inverse=True)[1]
    sums, counts = np.bincount(place, values[known]), np.bincount(place)
    mean = float(values[known].mean())
    if len(counts) < 2:
        return Estimate(mean, math.nan, math.nan)
    drawn = rng.multinomial(len(counts), np.full(len(counts), 1.0 / len(counts)), size=RESAMPLES)
    low, high = np.quantile((drawn @ sums) / (drawn @ counts), (0.025, 0.975))
    return Estimate(mean, float(low), float(high))
