"""How loud an anchor is beside cheap scores: inverse-variance weights from the measured disagreement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from reward_model.calibration.debias import centred_error
from robot.types import Array

DEGENERATE = 1e-9  # variance of the real outcomes below which a group cannot be compared with


class Law(Enum):
    """Weight of an anchor group whose cheap scores disagree by s^2.

    LINEAR: 1 + s^2, the ratio of the variances, for advantages that are only centred. ROOT: sqrt(1 + s^2), for
    advantages divided by their group's deviation: there the noise stays and the signal shrinks by that factor.
    """

    LINEAR = "linear"
    ROOT = "root"


class Scale(Enum):
    """The constant c before s^2. FROZEN (as published): such that the weight is `target` after `warmup` groups; until
    then the weight is 1. UNIT: c = 1, which needs no tuning."""

    FROZEN = "frozen"
    UNIT = "unit"


@dataclass(frozen=True)
class WeightConfig:
    """Half-life and warm-up in informative anchor groups; the weight is clipped to [1, max_weight].

    target = max_weight = 1 switches it off: anchors are as loud as cheap scores.
    """

    half_life: float = 64.0
    warmup: int = 32
    max_weight: float = 4.0
    target: float = 2.0

    def __post_init__(self) -> None:
        off = self.target == self.max_weight == 1.0
        if self.half_life < 1.0 or self.warmup < 1 or not (off or 1.0 < self.target <= self.max_weight):
            raise ValueError(
                "weight: expected half_life >= 1, warmup >= 1 and 1 < target <= max_weight, got "
                f"{self.half_life}, {self.warmup}, {self.target}, {self.max_weight}"
            )


class InverseVarianceWeighter:
    """Weight of anchor groups from a running mean of their disagreement."""

    def __init__(self, config: WeightConfig, law: Law, scale: Scale) -> None:
        self._config, self._law, self._scale = config, law, scale
        self._alpha = 1.0 - 0.5 ** (1.0 / config.half_life)
        self._disagreement = math.nan
        self._groups = self._degenerate = 0
        self._c: float | None = 1.0 if scale is Scale.UNIT else None

    def observe(self, calibrated: Array, true: Array) -> None:
        """One anchor group: calibrated scores and real outcomes, (N,). Groups of one outcome are ignored, not 0.

        s^2 = mean(((f(x) - mean f) - (r - mean r))^2) / Var(r), then averaged with the half-life. FROZEN starts the
        average with the first group, as published; UNIT weighs the first groups alike.
        """
        variance = float(true.var()) if len(true) else 0.0
        if variance < DEGENERATE:
            self._degenerate += 1
            return
        self._groups += 1
        alpha = self._alpha
        if self._scale is Scale.UNIT:
            alpha /= 1.0 - (1.0 - alpha) ** self._groups
        s2 = centred_error(calibrated, true) / variance
        self._disagreement = (
            s2 if self._groups == 1 else self._disagreement + alpha * (s2 - self._disagreement)
        )
        if self._c is None and self._groups >= self._config.warmup and self._disagreement > 1e-12:
            self._c = (self._config.target - 1.0) / self._disagreement

    @property
    def disagreement(self) -> float:
        """s^2; NaN before the first informative group."""
        return self._disagreement

    @property
    def weight(self) -> float:
        """The weight of an anchor group; exactly 1 while c or s^2 is unknown."""
        if self._c is None or self._groups == 0:
            return 1.0
        inflated = 1.0 + self._c * self._disagreement
        if self._law is Law.ROOT:
            inflated = math.sqrt(inflated)
        return min(self._config.max_weight, max(1.0, inflated))

    def metrics(self) -> dict[str, float]:
        return {
            "calibration/disagreement": self.disagreement,
            "calibration/anchor_weight": self.weight,
            "calibration/informative_groups": float(self._groups),
            "calibration/degenerate_groups": float(self._degenerate),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "disagreement": self._disagreement if self._groups else None,
            "groups": self._groups,
            "degenerate": self._degenerate,
            "c": self._c,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        s2 = state["disagreement"]
        self._disagreement = math.nan if s2 is None else s2
        self._groups, self._degenerate, self._c = state["groups"], state["degenerate"], state["c"]


def step_scale(weight: float, anchored: int, cheap: int) -> float:
    """What advantages are divided by so that loud anchors do not lengthen the step: (w n_E + n_W) / (n_E + n_W)."""
    groups = anchored + cheap
    return (weight * anchored + cheap) / groups if groups else 1.0


def synthetic_td_weight(brier: float, variance: float, max_weight: float = 4.0) -> float:
    """Weight of a synthetic TD term beside a real one, 1 / clip(1 + Brier / Var(r), 1, max_weight).

    brier: mean squared residual of calibrated scores on anchors; variance: of the real outcomes. Where the outcomes do
    not vary, or nothing is known of them, the weight is the smallest: 1 / max_weight.
    """
    if not (math.isfinite(brier) and variance >= DEGENERATE):
        return 1.0 / max_weight
    return 1.0 / min(max_weight, max(1.0, 1.0 + brier / variance))
