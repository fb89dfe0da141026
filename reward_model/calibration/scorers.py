"""The contract of scorers: one cheap, one trusted, told apart by what they declare and refused when swapped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

import numpy as np

from robot.types import Array

T_contra = TypeVar("T_contra", contravariant=True)


class Trust(Enum):
    """CHEAP: runs on everything, may be wrong, gets corrected. TRUSTED: what the corrections are fitted to."""

    CHEAP = "cheap"
    TRUSTED = "trusted"


class ScorerError(ValueError):
    """Scorers that are swapped, or answer with the wrong number of scores."""


class Scorer(Protocol[T_contra]):
    """Scores trajectories. The scale of a version is stable; a new model or prompt is a new version."""

    @property
    def trust(self) -> Trust: ...

    @property
    def version(self) -> str: ...

    @property
    def seconds_per_score(self) -> float:
        """Declared cost of one score, in seconds of robot or compute time."""

    def score(self, trajectories: Sequence[T_contra]) -> Sequence[float | None]:
        """One score per trajectory, in order; None where it could not tell (a time-out of the grader), never 0."""


@dataclass(frozen=True)
class ScorerPair(Generic[T_contra]):
    """A cheap and a trusted scorer. Swapped, a run would train without an error and end worse than uncorrected."""

    cheap: Scorer[T_contra]
    trusted: Scorer[T_contra]

    def __post_init__(self) -> None:
        for role, scorer in ((Trust.CHEAP, self.cheap), (Trust.TRUSTED, self.trusted)):
            if scorer.trust is not role:
                raise ScorerError(
                    f"{role.value} scorer: expected trust={role}, {type(scorer).__name__} declares {scorer.trust}; "
                    "are the two swapped?"
                )
        if self.cheap.seconds_per_score > self.trusted.seconds_per_score:
            raise ScorerError(
                f"scorers: the cheap one ({self.cheap.seconds_per_score} s per score) costs more than the trusted one "
                f"({self.trusted.seconds_per_score} s); use the trusted one alone, or are the two swapped?"
            )


def scores_of(scorer: Scorer[T_contra], trajectories: Sequence[T_contra]) -> Array:
    """Scores (N,): NaN where the scorer says None, infinity for what is no number (NaN or infinity from the scorer)."""
    scores = scorer.score(trajectories)
    if len(scores) != len(trajectories):
        raise ScorerError(
            f"{type(scorer).__name__}: expected {len(trajectories)} scores, got {len(scores)}; "
            "scores are matched by position, answer None for what could not be scored"
        )
    return np.array(
        [math.nan if s is None else float(s) if math.isfinite(s) else math.inf for s in scores], np.float64
    )
