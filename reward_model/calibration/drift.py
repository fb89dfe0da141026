"""Alarms on the residuals of anchored episodes, each time that one is replayed: a lasting shift, and a sudden surge."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class DriftConfig:
    """Residuals are in units of the outcome (0..1).

    tolerance, threshold: of the Page-Hinkley test; a lasting shift by d is found after about
    threshold / (d - tolerance) episodes. surge_episodes: how many of the newest are compared with those before.
    surge_ratio: by how much their mean squared residual may exceed the older one. surge_floor: below this mean square
    nothing is a surge (2 complete misses in 8 episodes make .25).
    """

    tolerance: float = 0.1
    threshold: float = 4.0
    surge_episodes: int = 8
    surge_ratio: float = 3.0
    surge_floor: float = 0.2

    def __post_init__(self) -> None:
        if self.tolerance < 0.0 or self.threshold <= 0.0 or self.surge_floor < 0.0:
            raise ValueError("drift: expected tolerance >= 0, threshold > 0 and surge_floor >= 0")
        if self.surge_episodes < 1 or self.surge_ratio <= 1.0:
            raise ValueError("drift: expected surge_episodes >= 1 and surge_ratio > 1")


class PageHinkley:
    """Two-sided Page-Hinkley test for a change of the mean (Page 1954, Hinkley 1971).

    m_t = sum_i (x_i - mean_i - tolerance), alarm where m_t - min m > threshold; the mirror image for a fall.
    """

    def __init__(self, tolerance: float, threshold: float) -> None:
        self._tolerance, self._threshold = tolerance, threshold
        self.reset()

    def reset(self) -> None:
        self._count, self._mean = 0, 0.0
        self._up = self._down = 0.0  # m_t - min m, of x and of -x

    def update(self, value: float) -> bool:
        """Add one value; True where the mean has shifted."""
        self._count += 1
        self._mean += (value - self._mean) / self._count
        deviation = value - self._mean
        self._up = max(0.0, self._up + deviation - self._tolerance)
        self._down = max(0.0, self._down - deviation - self._tolerance)
        return max(self._up, self._down) > self._threshold

    def state_dict(self) -> dict[str, Any]:
        return {"count": self._count, "mean": self._mean, "up": self._up, "down": self._down}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._count, self._mean = state["count"], state["mean"]
        self._up, self._down = state["up"], state["down"]


class Surge:
    """Whether the newest replays are predicted much worse than those before; falls silent when they are not.

    An episode that is replayed again counts again: one that is predicted badly may so raise an alarm of its own. With
    each counted once, a world model that shows success everywhere was shut out after 520 updates instead of 300.
    """

    def __init__(self, config: DriftConfig, memory: int = 64) -> None:
        self._config = config
        self._squares: deque[float] = deque(maxlen=memory + config.surge_episodes)

    def update(self, mean_square: float) -> None:
        """Add the mean squared residual of one replayed episode."""
        self._squares.append(mean_square)

    def reset(self) -> None:
        self._squares.clear()

    @property
    def active(self) -> bool:
        recent = self._config.surge_episodes
        if len(self._squares) < 2 * recent:
            return False
        squares = np.array(self._squares)
        level, before = float(squares[-recent:].mean()), float(squares[:-recent].mean())
        return level > max(self._config.surge_floor, self._config.surge_ratio * before)

    def state_dict(self) -> dict[str, Any]:
        return {"squares": list(self._squares)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._squares = deque(state["squares"], maxlen=self._squares.maxlen)
