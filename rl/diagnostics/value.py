"""Value against measured return: does the critic know how the robot's newest episodes went on? For the learner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rl.agent.acting import MODE
from rl.batch import Batch
from rl.replay.arrays import empty_batch
from rl.replay.journal import EpisodeInfo
from rl.replay.reader import Rows, StoreReader
from rl.replay.schema import StoreSchema
from rl.statistics import rank_correlation
from robot.types import Array, Float32, Observation

MIN_STEPS = 10  # fewer say nothing of an order


class ValuingAgent(Protocol):
    """What the diagnostics need of an agent; neither call may draw random numbers."""

    def act(self, observation: Observation, *, noise: Float32) -> Float32: ...

    def q_values(self, batch: Batch) -> NDArray[np.float32]: ...


def state_values(agent: ValuingAgent, schema: StoreSchema, observations: Sequence[Observation]) -> Float32:
    """V(s) = min_i Q_i(s, pi(s)) with the mode of the policy, (N,) float32."""
    batch = empty_batch(schema, len(observations))
    for k, observation in enumerate(observations):
        for view, frames in batch.images.items():
            frames[k] = observation.images[view]
        batch.proprio[k] = observation.proprio
        batch.action[k] = agent.act(observation, noise=MODE)
    for column in (batch.reward, batch.terminated, batch.truncated, batch.intervened, batch.gripper_changed):
        column[...] = 0
    batch.source[...] = 0
    return agent.q_values(replace(batch, next_images=batch.images, next_proprio=batch.proprio))


def measured_returns(reward: Float32, discount: float, tail: float) -> Array:
    """(T,) discounted return from each step to the end; `tail` is the value of what follows the last step."""
    returns = np.empty(len(reward))
    for t in range(len(reward) - 1, -1, -1):
        tail = float(reward[t]) + discount * tail
        returns[t] = tail
    return returns


@dataclass(frozen=True)
class ValueCheckConfig:
    """episodes: the newest ones that are compared. rows: transitions valued in one pass."""

    episodes: int = 10
    rows: int = 128

    def __post_init__(self) -> None:
        if self.episodes < 1 or self.rows < 1:
            raise ValueError(f"ValueCheckConfig: expected episodes >= 1 and rows >= 1, got {self}")


class ValueCheck:
    """Compares min_i Q_i(s, a executed) with the return that followed, on finished episodes of the robot.

    Only steps behind an episode's last correction count, and that one: what followed them is the policy's own.
    An episode that was cut off goes on with V of its last observation, as it does in the critic's targets: to
    count nothing would call every time-out a failure, to leave it out would leave only successes to compare.
    """

    def __init__(
        self,
        agent: ValuingAgent,
        reader: StoreReader,
        discount: float,
        config: ValueCheckConfig | None = None,
    ) -> None:
        self._agent, self._reader, self._discount = agent, reader, discount
        self._config = config or ValueCheckConfig()

    def measure(self) -> dict[str, float]:
        """Metrics `learner/value_...`; empty before the first finished episode. Draws no random number.

        value_bias: mean of Q - return. value_correlation: Spearman's, NaN below MIN_STEPS or where all are equal.
        value_steps: transitions compared.
        """
        self._reader.refresh()
        usable = [e for e in self._reader.episodes() if not e.discarded and e.num_transitions > 0]
        pairs = [self.compare(info) for info in usable[-self._config.episodes :]]
        if not pairs:
            return {}
        values, returns = (np.concatenate(column) for column in zip(*pairs, strict=True))
        correlation = rank_correlation(values, returns) if len(values) >= MIN_STEPS else math.nan
        return {
            "learner/value_bias": float(np.mean(values - returns)),
            "learner/value_correlation": correlation,
            "learner/value_steps": len(values),
        }

    def compare(self, info: EpisodeInfo) -> tuple[Array, Array]:
        """Q and return of the steps of one episode that count, (N,) each."""
        rows = np.arange(info.first_row, info.end_row - 1)
        steps = self._reader.records(rows)["transition"]
        corrected = np.flatnonzero(steps["intervened"])
        first = int(corrected[-1]) if len(corrected) else 0
        tail = 0.0 if steps["terminated"][-1] else self._last_value(info)
        returns = measured_returns(steps["reward"], self._discount, tail)
        return self._q(rows[first:]), returns[first:]

    def _q(self, rows: Rows) -> Array:
        parts = []
        for start in range(0, len(rows), self._config.rows):
            part = rows[start : start + self._config.rows]
            batch = empty_batch(self._reader.schema, len(part))
            self._reader.gather(part, batch)
            parts.append(self._agent.q_values(batch).astype(np.float64))
        return np.concatenate(parts)

    def _last_value(self, info: EpisodeInfo) -> float:
        last = np.array([info.end_row - 1])
        schema = self._reader.schema
        observation = Observation(
            images={view: self._reader.frames(view, last)[0] for view in schema.views},
            proprio=self._reader.records(last)["observation"]["proprio"][0],
            timestamp=0.0,
        )
        return float(state_values(self._agent, schema, [observation])[0])
