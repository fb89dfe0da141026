"""Pacing: the policy's entropy on real states -> how much of a batch may be synthetic, before any gate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rl.agent.distribution import Certainty

RATIO_CAP = 0.30  # none goes beyond it on a physical arm, and elsewhere only one that says so
BEYOND_CAP = 0.95


class PacingRule(Enum):
    """How the ratio follows the uncertainty u in [0, 1]."""

    LINEAR = "linear"  # rho_max (1 - u)
    HYPERBOLIC = "hyperbolic"  # rho_max / (1 + kappa u^p)
    CONSTANT = "constant"  # rho_max: no schedule


@dataclass(frozen=True)
class EntropyPacingConfig:
    """The schedule of the synthetic ratio.

    ratio_max: share of a batch at full certainty, at most 0.30. kappa, power: of the hyperbolic rule.
    entropy_low, entropy_high: nats per action dimension at which u is 0 and 1; ln 2 is the uniform policy.
    half_life: updates of the entropy's moving average. measure_every: updates between measurements.
    saturated_max, std_max: beyond one of them u is 1, since the entropy of a tanh-Gaussian falls again as it saturates:
    bang-bang actions look certain. warm_env_steps: real steps before anything synthetic is used.
    beyond_cap: ratio_max may be up to 0.95, for comparison with methods that learn almost from imagination alone, on
    the simulated arm only. rise_per_100: largest increase of the ratio in 100 updates; a decrease takes effect at once.
    From 0 to 0.30 takes 600 updates: a run has some thousands, where the papers' have a hundred thousand.
    """

    rule: PacingRule = PacingRule.LINEAR
    ratio_max: float = RATIO_CAP
    kappa: float = 1.0
    power: float = 1.0
    entropy_low: float = -0.5
    entropy_high: float = math.log(2.0)
    half_life: float = 200.0
    measure_every: int = 25
    saturated_max: float = 0.30
    std_max: float = 1.2
    warm_env_steps: int = 0
    rise_per_100: float = 0.05
    beyond_cap: bool = False

    def __post_init__(self) -> None:
        checks = {
            f"ratio_max in [0, {self.cap}]": 0.0 <= self.ratio_max <= self.cap,
            "kappa > 0": self.kappa > 0.0,
            "power >= 1": self.power >= 1.0,
            "entropy_low < entropy_high": self.entropy_low < self.entropy_high,
            "half_life > 0": self.half_life > 0.0,
            "measure_every >= 1": self.measure_every >= 1,
            "saturated_max in (0, 1]": 0.0 < self.saturated_max <= 1.0,
            "std_max > 0": self.std_max > 0.0,
            "warm_env_steps >= 0": self.warm_env_steps >= 0,
            "rise_per_100 > 0": self.rise_per_100 > 0.0,
        }
        failed = [rule for rule, holds in checks.items() if not holds]
        if failed:
            raise ValueError(f"pacing of synthetic data: expected {'; '.join(failed)}, got {self}")

    @property
    def cap(self) -> float:
        """The largest share of a batch that may be synthetic."""
        return BEYOND_CAP if self.beyond_cap else RATIO_CAP


class EntropyPacer:
    """rho(u), u = clip((H / d - low) / (high - low), 0, 1), H the smoothed entropy of d action dimensions.

    WorldSample's eq. 8 is rho_max / (1 + kappa H^p); it is undefined for a negative entropy, which a confident
    tanh-Gaussian has, so u takes the place of H. Its "linear approximation" is the first-order Taylor expansion at
    u = 0 with kappa = p = 1. Until a first measurement u is 1.
    """

    def __init__(self, config: EntropyPacingConfig, action_dim: int) -> None:
        self._config, self._dim = config, action_dim
        self._entropy: float | None = None
        self._measured_at = 0
        self._guarded = False

    def observe(self, certainty: Certainty, updates: int) -> None:
        """Take in a measurement made after `updates` updates. Raises ValueError where it is not finite."""
        values = (certainty.entropy, certainty.saturated, certainty.std)
        if not all(math.isfinite(value) for value in values):
            raise ValueError(
                f"policy entropy: expected finite values, got {certainty}; check the policy's weights"
            )
        config = self._config
        if self._entropy is None:
            self._entropy = certainty.entropy
        else:
            keep = 0.5 ** (max(1, updates - self._measured_at) / config.half_life)
            self._entropy = keep * self._entropy + (1.0 - keep) * certainty.entropy
        self._measured_at = updates
        self._guarded = certainty.saturated > config.saturated_max or certainty.std > config.std_max

    @property
    def uncertainty(self) -> float:
        """u in [0, 1]."""
        if self._entropy is None or self._guarded:
            return 1.0
        low, high = self._config.entropy_low, self._config.entropy_high
        return min(1.0, max(0.0, (self._entropy / self._dim - low) / (high - low)))

    def ratio(self, env_steps: int) -> float:
        """The share of a batch that the policy's certainty allows, in [0, ratio_max]."""
        config, u = self._config, self.uncertainty
        if env_steps < config.warm_env_steps:
            return 0.0
        match config.rule:
            case PacingRule.LINEAR:
                return config.ratio_max * (1.0 - u)
            case PacingRule.HYPERBOLIC:
                return config.ratio_max / (1.0 + config.kappa * float(u**config.power))
            case PacingRule.CONSTANT:
                return config.ratio_max

    def metrics(self) -> dict[str, float]:
        entropy = {} if self._entropy is None else {"selection/entropy": self._entropy}
        return entropy | {
            "selection/uncertainty": self.uncertainty,
            "selection/saturated": float(self._guarded),
        }

    def state(self) -> dict[str, Any]:
        return {"entropy": self._entropy, "measured_at": self._measured_at, "guarded": self._guarded}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._entropy = None if state["entropy"] is None else float(state["entropy"])
        self._measured_at, self._guarded = int(state["measured_at"]), bool(state["guarded"])
