"""RunningMean: what selection remembers of a stream of numbers; the newest count most."""

from __future__ import annotations

import math


class RunningMean:
    """Exponentially weighted mean with its standard error."""

    def __init__(self, half_life: float) -> None:
        self._decay = 0.5 ** (1.0 / half_life)
        self.weight = self.weight2 = self._sum = self._sum2 = 0.0
        self.count = 0

    def add(self, value: float) -> None:
        decay = self._decay
        self.weight = decay * self.weight + 1.0
        self.weight2 = decay * decay * self.weight2 + 1.0
        self._sum = decay * self._sum + value
        self._sum2 = decay * self._sum2 + value * value
        self.count += 1

    @property
    def mean(self) -> float:
        return self._sum / self.weight if self.count else 0.0

    @property
    def error(self) -> float:
        """Standard error of the mean; infinite below two values."""
        if self.count < 2:
            return math.inf
        variance = max(0.0, self._sum2 / self.weight - self.mean**2)
        effective = self.weight**2 / self.weight2
        return math.sqrt(variance / max(1.0, effective - 1.0))

    def state(self) -> list[float]:
        return [self.weight, self.weight2, self._sum, self._sum2, self.count]

    def load_state(self, state: list[float]) -> None:
        self.weight, self.weight2, self._sum, self._sum2 = (float(value) for value in state[:4])
        self.count = int(state[4])
