"""Whether calibrated scores may be learnt from: a gate in [0, 1] that is 0, with a named reason, unless proven."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reward_model.calibration.anchors import AnchorKind
from reward_model.calibration.drift import DriftConfig, PageHinkley, Surge
from reward_model.calibration.evidence import Evidence, Judged, Window, weigh_rows
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
    EXECUTED_WRONG = "executed_wrong"  # rank_weak or miscalibrated on executed counterfactuals alone
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

    Of executed counterfactuals alone the same is asked, and the smaller value counts, once there are any of both
    outcomes from `min_executed` distinct episodes.
    min_anchors: distinct episodes needed. window: newest episodes looked at, of each the newest `pairs_per_episode`;
    executed counterfactuals have a window of their own, which replays do not crowd.
    resamples: of the bootstrap over episodes. recent_scores: newest scores among which none may be non-finite and at
    most max_unknown (a share) unknown.
    """

    min_anchors: int = 20
    min_executed: int = 10
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
        if not 2 <= self.min_executed <= self.window:
            raise ValueError(
                f"gate: expected 2 <= min_executed <= window, got {self.min_executed} and {self.window}"
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
    """value: 0..1. closures: every reason for 0, empty while the gate is open.

    executed: the evidence of executed counterfactuals alone, which is part of `evidence` too.
    """

    value: float
    closures: tuple[Closure, ...]
    evidence: Evidence
    executed: Evidence

    def metrics(self) -> dict[str, float]:
        """All numbers, and 0 or 1 for each reason.

        Bias and variance stay apart: a confident, consistent, wrong scorer has a small variance.
        """
        evidence = dataclasses.asdict(self.evidence)
        metrics = {"calibration/gate": self.value, "calibration/effective_anchors": evidence.pop("episodes")}
        metrics |= {f"calibration/{name}": value for name, value in evidence.items()}
        metrics |= {
            "calibration/executed_episodes": self.executed.episodes,
            "calibration/executed_auc": self.executed.auc,
            "calibration/executed_ece": self.executed.ece,
        }
        return metrics | {f"calibration/closed_{c.value}": float(c in self.closures) for c in Closure}


class Gate:
    """Evidence on one key, from predictions made before their outcomes were seen; starts closed."""

    def __init__(
        self,
        config: GateConfig,
        *,
        successor: bool,
        weight: Callable[[AnchorKind], float] = lambda kind: 1.0,
    ) -> None:
        """successor: the task had an older scorer version before, whose evidence does not count.

        weight: how much a pair of a kind counts as evidence.
        """
        self._config, self._successor, self._weight = config, successor, weight
        self._replayed = Window(config.window, config.pairs_per_episode)
        self._executed = Window(config.window, config.pairs_per_episode)
        self._scores: deque[int] = deque(maxlen=config.recent_scores)  # 0 known, 1 unknown, 2 non-finite
        self._drift = PageHinkley(config.drift.tolerance, config.drift.threshold)
        self._surge = Surge(config.drift)
        self._fitted = self._drifted = False
        self._observed = 0
        self._evidence: tuple[Evidence, Evidence] | None = None  # None: to be weighed anew

    def observe(
        self,
        predicted: Array,
        true: Array,
        episode: NDArray[np.int64],
        kinds: Sequence[AnchorKind] | None = None,
        *,
        fitted: bool,
    ) -> bool:
        """Add anchors, all (N,) and finite; True where they show a drift, after which all evidence starts anew.

        kinds: how their outcomes came about; None: all HINDSIGHT. fitted: the predictions went through a learnt map.
        Those of the identity say nothing of the map and are dropped at its first fit.
        """
        if fitted and not self._fitted:
            self._forget()
        self._fitted, self._evidence = fitted, None
        for score, outcome, one, kind in zip(
            predicted.tolist(),
            true.tolist(),
            episode.tolist(),
            [AnchorKind.HINDSIGHT] * len(true) if kinds is None else kinds,
            strict=True,
        ):
            window = self._executed if kind is AnchorKind.COUNTERFACTUAL else self._replayed
            window.add(one, Judged(score, outcome, kind))
        self._observed += len(predicted)
        if len(self._replayed.episodes | self._executed.episodes) >= self._config.min_anchors:
            self._drifted = False
        if not fitted:
            return False
        alarms = []
        for one in dict.fromkeys(episode.tolist()):  # as they came: their numbers say nothing of their age
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
        self._replayed.clear()
        self._executed.clear()
        self._drift.reset()
        self._surge.reset()

    @property
    def reading(self) -> GateReading:
        if self._evidence is None:
            self._evidence = self._weigh()
        evidence, executed = self._evidence
        closures = self._closures(evidence, executed)
        value = 0.0 if closures else min(self._value(evidence), self._value_of_executed(executed))
        return GateReading(value, closures, evidence, executed)

    def _value(self, evidence: Evidence) -> float:
        """What rank and calibration alone would open; 0 for NaN."""
        config = self._config
        if not (evidence.auc > config.auc_closed and evidence.ece <= config.max_ece):
            return 0.0
        return min(1.0, (evidence.auc - config.auc_closed) / (config.auc_open - config.auc_closed))

    def _value_of_executed(self, executed: Evidence) -> float:
        """The same of executed counterfactuals; 1 while they are too few, or of one outcome."""
        enough = executed.episodes >= self._config.min_executed and math.isfinite(executed.auc)
        return self._value(executed) if enough else 1.0

    def _weigh(self) -> tuple[Evidence, Evidence]:
        """Of all pairs, and of executed counterfactuals alone."""
        executed = self._executed.rows

        def of(rows: Sequence[tuple[int, Judged]]) -> Evidence:
            rng = np.random.default_rng([self._config.seed, self._observed])
            return weigh_rows(rows, self._weight, self._config.resamples, rng)

        return of(self._replayed.rows + executed), of(executed)

    def _closures(self, evidence: Evidence, executed: Evidence) -> tuple[Closure, ...]:
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
            Closure.EXECUTED_WRONG: not young and self._value_of_executed(executed) == 0.0,
            Closure.NON_FINITE: bool((scores == 2).any()),
            Closure.UNKNOWN_SCORES: bool(len(scores)) and float((scores == 1).mean()) > config.max_unknown,
        }
        return tuple(closure for closure, held in holds.items() if held)

    def state_dict(self) -> dict[str, Any]:
        return {
            "successor": self._successor,
            "replayed": self._replayed.state(),
            "executed": self._executed.state(),
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
        self._replayed.load_state(state["replayed"])
        self._executed.load_state(state["executed"])
        self._scores.clear()
        self._scores.extend(state["scores"])
        self._drift.load_state_dict(state["drift"])
        self._surge.load_state_dict(state["surge"])
        self._evidence = None
