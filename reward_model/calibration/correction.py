"""One step of group-relative training with corrected scores: the order of the whole method in one place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from reward_model.calibration.advantages import AdvantageConfig, group_advantages
from reward_model.calibration.anchors import (
    AnchorConfig,
    AnchorKind,
    AnchorPair,
    AnchorScheduler,
    ScorerKey,
)
from reward_model.calibration.calibrator import CalibrationConfig, Calibrator
from reward_model.calibration.gates import GateReading
from reward_model.calibration.scorers import ScorerPair, scores_of
from reward_model.calibration.weight import step_scale
from robot.types import Array

T = TypeVar("T")


@dataclass(frozen=True)
class CorrectionConfig:
    """Anchors, calibration and advantages of a run."""

    anchors: AnchorConfig = field(default_factory=AnchorConfig)
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    advantages: AdvantageConfig = field(default_factory=AdvantageConfig)

    def __post_init__(self) -> None:
        if self.calibration.standardised is not self.advantages.standardise:
            raise ValueError(
                "correction: calibration.standardised must equal advantages.standardise, as it chooses the weight's "
                f"law; got {self.calibration.standardised} and {self.advantages.standardise}"
            )


@dataclass(frozen=True)
class CorrectionStep:
    """Per group: rewards and advantages (N,), NaN = unknown; anchored: indices of the groups that were executed."""

    rewards: list[Array]
    advantages: list[Array]
    anchored: list[int]


class CorrectionLoop(Generic[T]):
    """Scores groups of trajectories and turns the scores into advantages; anchored groups train on the real outcome."""

    def __init__(
        self, scorers: ScorerPair[T], config: CorrectionConfig, calibrator: Calibrator | None = None
    ) -> None:
        """calibrator: one that others feed as well; its own by default. Raises ScorerError for swapped scorers."""
        self._scorers, self._config = scorers, config
        self._scheduler = AnchorScheduler(config.anchors)
        self.calibrator = Calibrator(config.calibration) if calibrator is None else calibrator
        self._executions = 0

    def choose(self, num_groups: int, in_flight: int = 0) -> list[int]:
        """Indices of the groups to anchor, for a trainer that must know before there are trajectories.

        in_flight: groups still being executed elsewhere.
        """
        return self._scheduler.select(num_groups, in_flight)

    def step(
        self,
        groups: Sequence[Sequence[T]],
        tasks: Sequence[str],
        in_flight: int = 0,
        anchored: Sequence[int] | None = None,
    ) -> CorrectionStep:
        """groups: trajectories of one task and initial state each; tasks: one name per group.

        1. choose anchor groups  2. score them by both scorers  3. push the pairs  4. measure disagreement on the
        calibrated residual  5. score and calibrate the rest  6. advantages, weighted after their normalisation.
        in_flight: groups still being executed elsewhere. anchored: indices of groups that were executed since
        `choose` had drawn them; None chooses here.
        """
        anchored = self.choose(len(groups), in_flight) if anchored is None else sorted(anchored)
        version = self._scorers.cheap.version
        keys = [ScorerKey(task, version) for task in tasks]
        rewards: list[Array] = [np.empty(0)] * len(groups)
        for i in anchored:
            rewards[i] = self._anchor(keys[i], groups[i])
        for i in sorted(set(range(len(groups))) - set(anchored)):
            rewards[i] = self.calibrator.calibrate(keys[i], scores_of(self._scorers.cheap, groups[i]))
        factors = self._factors(keys, anchored)
        return CorrectionStep(rewards, group_advantages(rewards, factors, self._config.advantages), anchored)

    def _anchor(self, key: ScorerKey, group: Sequence[T]) -> Array:
        """The real outcomes (N,) of a group, which the calibrator learns from."""
        true = scores_of(self._scorers.trusted, group)
        raw = scores_of(self._scorers.cheap, group)
        pairs = []
        for cheap, trusted in zip(raw.tolist(), true.tolist(), strict=True):
            self._executions += 1
            # Each trajectory was executed on its own; stored episodes, which others feed, have numbers from 0 on.
            episode = -self._executions
            pairs.append(AnchorPair(_or_none(cheap), _or_none(trusted), episode, AnchorKind.COUNTERFACTUAL))
        self.calibrator.observe(key, pairs)
        return np.where(np.isinf(true), np.nan, true)

    def _factors(self, keys: Sequence[ScorerKey], anchored: Sequence[int]) -> list[float]:
        """Anchors: their weight. The rest: their gate. Renormalised where the published algorithm is not followed."""
        weight = self.calibrator.anchor_weight
        if not self.calibrator.obeys_gate:
            return [weight if i in anchored else 1.0 for i in range(len(keys))]
        scale = step_scale(weight, len(anchored), len(keys) - len(anchored))
        return [
            (weight if i in anchored else self.calibrator.gate(key).value) / scale
            for i, key in enumerate(keys)
        ]

    def gate(self, task: str) -> GateReading:
        """The gate of a task under the cheap scorer's current version."""
        return self.calibrator.gate(ScorerKey(task, self._scorers.cheap.version))

    def metrics(self, task: str) -> dict[str, float]:
        key = ScorerKey(task, self._scorers.cheap.version)
        return {**self._scheduler.metrics(), **self.calibrator.metrics(key)}

    def state_dict(self) -> dict[str, Any]:
        return {
            "scheduler": self._scheduler.state_dict(),
            "calibrator": self.calibrator.state_dict(),
            "executions": self._executions,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._scheduler.load_state_dict(state["scheduler"])
        self.calibrator.resume(state["calibrator"])
        self._executions = state["executions"]


def _or_none(score: float) -> float | None:
    return None if math.isnan(score) else score
