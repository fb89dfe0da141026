"""Which groups pay for a real outcome: drawn before any score is seen, within a budget; refusals are logged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np


class AnchorKind(Enum):
    """How the real outcome of an anchor came about, from the free to the only unbiased one.

    REPLAY (A0): the world model on actions that were executed, against the known outcome; no robot time.
    HINDSIGHT (A1): the same on an episode executed after the world-model version was frozen; no robot time.
    COUNTERFACTUAL (A2): a perturbed branch predicted first and executed afterwards; costs robot time.
    """

    REPLAY = "a0"
    HINDSIGHT = "a1"
    COUNTERFACTUAL = "a2"


@dataclass(frozen=True, slots=True, order=True)
class ScorerKey:
    """Scores are comparable within one task and one version of the scorer (world model and reward model)."""

    task: str
    version: str

    def __str__(self) -> str:
        return f"{self.task}@{self.version}"


@dataclass(frozen=True, slots=True)
class AnchorPair:
    """A cheap score and the real outcome of the same trajectory; None is unknown, never 0.

    episode: the real execution behind it. Pairs of one episode are not independent evidence.
    """

    raw: float | None
    true: float | None
    episode: int
    kind: AnchorKind = AnchorKind.HINDSIGHT


@dataclass(frozen=True)
class AnchorConfig:
    """Share of whole groups that get a real outcome. max_concurrent: groups executed at one time, None = no cap."""

    fraction: float = 0.10
    min_per_step: int = 1
    max_concurrent: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.fraction <= 1.0 or self.min_per_step < 0:
            raise ValueError(
                f"anchors: expected fraction in [0, 1] and min_per_step >= 0, got {self.fraction}, {self.min_per_step}"
            )
        if self.max_concurrent is not None and self.max_concurrent < 0:
            raise ValueError(f"anchors.max_concurrent: expected None or >= 0, got {self.max_concurrent}")


class AnchorScheduler:
    """Draws the anchor groups of a step from their number alone, so that no score can sway the choice."""

    def __init__(self, config: AnchorConfig) -> None:
        self._config = config
        self._rng = np.random.default_rng(config.seed)
        self._groups = self._anchored = self._refused = 0

    def select(self, num_groups: int, in_flight: int = 0) -> list[int]:
        """Sorted indices of the groups to execute, without replacement.

        want = min(n, max(min_per_step, round(fraction n))), and no more than max_concurrent - in_flight.
        in_flight: groups still being executed. What the cap takes away counts as refused.
        """
        if num_groups <= 0:
            return []
        config = self._config
        want = min(num_groups, max(config.min_per_step, round(config.fraction * num_groups)))
        granted = want
        if config.max_concurrent is not None:
            granted = min(want, max(0, config.max_concurrent - in_flight))
        self._groups += num_groups
        self._anchored += granted
        self._refused += want - granted
        if granted == 0:
            return []
        return sorted(self._rng.choice(num_groups, size=granted, replace=False).tolist())

    @property
    def realised_fraction(self) -> float:
        """Share of all groups so far that was anchored; below `fraction` where the cap binds. 0 without groups."""
        return self._anchored / self._groups if self._groups else 0.0

    def metrics(self) -> dict[str, float]:
        return {
            "calibration/anchor_fraction": self.realised_fraction,
            "calibration/anchor_groups": float(self._anchored),
            "calibration/anchor_refused": float(self._refused),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "rng": self._rng.bit_generator.state,
            "groups": self._groups,
            "anchored": self._anchored,
            "refused": self._refused,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]
        self._groups, self._anchored, self._refused = state["groups"], state["anchored"], state["refused"]


@dataclass(frozen=True)
class ExecutionConfig:
    """Executed counterfactuals (A2): a share of every `block` of episodes, within `budget_s` seconds of robot time."""

    block: int = 10
    budget_s: float = 600.0
    anchors: AnchorConfig = field(default_factory=AnchorConfig)

    def __post_init__(self) -> None:
        if self.block < 1 or not 0.0 <= self.budget_s < math.inf:
            raise ValueError(
                f"execution: expected block >= 1 and a finite budget_s >= 0, got {self.block}, {self.budget_s}"
            )


class ExecutionScheduler:
    """Says after which episodes a counterfactual is executed: at least one in every block, at random places in it."""

    def __init__(self, config: ExecutionConfig) -> None:
        self._config = config
        self._scheduler = AnchorScheduler(config.anchors)
        self._place = 0  # in the current block
        self._chosen: list[int] = []
        self._spent_s = 0.0
        self._executed = self._refused = 0

    def next_episode(self, expected_s: float) -> bool:
        """Whether to execute a counterfactual now that one more episode is over; call once per episode.

        expected_s: robot time that it will take. Refused, and counted, where that exceeds what is left.
        """
        if self._place == 0:
            self._chosen = self._scheduler.select(self._config.block)
        chosen = self._place in self._chosen
        self._place = (self._place + 1) % self._config.block
        if chosen and expected_s > self._config.budget_s - self._spent_s:
            self._refused += 1
            return False
        return chosen

    def executed(self, seconds: float) -> None:
        """Book the robot time of an executed counterfactual."""
        if not seconds >= 0.0:
            raise ValueError(f"executed: expected seconds >= 0, got {seconds}")
        self._spent_s += seconds
        self._executed += 1

    def metrics(self) -> dict[str, float]:
        return {
            "calibration/execution_s": self._spent_s,
            "calibration/executions": float(self._executed),
            "calibration/executions_refused": float(self._refused),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "scheduler": self._scheduler.state_dict(),
            "place": self._place,
            "chosen": list(self._chosen),
            "spent_s": self._spent_s,
            "executed": self._executed,
            "refused": self._refused,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._scheduler.load_state_dict(state["scheduler"])
        self._place, self._chosen = state["place"], list(state["chosen"])
        self._spent_s, self._executed, self._refused = state["spent_s"], state["executed"], state["refused"]
