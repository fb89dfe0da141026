"""The effective ratio: pacing times the gates of model, selection and labels; it rises slowly and falls at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from rl.selection.pacing import RATIO_CAP


class RatioMode(Enum):
    """What the ratio is a ratio of."""

    FRACTION = "fraction"  # of the transitions in a batch
    LOSS_WEIGHT = "loss_weight"  # weight of the synthetic loss beside the real one, WorldSample's eq. 4


@dataclass(frozen=True)
class Gates:
    """Factors in [0, 1] by which others hold synthetic data back; a missing one is 0, never 1.

    world_model: held-out quality and action following. selection: both queues, composition. calibration: labels.
    alive: the world-model worker answers. reasons: why a gate is closed, in words.
    """

    world_model: float = 0.0
    selection: float = 0.0
    calibration: float = 0.0
    alive: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("world_model", "selection", "calibration"):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0.0 <= value <= 1.0):
                raise ValueError(f"gate {name}: expected a number in [0, 1], got {value}")

    @property
    def product(self) -> float:
        return self.world_model * self.selection * self.calibration * self.alive


class EffectiveRatio:
    """rho_eff = min(cap, rho) g_world_model g_selection g_calibration alive.

    The gates are quick and count at once in both directions; only their opening is limited to `rise_per_100` per 100
    updates, so that a recovered model is trusted again step by step.
    """

    def __init__(self, rise_per_100: float, cap: float = RATIO_CAP) -> None:
        self._rise, self._cap = rise_per_100, cap
        self._value = 0.0
        self._updates: int | None = None  # of the last question; time before the first one earns no trust

    @property
    def value(self) -> float:
        return self._value

    def update(self, paced: float, gates: Gates, updates: int) -> float:
        """The ratio to use at `updates`, in [0, cap]; `paced` is the pacer's."""
        if not (math.isfinite(paced) and paced >= 0.0):
            raise ValueError(f"paced ratio: expected a number >= 0, got {paced}")
        wanted = min(self._cap, paced) * gates.product
        since = 0 if self._updates is None else max(0, updates - self._updates)
        reach = self._value + self._rise * since / 100.0
        self._value, self._updates = min(wanted, reach), updates
        return self._value

    def state(self) -> dict[str, Any]:
        return {"value": self._value, "updates": self._updates}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._value = float(state["value"])
        self._updates = None if state["updates"] is None else int(state["updates"])
