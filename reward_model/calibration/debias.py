"""The published online debiaser (WMRL, arXiv 2608.12564), rule for rule: raw score -> expected real outcome."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from reward_model.calibration.anchors import ScorerKey
from reward_model.calibration.monotone import MonotoneMap, equal_width_edges, fit_monotone
from robot.types import Array


class Debiaser(Protocol):
    """Learns a monotone map from anchor pairs; the identity until it has seen enough of them."""

    @property
    def fits(self) -> int:
        """How often the map was fitted: the version of the calibrator."""

    def push(self, key: ScorerKey, raw: Array, true: Array, weight: Array) -> None:
        """Add pairs, all (N,) and finite, in the order of their arrival; refits when due."""

    def apply(self, key: ScorerKey, raw: Array) -> Array:
        """raw (...) to calibrated (...); NaN (unknown) stays NaN."""

    def fitted(self, key: ScorerKey) -> bool:
        """Whether scores of `key` pass through a map that was learnt."""

    def reset(self, key: ScorerKey) -> None:
        """Forget what was learnt about `key`: back to the identity."""

    def metrics(self, key: ScorerKey) -> dict[str, float]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class DebiasConfig:
    """First fit at `min_pairs`, a refit after every `refit_every` more; the newest `capacity` pairs count."""

    min_pairs: int = 200
    refit_every: int = 64
    bins: int = 10
    capacity: int = 5000

    def __post_init__(self) -> None:
        if not 2 <= self.min_pairs <= self.capacity or self.refit_every < 1 or self.bins < 2:
            raise ValueError(
                "debias: expected 2 <= min_pairs <= capacity, refit_every >= 1, bins >= 2, got "
                f"{self.min_pairs}, {self.capacity}, {self.refit_every}, {self.bins}"
            )


class OnlineDebiaser:
    """One map for all keys, on equal-width bins of [0, 1].

    The identity until pair 200; then a refit whenever 64 pairs have come since the last. With fewer than two
    populated bins the map stays as it is, and the next pair tries again. Weights are ignored, as published.
    """

    def __init__(self, config: DebiasConfig) -> None:
        self._config = config
        self._pairs: deque[tuple[float, float]] = deque(maxlen=config.capacity)
        self._since_fit = 0
        self._map: MonotoneMap | None = None
        self._fits = 0
        self._bias_before = self._bias_after = 0.0  # of the pairs at the last fit

    @property
    def fits(self) -> int:
        return self._fits

    @property
    def map(self) -> MonotoneMap | None:
        """The current map; None is the identity."""
        return self._map

    def push(self, key: ScorerKey, raw: Array, true: Array, weight: Array) -> None:
        for pair in zip(raw.tolist(), true.tolist(), strict=True):
            self._pairs.append(pair)
            self._since_fit += 1
            if len(self._pairs) >= self._config.min_pairs and self._since_fit >= self._config.refit_every:
                self._refit()

    def apply(self, key: ScorerKey, raw: Array) -> Array:
        return raw if self._map is None else self._map(raw)

    def fitted(self, key: ScorerKey) -> bool:
        return self._map is not None

    def reset(self, key: ScorerKey) -> None:
        self._pairs.clear()
        self._map, self._since_fit = None, 0

    def _refit(self) -> None:
        raw, true = np.array(self._pairs).T
        fitted = fit_monotone(raw, true, equal_width_edges(self._config.bins))
        if fitted is None:
            return
        self._map, self._since_fit = fitted, 0
        self._fits += 1
        self._bias_before = centred_error(raw, true)
        self._bias_after = centred_error(fitted(raw), true)

    def metrics(self, key: ScorerKey) -> dict[str, float]:
        metrics = {"calibration/pairs": float(len(self._pairs)), "calibration/fits": float(self._fits)}
        if self._map is not None:
            metrics["calibration/error_before_fit"] = self._bias_before
            metrics["calibration/error_after_fit"] = self._bias_after
            metrics["calibration/error_reduction"] = 1.0 - self._bias_after / max(1e-9, self._bias_before)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        return {
            "pairs": [list(pair) for pair in self._pairs],
            "since_fit": self._since_fit,
            "map": None if self._map is None else self._map.state(),
            "fits": self._fits,
            "errors": [self._bias_before, self._bias_after],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._pairs = deque(((raw, true) for raw, true in state["pairs"]), maxlen=self._config.capacity)
        self._since_fit, self._fits = state["since_fit"], state["fits"]
        self._map = None if state["map"] is None else MonotoneMap.of_state(state["map"])
        self._bias_before, self._bias_after = state["errors"]


def centred_error(predicted: Array, true: Array) -> float:
    """Mean squared error (N,), (N,) -> scalar after each side's mean is taken away, as group advantages do."""
    return float(np.mean(((predicted - predicted.mean()) - (true - true.mean())) ** 2))
