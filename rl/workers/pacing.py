"""Pacing between actor and learner: an explicit exchange rate of updates for environment steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum


class ActorWaits(Enum):
    """Where the actor may wait for the learner. A real arm is never paused in mid-episode for a slow learner."""

    STEP = "step"  # virtual clock: nothing moves while it waits, so every step can be paced
    EPISODE = "episode"  # wall clock: only between episodes, the arm holds
    NEVER = "never"


@dataclass(frozen=True)
class PacingConfig:
    """`utd_ratio` times `factor` updates per environment step, from the first environment step on.

    factor: of an arm that is to compute more or less than the others on the same experiment.
    slack_steps: how many environment steps the actor may be ahead of the learner before it waits.
    """

    utd_ratio: float = 2.0
    factor: float = 1.0
    slack_steps: int = 8
    actor_waits: ActorWaits = ActorWaits.STEP

    def __post_init__(self) -> None:
        if not 0 < self.utd_ratio <= 64:
            raise ValueError(f"utd_ratio: expected a number in (0, 64], got {self.utd_ratio}")
        if not 0 < self.factor <= 64:
            raise ValueError(f"factor: expected a number in (0, 64], got {self.factor}")
        if self.slack_steps < 1:
            raise ValueError(f"slack_steps: expected at least 1, got {self.slack_steps}")

    def updates_due(self, env_steps: int, warm_updates: int) -> int:
        """All updates that `env_steps` pay for, the warm start included."""
        return warm_updates + math.floor(self.utd_ratio * self.factor * env_steps)

    def actor_ahead(self, env_steps: int, updates: int, warm_updates: int) -> bool:
        """The actor has run further ahead of the learner than the slack allows."""
        return updates < self.updates_due(max(0, env_steps - self.slack_steps), warm_updates)
