"""What a worker needs from the outside, as Protocols: a runtime hands in the implementation that fits it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class StepResult:
    """What one bounded step of a worker did.

    metrics: flat numbers with the prefixes of the naming table; empty when there is nothing to log.
    waiting: empty, or which side this worker waits for and why, in words. doing: what it does otherwise.
    finished: this worker has nothing left to do.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    waiting: str = ""
    doing: str = "running"
    finished: bool = False


@dataclass(frozen=True)
class PolicyWeights:
    """A published policy: `version` never names two different sets of tensors within a run."""

    version: int
    updates: int
    tensors: Mapping[str, Tensor]


class Worker(Protocol):
    """Actor, learner, and later the world-model worker."""

    def step(self) -> StepResult:
        """One bounded unit of work; never sleeps, never blocks on another worker."""

    def close(self) -> None:
        """Leave everything durable; the actor's arm holds."""


class WeightsPort(Protocol):
    """From the learner to the actor."""

    def publish(self, tensors: Mapping[str, Tensor], updates: int) -> int:
        """Make the tensors visible at once under a new version number, and return it."""

    def latest_version(self) -> int:
        """The newest published version, -1 before the first."""

    def load(self, version: int | None = None) -> PolicyWeights:
        """The weights of `version`, or the newest."""


class CountersPort(Protocol):
    """Progress that all workers see. Each counter has one writer."""

    def get(self, name: str) -> int: ...

    def set(self, name: str, value: int) -> None: ...


# Counters and who writes them.
ENV_STEPS = "env_steps"  # actor: transitions committed to the real store
COLLECTED = "collected"  # actor: 1 when its last training episode is over
ACTOR_DONE = "actor_done"  # actor: 1 when its last evaluation is over
TARGET_ENV_STEPS = "target_env_steps"  # actor: where this run ends (lowered by early stopping)
OPERATOR_STOP = "operator_stop"  # actor: 1 when the operator ended the run from the correction device
UPDATES = "updates"  # learner: all updates, warm start included
LEARNER_DONE = "learner_done"  # learner: 1 when the final weights are published
ALIVE = "world_model_alive"  # supervisor: 1 while the world-model worker runs; 0 stops all use of what it imagined
GENERATED = "generated"  # world model: imagined transitions
ADMITTED = "admitted"  # world model: of those, how many entered a queue
WORLD_MODEL_GATE = (
    "world_model_gate"  # world model: how far its video is trusted; this and the next in millionths
)
SELECTION_GATE = "selection_gate"  # world model: composition of the queues
CALIBRATION_GATE = "calibration_gate"  # world model: how far its labels are trusted
SUCCESS_SHARE = "success_share"  # world model: share of successes to draw
OLDEST_MODEL = "oldest_model"  # world model: what versions before this one imagined is never drawn again
HOLD = "hold"  # supervisor: 1 while a worker that the robot depends on is dead
STOP = "stop"  # supervisor: 1 to end cleanly

COUNTERS = (
    ENV_STEPS,
    COLLECTED,
    ACTOR_DONE,
    TARGET_ENV_STEPS,
    OPERATOR_STOP,
    UPDATES,
    LEARNER_DONE,
    ALIVE,
    GENERATED,
    ADMITTED,
    WORLD_MODEL_GATE,
    SELECTION_GATE,
    CALIBRATION_GATE,
    SUCCESS_SHARE,
    OLDEST_MODEL,
    HOLD,
    STOP,
)
MILLIONTHS = 1_000_000  # a share as a counter

HUMAN, POLICY = "HUMAN leads", "POLICY leads"  # what an actor does
