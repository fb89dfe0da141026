"""Learner: warm start from demonstrations, then updates on exact shares of demo and online data, paced by env steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from rl.batch import Batch
from rl.replay.mixer import Mixer, Waiting
from rl.workers.pacing import PacingConfig
from rl.workers.ports import (
    COLLECTED,
    ENV_STEPS,
    LEARNER_DONE,
    UPDATES,
    CountersPort,
    StepResult,
    WeightsPort,
)
from rl.workers.synthetic import SyntheticShare

DEMO, ONLINE = "demo", "online"


class LearningAgent(Protocol):
    """What the learner needs of an agent."""

    def behaviour_cloning(self, batch: Batch) -> dict[str, float]: ...

    def update(self, batch: Batch) -> dict[str, float]: ...

    def policy_tensors(self) -> dict[str, Tensor]: ...

    def value_tensors(self) -> dict[str, Tensor]: ...


@dataclass(frozen=True)
class LearnerConfig:
    """Batch composition and schedule; all counts are updates unless the name says otherwise.

    bc_updates: supervised warm start through the encoder (0 = none). warm_updates: critic and policy updates on
    demonstrations alone before the robot moves. learning_starts_env_steps: online transitions, discarded ones left out,
    before they are mixed.
    diagnose_every: comparison of the critic with the measured returns, also at the end; 0 = never.
    """

    batch_size: int = 64
    demo_ratio: float = 0.5
    bc_updates: int = 0
    warm_updates: int = 200
    learning_starts_env_steps: int = 20
    publish_every: int = 25
    checkpoint_every: int = 250
    log_every: int = 50
    diagnose_every: int = 500

    def __post_init__(self) -> None:
        if self.batch_size < 2 or not 0 < self.demo_ratio < 1:
            raise ValueError("learner: batch_size must be >= 2 and demo_ratio must lie in (0, 1)")
        if min(self.bc_updates, self.warm_updates) < 0 or self.learning_starts_env_steps < 1:
            raise ValueError("learner: bc_updates, warm_updates >= 0 and learning_starts_env_steps >= 1")
        if min(self.publish_every, self.checkpoint_every, self.log_every) < 1:
            raise ValueError("learner: publish_every, checkpoint_every and log_every must be >= 1")
        if self.diagnose_every < 0:
            raise ValueError(f"learner: diagnose_every must be >= 0, got {self.diagnose_every}")

    @property
    def all_warm_updates(self) -> int:
        return self.bc_updates + self.warm_updates


class LearnerWorker:
    """One update per `step()`. Publishes weights under a version, checkpoints so that a kill costs little.

    batch: arrays that every sample is written into, `config.batch_size` long; None allocates anew each time.
    diagnose: metrics that judge the agent and change nothing, not even a random generator.
    synthetic: how much of a batch is imagined; None for plain RLPD. values: where the critics are published for
    whoever selects imagined clips by them.
    """

    def __init__(
        self,
        agent: LearningAgent,
        mixer: Mixer,
        weights: WeightsPort,
        counters: CountersPort,
        config: LearnerConfig,
        pacing: PacingConfig,
        *,
        rng: np.random.Generator,
        batch: Batch | None,
        save_checkpoint: Callable[[int, Mapping[str, Any]], None],
        diagnose: Callable[[], Mapping[str, float]] = dict,
        synthetic: SyntheticShare | None = None,
        values: WeightsPort | None = None,
    ) -> None:
        self._agent, self._mixer, self._weights, self._counters = agent, mixer, weights, counters
        self._config, self._pacing, self._rng, self._batch = config, pacing, rng, batch
        self._save_checkpoint, self._diagnose = save_checkpoint, diagnose
        self._synthetic, self._values = synthetic, values
        self._updates = 0
        self._version = -1
        self._published_at = -1
        self._saved_at = -1

    def step(self) -> StepResult:
        """One update, or what the learner waits for."""
        if self._counters.get(LEARNER_DONE):
            return StepResult(finished=True)
        warm = self._config.all_warm_updates
        env_steps = self._counters.get(ENV_STEPS)
        first = (
            warm if self._synthetic is None else self._config.bc_updates
        )  # imagination begins with the critic
        if self._updates >= first and self._published_at < 0:
            self._publish()
        if self._updates >= self._pacing.updates_due(env_steps, warm):
            if self._counters.get(COLLECTED):
                self._finish()
                return StepResult(
                    metrics=self._diagnose() if self._config.diagnose_every else {}, finished=True
                )
            return StepResult(waiting=f"actor: env step {env_steps}")
        self._mixer.refresh()
        shares = self._shares(env_steps)
        batch = self._mixer.sample(self._config.batch_size, shares, self._rng, out=self._batch)
        if isinstance(batch, Waiting):
            return StepResult(waiting=str(batch))
        if self._synthetic is not None:
            self._synthetic.weigh(batch)
        cloning = self._updates < self._config.bc_updates
        metrics = self._agent.behaviour_cloning(batch) if cloning else self._agent.update(batch)
        self._updates += 1
        self._after_update(warm)
        logged: dict[str, float] = {}
        if self._updates % self._config.log_every == 0:
            logged = dict(metrics) | ({} if self._synthetic is None else self._synthetic.metrics())
        every = self._config.diagnose_every
        if every and self._updates % every == 0:
            logged |= self._diagnose()
        return StepResult(metrics=logged)

    def close(self) -> None:
        """Save where the learner stands, so that a clean stop loses no update."""
        if self._updates > max(0, self._saved_at):
            self._checkpoint()

    def state(self) -> dict[str, Any]:
        """Counters and sampling RNG; the agent's own state is saved beside it."""
        return {
            "updates": self._updates,
            "policy_version": self._version,
            "rng": self._rng.bit_generator.state,
            "synthetic": None if self._synthetic is None else self._synthetic.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue where `state()` was taken: the published policy is the one that the checkpoint names."""
        self._updates = self._saved_at = int(state["updates"])
        self._version = int(state["policy_version"])
        self._rng.bit_generator.state = state["rng"]
        if self._synthetic is not None and state["synthetic"] is not None:
            self._synthetic.load_state(state["synthetic"])
        self._counters.set(UPDATES, self._updates)
        if self._version >= 0:
            self._publish()

    def _shares(self, env_steps: int) -> dict[str, float]:
        warm = self._updates < self._config.all_warm_updates
        real = {DEMO: self._config.demo_ratio, ONLINE: 1.0 - self._config.demo_ratio}
        if warm or self._mixer.sizes()[ONLINE] < self._config.learning_starts_env_steps:
            real = {DEMO: 1.0}
        if self._synthetic is None or self._updates < self._config.bc_updates:
            return real
        return self._synthetic.shares(real, self._config.batch_size, env_steps, self._updates)

    def _after_update(self, warm: int) -> None:
        first = warm if self._synthetic is None else self._config.bc_updates
        if self._updates >= first and (self._updates - warm) % self._config.publish_every == 0:
            self._publish()
        if self._updates % self._config.checkpoint_every == 0:
            self._checkpoint()
        self._counters.set(UPDATES, self._updates)

    def _publish(self) -> None:
        if self._values is not None:  # before the policy: whoever sees the new policy finds its critics
            self._values.publish(self._agent.value_tensors(), self._updates)
        self._version = self._weights.publish(self._agent.policy_tensors(), self._updates)
        self._published_at = self._updates

    def _checkpoint(self) -> None:
        """A checkpoint names a published version with exactly its policy, so both can be compared after a resume."""
        if self._published_at >= 0 and self._published_at != self._updates:
            self._publish()
        self._save_checkpoint(self._updates, self.state())
        self._saved_at = self._updates

    def _finish(self) -> None:
        if self._published_at != self._updates:
            self._publish()
        self._checkpoint()
        self._counters.set(LEARNER_DONE, 1)
