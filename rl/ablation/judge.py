"""Judge: what real episodes alone say of an agent: TD error, calibration, agreement, fitted Q evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl.ablation.fqe import FQEConfig, FQEData, fitted_q_evaluation
from rl.agent.acting import MODE
from rl.agent.sac import SACAgent
from rl.agent.staging import StagedObservation, Staging
from rl.diagnostics.agreement import agreement
from rl.diagnostics.value import MIN_STEPS, ValueCheck, state_values
from rl.replay.arrays import empty_batch
from rl.replay.journal import EpisodeInfo
from rl.replay.reader import Rows, StoreReader
from rl.statistics import rank_correlation
from robot.types import Array, Float32

ROWS = 256  # transitions encoded at once
BEST_RETURN = 1.0  # rewards are success labels: one at most, at the end of an episode


@dataclass(frozen=True)
class _Judged:
    """One episode: its steps with what the agent makes of them, (T,) unless said otherwise.

    q, returns, value: of the last steps alone, whose returns are the policy's own. action, executed: (T, 7).
    """

    td_error: Array
    q: Array
    returns: Array
    value: Array
    action: Float32
    executed: Float32
    intervened: NDArray[np.bool_]
    success: bool


class Judge:
    """Judges on the recorded rewards, whatever the agent was shown; draws no random number and changes nothing."""

    def __init__(self, agent: SACAgent, reader: StoreReader) -> None:
        self._agent, self._reader = agent, reader
        self._check = ValueCheck(agent, reader, agent.config.discount)

    def measures(self, held_out: Sequence[EpisodeInfo]) -> dict[str, Any]:
        """JSON-able; None for what the held-out episodes do not tell."""
        usable = [info for info in held_out if not info.discarded and info.num_transitions]
        if not usable:
            return {"held_out_episodes": 0}
        judged = [self._judge(info) for info in usable]
        td, q, returns, value = (
            np.concatenate([getattr(one, name) for one in judged])
            for name in ("td_error", "q", "returns", "value")
        )
        rank = rank_correlation(q, returns) if len(q) >= MIN_STEPS else math.nan
        expert = self._agreement([(one, one.intervened) for one in judged])
        own = self._agreement([(one, ~one.intervened) for one in judged if one.success])
        return {
            "held_out_episodes": len(usable),
            "held_out_steps": len(td),
            "td_error": float(np.sqrt(np.mean(np.square(td)))),
            "q_bias": float(np.mean(q - returns)),
            "q_rank": None if math.isnan(rank) else rank,
            "overestimation": float(np.mean(value - returns)),
            "impossible_share": float(np.mean(value > BEST_RETURN)),
            "value_steps": len(q),
            "corrections": expert,
            "successes": own,
        }

    def _judge(self, info: EpisodeInfo) -> _Judged:
        rows = np.arange(info.first_row, info.end_row - 1)
        batch = empty_batch(self._reader.schema, len(rows))
        self._reader.gather(rows, batch)
        episode = self._reader.episode(info.episode)
        seen = [episode.observation(t) for t in range(info.rows)]
        values = state_values(self._agent, self._reader.schema, seen).astype(np.float64)
        config = self._agent.config
        reward = batch.reward.astype(np.float64)
        if self._agent.acting.gripper is not None:
            reward = reward - config.gripper_penalty * batch.gripper_changed
        target = reward + config.discount * np.where(batch.terminated, 0.0, values[1:])
        q, returns = self._check.compare(info)
        return _Judged(
            td_error=target - self._agent.q_values(batch),
            q=q,
            returns=returns,
            value=values[len(rows) - len(returns) : len(rows)],
            action=np.stack([self._agent.act(one, noise=MODE) for one in seen[:-1]]),
            executed=episode.action,
            intervened=episode.intervened,
            success=info.success,
        )

    def _agreement(self, chosen: Sequence[tuple[_Judged, NDArray[np.bool_]]]) -> dict[str, Any]:
        """Of the policy's action with the executed one, where `chosen` (T,) of an episode is true."""
        steps = sum(int(where.sum()) for _, where in chosen)
        if not steps:
            return {"steps": 0, "error": None, "per_axis": None, "gripper_accuracy": None}
        action = np.concatenate([one.action[where] for one, where in chosen])
        executed = np.concatenate([one.executed[where] for one, where in chosen])
        return agreement(self._agent.spec, action, executed)

    def fitted_q(
        self, episodes: Sequence[EpisodeInfo], config: FQEConfig, *, discount: float, seed: int
    ) -> dict[str, Any]:
        """Fitted Q evaluation of the deterministic policy on all `episodes`, for success labels as rewards."""
        usable = [info for info in episodes if not info.discarded and info.num_transitions]
        return asdict(
            fitted_q_evaluation(self._evaluation_data(usable), config, discount=discount, seed=seed)
        )

    def _evaluation_data(self, episodes: Sequence[EpisodeInfo]) -> FQEData:
        rows = np.concatenate([np.arange(info.first_row, info.end_row - 1) for info in episodes])
        number = np.concatenate([np.full(info.rows - 1, index) for index, info in enumerate(episodes)])
        parts = [self._encode(rows[start : start + ROWS]) for start in range(0, len(rows), ROWS)]
        taken, following, reward, going_on, own = (torch.cat(column) for column in zip(*parts, strict=True))
        begins = np.cumsum([0, *(info.rows - 1 for info in episodes[:-1])])
        return FQEData(
            taken=taken,
            following=following,
            reward=reward,
            not_terminated=going_on,
            episode=torch.from_numpy(number).to(taken.device),
            first=own[torch.from_numpy(begins).to(taken.device)],
            bounds=(0.0, BEST_RETURN),
        )

    @torch.no_grad()
    def _encode(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Critic inputs of the executed actions, of the policy's in the next states, and of the policy's in these."""
        critic = self._agent.acting
        batch = empty_batch(self._reader.schema, len(rows))
        self._reader.gather(rows, batch)
        # A fresh one: nothing is shifted or reused.
        staging = Staging(self._agent.spec, 0, self._agent.device)
        step = staging.step(batch)
        now = staging.observation(batch, None)
        later = staging.next_observation(batch, np.random.default_rng(0))
        features = critic.encoder(now.stacks, now.proprio)
        following = critic.encoder(later.stacks, later.proprio)
        return (
            critic.critic_input(features, step.action, step.gripper),
            critic.critic_input(following, *self._choice(later)),
            step.reward,
            step.not_terminated,
            critic.critic_input(features, *self._choice(now)),
        )

    def _choice(self, seen: StagedObservation) -> tuple[Tensor, Tensor]:
        """Motion (B, policy_dim) and gripper command (B,) of the policy that a robot runs."""
        policy = self._agent.robot_policy
        features = policy.encoder(seen.stacks, seen.proprio)
        return policy.policy(features).mode, policy.commands(features)
