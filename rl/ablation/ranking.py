"""Ranks of arms: does an offline measure order them as their true success does?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from rl.statistics import rank_correlation

Measured = Mapping[str, Any]


@dataclass(frozen=True)
class Measure:
    """A number of a result. read: None where it is unknown. better: +1 where more of it should mean more success."""

    key: str
    title: str
    better: int
    read: Callable[[Measured], float | None]


def at(*keys: str) -> Callable[[Measured], float | None]:
    """Reads the number behind `keys`; None where there is none."""

    def read(measured: Measured) -> float | None:
        value: Any = measured
        for key in keys:
            value = None if value is None else value.get(key)
        return None if value is None else float(value)

    return read


def _size(read: Callable[[Measured], float | None]) -> Callable[[Measured], float | None]:
    def size(measured: Measured) -> float | None:
        value = read(measured)
        return None if value is None else abs(value)

    return size


MEASURES = (
    Measure("td_error", "TD error", -1, at("td_error")),
    Measure("q_bias", "size of the bias of Q", -1, _size(at("q_bias"))),
    Measure("q_rank", "rank correlation of Q and return", +1, at("q_rank")),
    Measure("overestimation", "V above the return", -1, at("overestimation")),
    Measure("corrections_error", "distance from corrections", -1, at("corrections", "error")),
    Measure("successes_error", "distance from successes", -1, at("successes", "error")),
    Measure("fqe", "fitted Q evaluation", +1, at("fqe", "value")),
)
SUCCESS = Measure("success", "true success of the replayed policy", +1, at("success", "success"))


def mean_over_seeds(results: Sequence[Measured], read: Callable[[Measured], float | None]) -> float | None:
    """Over the results that know it, None where none does."""
    known = [value for result in results if (value := read(result)) is not None]
    return float(np.mean(known)) if known else None


def rank_row(measure: Measure, values: Mapping[str, float | None], truth: Mapping[str, float]) -> Measured:
    """Spearman's and Kendall's (tau-b) correlation over the arms that both know; None where there is no order.

    Positive where the measure's better arms are the truly better ones.
    """
    arms = sorted(arm for arm, value in values.items() if value is not None and arm in truth)
    mine = np.array([measure.better * float(values[arm] or 0.0) for arm in arms])
    true = np.array([truth[arm] for arm in arms])
    ordered = len(arms) > 1 and np.ptp(mine) > 0 and np.ptp(true) > 0
    spearman = rank_correlation(mine, true) if ordered else math.nan
    kendall = float(kendalltau(mine, true).statistic) if ordered else math.nan
    return {
        "measure": measure.key,
        "arms": len(arms),
        "spearman": None if math.isnan(spearman) else spearman,
        "kendall": None if math.isnan(kendall) else kendall,
    }
