"""SyntheticShare: how much of the learner's next batch is imagined; pacing times gates, nothing where one is shut."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rl.agent.distribution import Certainty
from rl.batch import SYNTHETIC, Batch
from rl.selection.pacing import RATIO_CAP, EntropyPacer, EntropyPacingConfig
from rl.selection.queues import SyntheticQueues
from rl.selection.ratio import EffectiveRatio, Gates, RatioMode
from rl.workers.ports import (
    ALIVE,
    CALIBRATION_GATE,
    MILLIONTHS,
    OLDEST_MODEL,
    SELECTION_GATE,
    SUCCESS_SHARE,
    WORLD_MODEL_GATE,
    CountersPort,
)
from robot.types import Label


@dataclass(frozen=True)
class SyntheticShareConfig:
    """mode: what the ratio is a ratio of. weight_share: share of the batch in `loss_weight` mode."""

    mode: RatioMode = RatioMode.FRACTION
    weight_share: float = 0.30
    pacing: EntropyPacingConfig = field(default_factory=EntropyPacingConfig)

    def __post_init__(self) -> None:
        if not 0.0 < self.weight_share <= RATIO_CAP:
            raise ValueError(
                f"synthetic.share.weight_share: expected (0, {RATIO_CAP}], got {self.weight_share}"
            )


class SyntheticShare:
    """Asked before each batch. With `ratio_max` 0 it draws no random number and changes nothing: plain RLPD.

    certainty: how sure the policy is on real states now; None while there are none. policy_version: the newest one that
    the learner has published, by which clips grow old.
    """

    def __init__(
        self,
        queues: SyntheticQueues,
        counters: CountersPort,
        config: SyntheticShareConfig,
        *,
        action_dim: int,
        certainty: Callable[[], Certainty | None],
        alive: Callable[[], bool],
        policy_version: Callable[[], int],
    ) -> None:
        self._queues, self._counters, self._config = queues, counters, config
        self._certainty, self._alive, self._policy_version = certainty, alive, policy_version
        self._pacer = EntropyPacer(config.pacing, action_dim)
        self._ratio = EffectiveRatio(config.pacing.rise_per_100, config.pacing.cap)
        self._gates = Gates()
        self._paced = 0.0

    def shares(
        self, real: Mapping[str, float], batch_size: int, env_steps: int, updates: int
    ) -> dict[str, float]:
        """`real` shares, scaled down to make room for whole synthetic transitions, never more than the ratio."""
        pacing = self._config.pacing
        if pacing.ratio_max == 0.0:
            return dict(real)
        if updates % pacing.measure_every == 0:
            certainty = self._certainty()
            if certainty is not None:
                self._pacer.observe(certainty, updates)
            self._queues.policy_is(self._policy_version())
        self._gates = self._read_gates()
        self._paced = self._pacer.ratio(env_steps)
        ratio = self._ratio.update(self._paced, self._gates, updates)
        share = self._config.weight_share if self._config.mode is RatioMode.LOSS_WEIGHT and ratio else ratio
        count = math.floor(share * batch_size + 1e-9)
        if count == 0:
            return dict(real)
        self._queues.success_share = self._counters.get(SUCCESS_SHARE) / MILLIONTHS
        left = (batch_size - count) / batch_size
        return {name: value * left for name, value in real.items()} | {SYNTHETIC: count / batch_size}

    def weigh(self, batch: Batch) -> None:
        """In `loss_weight` mode make the batch's loss L_real + ratio L_synthetic (eq. 4), up to a constant factor."""
        count = batch.shares.get(SYNTHETIC, 0)
        if self._config.mode is RatioMode.LOSS_WEIGHT and count:
            batch.weight[-count:] = self._ratio.value * (len(batch) - count) / count

    def _read_gates(self) -> Gates:
        read = self._counters.get
        calibration = read(CALIBRATION_GATE)
        # Read after the gate: a version opens it only once what may not be drawn any more has been said.
        self._queues.drop_models_before(read(OLDEST_MODEL))
        return Gates(
            world_model=read(WORLD_MODEL_GATE) / MILLIONTHS,
            # Counted by what may still be drawn: what was admitted long ago may be too old or used up by now.
            selection=read(SELECTION_GATE) / MILLIONTHS if self._queues.size else 0.0,
            calibration=calibration / MILLIONTHS,
            alive=bool(read(ALIVE)) and self._alive(),
        )

    def metrics(self) -> dict[str, float]:
        """Every factor of the ratio, and what may still be drawn."""
        sizes = self._queues.sizes()
        return self._pacer.metrics() | {
            "selection/ratio": self._ratio.value,
            "selection/paced": self._paced,
            "selection/gate_world_model": self._gates.world_model,
            "selection/gate_selection": self._gates.selection,
            "selection/gate_calibration": self._gates.calibration,
            "selection/alive": float(self._gates.alive),
            "selection/used": float(self._queues.drawn),
            "selection/queue_successes": float(sizes[Label.SUCCESS]),
            "selection/queue_failures": float(sizes[Label.FAILURE]),
        }

    def state(self) -> dict[str, Any]:
        return {"pacer": self._pacer.state(), "ratio": self._ratio.state(), "queues": self._queues.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._pacer.load_state(state["pacer"])
        self._ratio.load_state(state["ratio"])
        self._queues.load_state(state["queues"])
