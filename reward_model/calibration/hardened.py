"""The debiaser for a robot: one map per task and scorer version, shrunk to what is known already, never a dead tie."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reward_model.calibration.anchors import AnchorKind, ScorerKey
from reward_model.calibration.debias import DebiasConfig, centred_error
from reward_model.calibration.monotone import (
    Mixture,
    MonotoneMap,
    blend,
    equal_width_edges,
    fit_monotone,
    quantile_edges,
)
from robot.types import Array


@dataclass(frozen=True)
class HardenedConfig:
    """What the hardened debiaser adds.

    replay_weight, executed_weight: evidence per pair of A0 and of A2; of A1 it is 1. prior_count: pseudo-outcomes of
    the overall mean in every bin. strictness: share of the raw score in the result, which keeps its order strict where
    the map is flat. shrinkage: a key with n pairs has the share n / (n + shrinkage) beside the map it started from.
    narrow_spread: quantile bins where the middle 90% of the scores span less. pairs_per_bin: fewer bins, but two, while
    there are fewer pairs, as the prior weighs on small bins. versions_kept: scorer versions whose pairs are kept.
    """

    replay_weight: float = 0.5
    executed_weight: float = 3.0
    prior_count: float = 4.0
    strictness: float = 0.02
    shrinkage: float = 100.0
    narrow_spread: float = 0.5
    pairs_per_bin: int = 40
    versions_kept: int = 2

    def __post_init__(self) -> None:
        if self.replay_weight <= 0.0 or self.executed_weight <= 0.0:
            raise ValueError("hardened: expected replay_weight > 0 and executed_weight > 0")
        if self.prior_count < 0.0 or self.shrinkage < 0.0 or not 0.0 < self.strictness < 1.0:
            raise ValueError("hardened: expected prior_count >= 0, shrinkage >= 0 and strictness in (0, 1)")
        if self.narrow_spread < 0.0 or self.pairs_per_bin < 1 or self.versions_kept < 1:
            raise ValueError(
                "hardened: expected narrow_spread >= 0, pairs_per_bin >= 1 and versions_kept >= 1"
            )

    def evidence(self, kind: AnchorKind) -> float:
        """How much a pair of this kind counts in the fit."""
        match kind:
            case AnchorKind.REPLAY:
                return self.replay_weight
            case AnchorKind.HINDSIGHT:
                return 1.0
            case AnchorKind.COUNTERFACTUAL:
                return self.executed_weight


class _Keyed:
    """Pairs and maps of one key; None is the identity. `start`: the map of the task's version before."""

    def __init__(self, capacity: int, start: Mixture | None) -> None:
        self.pairs: deque[tuple[float, float, float]] = deque(maxlen=capacity)  # raw, true, weight
        self.start = start
        self.current = start


class KeyedDebiaser:
    """f(x) = (1 - eps) g(x) + eps x, with g = lambda g_key + (1 - lambda) g_base and lambda = n / (n + shrinkage).

    g_base is the map of the task's previous version, or without one the map of all tasks under this version. A
    task alone with its first version has no base: lambda = 1, and it needs `min_pairs` of its own. The first fit of
    all comes at `min_pairs` pairs over all keys.
    """

    def __init__(self, config: DebiasConfig, hardened: HardenedConfig) -> None:
        self._config, self._hardened = config, hardened
        self._keys: dict[ScorerKey, _Keyed] = {}  # in the order of their first pair
        self._since_fit = 0
        self._fits = 0

    @property
    def fits(self) -> int:
        return self._fits

    def push(self, key: ScorerKey, raw: Array, true: Array, weight: Array) -> None:
        keyed = self._keyed(key)
        for pair in zip(raw.tolist(), true.tolist(), weight.tolist(), strict=True):
            keyed.pairs.append(pair)
            self._since_fit += 1
        total = sum(len(other.pairs) for other in self._keys.values())
        if total >= self._config.min_pairs and self._since_fit >= self._config.refit_every:
            self._refit()

    def apply(self, key: ScorerKey, raw: Array) -> Array:
        mixture = self._mixture(key)
        if mixture is None:
            return raw
        strictness = self._hardened.strictness
        calibrated: Array = (1.0 - strictness) * mixture(raw) + strictness * raw
        return calibrated

    def fitted(self, key: ScorerKey) -> bool:
        return self._mixture(key) is not None

    def reset(self, key: ScorerKey) -> None:
        """Forget the pairs, the map and the start of `key`: what they describe has changed."""
        self._keys[key] = _Keyed(self._config.capacity, None)

    def _keyed(self, key: ScorerKey) -> _Keyed:
        if key not in self._keys:
            self._keys[key] = _Keyed(self._config.capacity, self._mixture(key))
            of_task = [other for other in self._keys if other.task == key.task]
            for old in of_task[: -self._hardened.versions_kept]:
                del self._keys[old]
        return self._keys[key]

    def _mixture(self, key: ScorerKey) -> Mixture | None:
        """The map of `key`, or of the newest version of its task that one was learnt for."""
        if key in self._keys:
            return self._keys[key].current
        of_task = [keyed.current for other, keyed in self._keys.items() if other.task == key.task]
        return next((current for current in reversed(of_task) if current is not None), None)

    def _refit(self) -> None:
        everything = [pair for keyed in self._keys.values() for pair in keyed.pairs]
        _, outcomes, weights = np.array(everything).T
        mean = float(np.average(outcomes, weights=weights))
        fitted_any = False
        for key, keyed in self._keys.items():
            own = self._fit(list(keyed.pairs), mean)
            base = keyed.start if keyed.start is not None else self._of_version(key, mean)
            if own is not None and (base is not None or len(keyed.pairs) >= self._config.min_pairs):
                count = sum(weight for *_, weight in keyed.pairs)
                keyed.current = blend(count / (count + self._hardened.shrinkage), own, base)
                fitted_any = True
            elif base is not None:
                keyed.current = base
        if fitted_any:
            self._since_fit = 0
            self._fits += 1

    def _of_version(self, key: ScorerKey, mean: float) -> Mixture | None:
        """The map of all tasks under this scorer version; None where no other task has pairs of it."""
        others = [k for other, k in self._keys.items() if other.version == key.version and other != key]
        if not any(k.pairs for k in others):
            return None
        pooled = self._fit([pair for k in (*others, self._keys[key]) for pair in k.pairs], mean)
        return None if pooled is None else Mixture(((1.0, pooled),))

    def _fit(self, pairs: list[tuple[float, float, float]], mean: float) -> MonotoneMap | None:
        hardened = self._hardened
        if not pairs:
            return None
        bins = max(2, min(self._config.bins, len(pairs) // hardened.pairs_per_bin))
        raw, true, weight = np.array(pairs).T
        low, high = np.quantile(raw, [0.05, 0.95])
        narrow = high - low < hardened.narrow_spread
        edges = quantile_edges(raw, bins) if narrow else equal_width_edges(bins)
        return fit_monotone(raw, true, edges, weight, hardened.prior_count, mean)

    def metrics(self, key: ScorerKey) -> dict[str, float]:
        pairs = self._keys[key].pairs if key in self._keys else ()
        metrics = {"calibration/pairs": float(len(pairs)), "calibration/fits": float(self._fits)}
        if pairs and self.fitted(key):
            raw, true, _ = np.array(pairs).T
            before, after = centred_error(raw, true), centred_error(self.apply(key, raw), true)
            metrics["calibration/error_before_fit"] = before
            metrics["calibration/error_after_fit"] = after
            metrics["calibration/error_reduction"] = 1.0 - after / max(1e-9, before)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        return {
            "since_fit": self._since_fit,
            "fits": self._fits,
            "keys": [
                {
                    "task": key.task,
                    "version": key.version,
                    "pairs": [list(pair) for pair in keyed.pairs],
                    "start": None if keyed.start is None else keyed.start.state(),
                    "current": None if keyed.current is None else keyed.current.state(),
                }
                for key, keyed in self._keys.items()
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._since_fit, self._fits = state["since_fit"], state["fits"]
        self._keys = {}
        for entry in state["keys"]:
            start, current = (
                None if entry[name] is None else Mixture.of_state(entry[name])
                for name in ("start", "current")
            )
            keyed = _Keyed(self._config.capacity, start)
            keyed.pairs.extend((raw, true, weight) for raw, true, weight in entry["pairs"])
            keyed.current = current
            self._keys[ScorerKey(entry["task"], entry["version"])] = keyed
