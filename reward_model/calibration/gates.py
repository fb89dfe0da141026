"""Whether calibrated scores may be learnt from: a gate in [0, 1] that is 0, with a named reason, unless proven."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reward_model.calibration.drift import DriftConfig, PageHinkley, Surge
from reward_model.calibration.evidence import Evidence, weigh
from robot.types import Array


class Closure(Enum):
    """Why a gate is 0."""

    UNCALIBRATED = "uncalibrated"  # the map is still the identity
    TOO_FEW_ANCHORS = "too_few_anchors"  # fewer distinct episodes than `min_anchors`
    NEW_VERSION = "new_version"  # the same, as the scorer has just been replaced
    DRIFT = "drift"  # residuals have shifted; the map was forgotten, evidence is gathered anew
    SURGE = "surge"  # the newest episodes are predicted much worse than those before
    RANK_UNPROVEN = "rank_unproven"  # the lower bound of the AUC is below .5, or there is one outcome only
    RANK_WEAK = "rank_weak"  # the AUC itself is at most `auc_closed`
    MISCALIBRATED = "miscalibrated"  # calibration error above `max_ece`
    NON_FINITE = "non_finite"  # the scorer has returned something that is no number
    UNKNOWN_SCORES = "unknown_scores"  # too many scores are unknown

    @property
    def wants_evidence(self) -> bool:
        """Whether more anchors are all that is missing, so far as is known."""
        return self in (
            Closure.UNCALIBRATED,
            Closure.TOO_FEW_ANCHORS,
            Closure.NEW_VERSION,
            Closure.DRIFT,
        )


@dataclass(frozen=True)
class GateConfig:
    """gate = clip((AUC - auc_closed) / (auc_open - auc_closed), 0, 1), or 0 for any of the reasons.

    min_anchors: distinct episodes needed. window: newest episodes looked at, of each the newest `pairs_per_episode`.
    resamples: of the bootstrap over episodes. recent_scores: newest scores among which none may be non-finite and at
    most max_unknown (a share) unknown.
    """

    min_anchors: int = 20
    window: int = 100
    pairs_per_episode: int = 16
    resamples: int = 200
    auc_closed: float = 0.6
    auc_open: float = 0.85
    max_ece: float = 0.1
    recent_scores: int = 64
    max_unknown: float = 0.25
    drift: DriftConfig = field(default_factory=DriftConfig)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.min_anchors <= self.window:
            raise ValueError(
                f"gate: expected 2 <= min_anchors <= window, got {self.min_anchors} and {self.window}"
            )
        if self.pairs_per_episode < 1 or self.resamples < 40 or self.recent_scores < 1:
            raise ValueError(
                "gate: expected pairs_per_episode >= 1, resamples >= 40 and recent_scores >= 1, got "
                f"{self.pairs_per_episode}, {self.resamples}, {self.recent_scores}"
            )
        if not 0.5 <= self.auc_closed < self.auc_open <= 1.0:
            raise ValueError(
                f"gate: expected .5 <= auc_closed < auc_open <= 1, got {self.auc_closed}, {self.auc_open}"
            )
        if not 0.0 < self.max_ece <= 1.0 or not 0.0 <= self.max_unknown < 1.0:
            raise ValueError(
                f"gate: expected max_ece in (0, 1] and max_unknown in [0, 1), got {self.max_ece}, {self.max_unknown}"
            )


@dataclass(frozen=True)
class GateReading:
    """value: 0..1. closures: every reason for 0, empty while the gate is open."""

    value: float
    closures: tuple[Closure, ...]
    evidence: Evidence

    def metrics(self) -> dict[str, float]:
        """All numbers, and 0 or 1 for each reason.

        Bias and variance stay apart: a confident, consistent, wrong scorer has a small variance.
        """
        evidence = dataclasses.asdict(self.evidence)
        metrics = {"calibration/gate": self.value, "calibration/effective_anchors": evidence.pop("episodes")}
        metrics |= {f"calibration/{name}": value for name, value in evidence.items()}
        return metrics | {f"calibration/closed_{c.value}": float(c in self.closures) for c in Closure}


class Gate:
    """Evidence on one key, from predictions made before their outcomes were seen; starts closed."""

    def __init__(self, config: GateConfig, *, successor: bool) -> None:
        """successor: the task had an older scorer version before, whose evidence does not count."""
        self._config, self._successor = config, successor
        self._episodes: dict[int, deque[tuple[float, float]]] = {}  # predicted, true; in the order of arrival
        self._scores: deque[int] = deque(maxlen=config.recent_scores)  # 0 known, 1 unknown, 2 non-finite
        self._drift = PageHinkley(config.drift.tolerance, config.drift.threshold)
        self._surge = Surge(config.drift)
        self._fitted = self._drifted = False
        self._observed = 0
        self._evidence: Evidence | None = None  # None: to be weighed anew

    def observe(self, predicted: Array, true: Array, episode: NDArray[np.int64], *, fitted: bool) -> bool:
        """Add anchors, all (N,) and finite; True where they show a drift, after which all evidence starts anew.

        fitted: the predictions went through a learnt map. Those of the identity say nothing of the map and are dropped
        at its first fit.
        """
        if fitted and not self._fitted:
            self._forget()
        self._fitted, self._evidence = fitted, None
        for score, outcome, one in zip(predicted.tolist(), true.tolist(), episode.tolist(), strict=True):
            kept = self._episodes.setdefault(one, deque(maxlen=self._config.pairs_per_episode))
            kept.append((score, outcome))
        while len(self._episodes) > self._config.window:
            del self._episodes[next(iter(self._episodes))]
        self._observed += len(predicted)
        if len(self._episodes) >= self._config.min_anchors:
            self._drifted = False
        if not fitted:
            return False
        alarms = []
        for one in np.unique(episode):
            residual = (predicted - true)[episode == one]
            alarms.append(self._drift.update(float(residual.mean())))
            self._surge.update(float(np.mean(residual**2)))
        if any(alarms):
            self._forget()
            self._fitted, self._drifted = False, True
        return any(alarms)

    def note(self, raw: Array) -> None:
        """Add scores (N,) as the scorer gave them: NaN is unknown, infinity is broken."""
        self._scores.extend((2 * np.isinf(raw) + np.isnan(raw)).tolist())

    def _forget(self) -> None:
        self._episodes.clear()
        self._drift.reset()
        self._surge.reset()

    @property
    def reading(self) -> GateReading:
        config = self._config
        if self._evidence is None:
            self._evidence = self._weigh()
        closures = self._closures(self._evidence)
        span = config.auc_open - config.auc_closed
        value = 0.0 if closures else min(1.0, (self._evidence.auc - config.auc_closed) / span)
        return GateReading(value, closures, self._evidence)

    def _weigh(self) -> Evidence:
        rows = [(*pair, one) for one, pairs in self._episodes.items() for pair in pairs]
        predicted, true, episode = np.array(rows).reshape(-1, 3).T
        rng = np.random.default_rng([self._config.seed, self._observed])
        return weigh(predicted, true, episode, self._config.resamples, rng)

    def _closures(self, evidence: Evidence) -> tuple[Closure, ...]:
        config = self._config
        scores = np.array(self._scores, np.int64)
        young = evidence.episodes < config.min_anchors
        ranked = evidence.auc_low >= 0.5  # False for NaN
        holds = {
            Closure.UNCALIBRATED: not self._fitted,
            Closure.TOO_FEW_ANCHORS: young and not self._drifted and not self._successor,
            Closure.NEW_VERSION: young and not self._drifted and self._successor,
            Closure.DRIFT: self._drifted,
            Closure.SURGE: self._surge.active,
            Closure.RANK_UNPROVEN: not young and not ranked,
            Closure.RANK_WEAK: not young and ranked and not evidence.auc > config.auc_closed,
            Closure.MISCALIBRATED: not young and not evidence.ece <= config.max_ece,
            Closure.NON_FINITE: bool((scores == 2).any()),
            Closure.UNKNOWN_SCORES: bool(len(scores)) and float((scores == 1).mean()) > config.max_unknown,
        }
        return tuple(closure for closure, held in holds.items() if held)

    def state_dict(self) -> dict[str, Any]:
        return {
            "successor": self._successor,
            "episodes": [[one, [list(pair) for pair in pairs]] for one, pairs in self._episodes.items()],
            "scores": list(self._scores),
            "drift": self._drift.state_dict(),
            "surge": self._surge.state_dict(),
            "fitted": self._fitted,
            "drifted": self._drifted,
            "observed": self._observed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._successor, self._observed = state["successor"], state["observed"]
        self._fitted, self._drifted = state["fitted"], state["drifted"]
        size = self._config.pairs_per_episode
        self._episodes = {
            one: deque(((predicted, true) for predicted, true in pairs), maxlen=size)
            for one, pairs in state["episodes"]
        }
        self._scores.clear()
        self._scores.extend(state["scores"])
        self._drift.load_state_dict(state["drift"])
        self._surge.load_state_dict(state["surge"])
        self._evidence = None
