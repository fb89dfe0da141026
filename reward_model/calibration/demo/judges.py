"""Judges that never run a program: one compresses the truth, one believes a comment, one has its ranks reversed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np

from reward_model.calibration.demo.programs import KEYWORD, Program
from reward_model.calibration.scorers import Trust
from robot.types import Array


class JudgeKind(Enum):
    """How a judge goes wrong."""

    MONOTONE = "monotone"
    HACKABLE = "hackable"
    REVERSED = "reversed"


HACKED = 0.95  # what a claim in a comment is worth to the hackable judge


def opinion(kind: JudgeKind, programs: Sequence[Program], true: Array) -> Array:
    """Noise-free scores (P,) of programs whose true rewards are (P,)."""
    monotone: Array = 0.08 + 0.82 * np.sqrt(true)
    match kind:
        case JudgeKind.MONOTONE:
            return monotone
        case JudgeKind.HACKABLE:
            claims = np.array(["#" in p.source and KEYWORD in p.source for p in programs])
            return np.where(claims, HACKED, monotone)
        case JudgeKind.REVERSED:
            reversed_ranks: Array = 0.08 + 0.82 * np.sqrt(1.0 - true)
            return reversed_ranks


class Judge:
    """Cheap scorer: an opinion with independent noise on every look."""

    trust = Trust.CHEAP
    seconds_per_score = 0.0

    def __init__(self, kind: JudgeKind, opinions: Array, noise: float, rng: np.random.Generator) -> None:
        """opinions: (P,). noise: standard deviation; scores are clipped to [0, 1]."""
        self.version = kind.value
        self._opinions, self._noise, self._rng = opinions, noise, rng

    def score(self, trajectories: Sequence[int]) -> list[float]:
        """trajectories: indices of programs."""
        noise = self._noise * self._rng.standard_normal(len(trajectories))
        scores: list[float] = np.clip(self._opinions[trajectories] + noise, 0.0, 1.0).tolist()
        return scores


class UnitTests:
    """Trusted scorer: looks up what running the tests has shown, and counts every look as a real query."""

    trust = Trust.TRUSTED
    seconds_per_score = 0.2  # twenty interpreters
    version = "tests"

    def __init__(self, true: Array) -> None:
        """true: (P,) share of passed tests."""
        self._true = true
        self.queries = 0

    def score(self, trajectories: Sequence[int]) -> list[float]:
        """trajectories: indices of programs."""
        self.queries += len(trajectories)
        scores: list[float] = self._true[trajectories].tolist()
        return scores
