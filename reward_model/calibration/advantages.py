"""Group-relative advantages over what is known: an unknown reward is left out of its group, never counted as 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robot.types import Array


@dataclass(frozen=True)
class AdvantageConfig:
    """standardise: divide by the group's deviation, as GRPO, or only centre. min_graded: fewer skip the group."""

    standardise: bool = False
    epsilon: float = 1e-4
    min_graded: int = 2

    def __post_init__(self) -> None:
        if self.epsilon <= 0.0 or self.min_graded < 2:
            raise ValueError(
                f"advantages: expected epsilon > 0 and min_graded >= 2, got {self.epsilon}, {self.min_graded}"
            )


def group_advantages(
    rewards: Sequence[Array], factors: Sequence[float], config: AdvantageConfig
) -> list[Array]:
    """Per group: (r - mean) / (std + epsilon) or r - mean over its known rewards, times the group's factor.

    rewards: one (N,) per group, NaN = unknown. factors: one per group, applied after the normalisation, which would
    cancel them. Returns one (N,) per group, NaN where the reward is unknown or the group has too few known ones.
    """
    advantages = []
    for group, factor in zip(rewards, factors, strict=True):
        advantage = np.full(group.shape, np.nan)
        known = np.isfinite(group)
        if known.sum() >= config.min_graded:
            centred = group[known] - group[known].mean()
            scale = group[known].std() + config.epsilon if config.standardise else 1.0
            advantage[known] = factor * centred / scale
        advantages.append(advantage)
    return advantages
