"""Anchored episodes of a stand-in judge, honest or faulty: for the gate's tests and the benchmark of its faults."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reward_model.calibration.anchors import AnchorPair, ScorerKey
from reward_model.calibration.calibrator import Calibrator
from robot.types import Array

KEY = ScorerKey("insert", "wm1-rm1")
SWAPPED = ScorerKey("insert", "wm2-rm1")
WINDOWS = 4  # scored per episode
Fault = Callable[[Array, float, int, np.random.Generator], Array]  # scores, outcome, episodes since it began


def episode(
    rng: np.random.Generator,
    index: int,
    fault: Fault | None = None,
    since: int = 0,
    *,
    success_rate: float = 0.5,
    signal: float = 0.5,
    noise: float = 0.12,
) -> list[AnchorPair]:
    """Windows of one executed episode; an honest judge scores failures (1 - signal) / 2 and successes signal higher."""
    outcome = float(rng.random() < success_rate)
    raw = np.clip(0.5 + signal * (outcome - 0.5) + noise * rng.standard_normal(WINDOWS), 0.0, 1.0)
    if fault is not None:
        raw = np.clip(fault(raw, outcome, since, rng), 0.0, 1.0)
    return [AnchorPair(float(score), outcome, index) for score in raw]


def hallucinating(raw: Array, outcome: float, since: int, rng: np.random.Generator) -> Array:
    """Everything looks like success."""
    return 0.9 + 0.05 * rng.standard_normal(len(raw))


def reversed_ranks(raw: Array, outcome: float, since: int, rng: np.random.Generator) -> Array:
    """The better, the lower."""
    return 1.0 - raw


def frozen_model(raw: Array, outcome: float, since: int, rng: np.random.Generator) -> Array:
    """The policy moves on, and over 30 episodes its failures come to look like successes to the old model."""
    return raw + (1.0 - outcome) * 0.5 * min(1.0, since / 30.0)


FAULTS: dict[
    str, tuple[Fault, int]
] = {  # the fault, and the anchored episodes within which it closes the gate
    "hallucinating_judge": (hallucinating, 20),  # seen only where an episode fails
    "reversed_ranks": (reversed_ranks, 5),
    "frozen_model_moving_policy": (frozen_model, 40),
}


def anchors_to_closure(
    calibrator: Calibrator, rng: np.random.Generator, fault: Fault, limit: int, *, success_rate: float = 0.5
) -> int | None:
    """Feed faulty episodes until the gate is 0: how many that took, None where `limit` were not enough."""
    for since in range(limit):
        calibrator.observe(KEY, episode(rng, 1000 + since, fault, since, success_rate=success_rate))
        if calibrator.gate(KEY).value == 0.0:
            return since + 1
    return None
