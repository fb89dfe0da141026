"""Binned isotonic regression: from score pairs to a monotone map, and mixtures of such maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from robot.types import Array


@dataclass(frozen=True)
class MonotoneMap:
    """Piecewise linear through (x, y), both (K,), x increasing and y non-decreasing; constant outside."""

    x: Array
    y: Array

    def __call__(self, raw: Array) -> Array:
        """raw (...) to calibrated (...); NaN stays NaN."""
        mapped: Array = np.interp(raw, self.x, self.y)
        return mapped

    def state(self) -> list[list[float]]:
        return [self.x.tolist(), self.y.tolist()]

    @staticmethod
    def of_state(state: Sequence[Sequence[float]]) -> MonotoneMap:
        x, y = state
        return MonotoneMap(np.array(x), np.array(y))


def equal_width_edges(bins: int) -> Array:
    """The bins - 1 inner edges of equal bins on [0, 1]."""
    return np.linspace(0.0, 1.0, bins + 1)[1:-1]


def quantile_edges(x: Array, bins: int) -> Array:
    """Inner edges with equally many scores between them; fewer where scores tie."""
    return np.unique(np.quantile(x, np.linspace(0.0, 1.0, bins + 1)[1:-1]))


def fit_monotone(
    x: Array,
    y: Array,
    inner_edges: Array,
    weight: Array | None = None,
    prior_count: float = 0.0,
    prior_mean: float = 0.0,
) -> MonotoneMap | None:
    """Weighted pool-adjacent-violators on the mean outcomes of the populated bins; None with fewer than two of them.

    x, y, weight: (N,) scores, outcomes, evidence per pair (default 1). Scores beyond the outer edges fall into the
    outer bins. prior_count: outcomes of size `prior_mean` that every bin is taken to have seen before.
    """
    weight = np.ones_like(x) if weight is None else weight
    place = np.digitize(x, inner_edges)
    count = np.bincount(place, weight, minlength=len(inner_edges) + 1)
    filled = count > 0
    if filled.sum() < 2:
        return None
    count_of = count[filled]
    centre = np.bincount(place, weight * x, minlength=len(count))[filled] / count_of
    total = np.bincount(place, weight * y, minlength=len(count))[filled]
    seen = count_of + prior_count
    mean = (total + prior_count * prior_mean) / seen
    return MonotoneMap(centre, isotonic_regression(mean, weights=seen).x)


@dataclass(frozen=True)
class Mixture:
    """sum_i share_i * map_i(x) with shares > 0 that sum to 1, so it is monotone as well."""

    parts: tuple[tuple[float, MonotoneMap], ...]

    def __call__(self, raw: Array) -> Array:
        """raw (...) to calibrated (...); NaN stays NaN."""
        mixed: Array = np.sum([share * part(raw) for share, part in self.parts], axis=0)
        return mixed

    def state(self) -> list[Any]:
        return [[share, part.state()] for share, part in self.parts]

    @staticmethod
    def of_state(state: Sequence[Any]) -> Mixture:
        return Mixture(tuple((float(share), MonotoneMap.of_state(nodes)) for share, nodes in state))


def blend(share: float, new: MonotoneMap, base: Mixture | None, negligible: float = 0.01) -> Mixture:
    """share * new + (1 - share) * base, less the parts of `base` that become negligible; `new` alone without base."""
    if base is None:
        return Mixture(((1.0, new),))
    kept = [((1.0 - share) * old, part) for old, part in base.parts if (1.0 - share) * old >= negligible]
    total = share + sum(weight for weight, _ in kept)
    return Mixture(tuple((weight / total, part) for weight, part in ((share, new), *kept)))
