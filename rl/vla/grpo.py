"""GRPO: group-relative policy gradient with a clipped ratio and a penalty for leaving the reference policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rl.agent.adam import AdamGroup
from rl.vla.policy import PolicyInputs, ReferencePolicy, VLAPolicy, concatenate
from rl.vla.trajectory import Trajectory
from robot.types import Array


@dataclass(frozen=True)
class GRPOConfig:
    """epochs: passes over a batch with its old log-probabilities frozen. minibatch: decisions per optimiser step.

    clip_low, clip_high: the ratio counts within [1 - clip_low, 1 + clip_high] only (the wider upper side keeps rare
    tokens alive). kl: weight of the divergence from the reference. temperature: of sampling and of all log-
    probabilities. min_spread: groups whose rewards differ by no more teach nothing and are left out.
    """

    learning_rate: float = 3e-4
    epochs: int = 2
    minibatch: int = 256
    clip_low: float = 0.2
    clip_high: float = 0.28
    kl: float = 0.04
    grad_clip: float = 1.0
    temperature: float = 1.0
    min_spread: float = 0.02

    def __post_init__(self) -> None:
        if self.learning_rate <= 0.0 or self.grad_clip <= 0.0 or self.temperature <= 0.0:
            raise ValueError("grpo: expected learning_rate, grad_clip and temperature > 0")
        if self.epochs < 1 or self.minibatch < 1 or self.kl < 0.0 or self.min_spread < 0.0:
            raise ValueError("grpo: expected epochs and minibatch >= 1, kl and min_spread >= 0")
        if not 0.0 < self.clip_low < 1.0 or self.clip_high <= 0.0:
            raise ValueError(
                f"grpo: expected clip_low in (0, 1) and clip_high > 0, got {self.clip_low}, {self.clip_high}"
            )


@dataclass(frozen=True)
class GRPOBatch:
    """D decisions: inputs, tokens (D, C, ...), old log_prob (D, C, K), advantage (D,), valid (D, C)."""

    inputs: PolicyInputs
    tokens: Tensor
    log_prob: Tensor
    advantage: Tensor
    valid: Tensor

    def __len__(self) -> int:
        return len(self.advantage)

    def rows(self, index: Tensor) -> GRPOBatch:
        """The decisions at `index` (N,)."""
        return GRPOBatch(
            self.inputs.rows(index),
            self.tokens[index],
            self.log_prob[index],
            self.advantage[index],
            self.valid[index],
        )


def informative(rewards: Sequence[Array], advantages: Sequence[Array], min_spread: float) -> list[int]:
    """Indices of the groups that teach: their known rewards differ by more than `min_spread`, and some weight is left.

    A closed gate leaves advantages of 0 only; a group without two known rewards has none at all.
    """
    chosen = []
    for index, (reward, advantage) in enumerate(zip(rewards, advantages, strict=True)):
        known = reward[np.isfinite(reward)]
        if len(known) >= 2 and known.max() - known.min() > min_spread and np.nan_to_num(advantage).any():
            chosen.append(index)
    return chosen


def make_batch(
    groups: Sequence[Sequence[Trajectory]], advantages: Sequence[Array], chosen: Sequence[int]
) -> GRPOBatch | None:
    """The decisions of all trajectories of the chosen groups whose advantage is known; None where there is none."""
    members = [
        (trajectory, float(advantage))
        for index in chosen
        for trajectory, advantage in zip(groups[index], advantages[index].tolist(), strict=True)
        if np.isfinite(advantage) and len(trajectory)
    ]
    if not members:
        return None
    return GRPOBatch(
        inputs=concatenate([one.inputs for one, _ in members]),
        tokens=torch.cat([one.tokens for one, _ in members]),
        log_prob=torch.cat([one.log_prob for one, _ in members]),
        advantage=torch.cat([torch.full((len(one.valid),), value) for one, value in members]),
        valid=torch.cat([one.valid for one, _ in members]),
    )


def surrogate(log_prob: Tensor, old: Tensor, advantage: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """-min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A) of every token (D, C, K), rho = exp(log_prob - old).

    PPO's clipped objective (Schulman et al., 2017, eq. 7) with the group-relative advantage A (D,) of GRPO.
    """
    ratio = torch.exp(log_prob - old)
    per_token = advantage.view(-1, 1, 1)
    return -torch.minimum(ratio * per_token, ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * per_token)


def divergence(log_prob: Tensor, reference: Tensor) -> Tensor:
    """KL(policy || reference) per token, estimated: exp(d) - d - 1 >= 0 with d = reference - log_prob (GRPO, eq. 4)."""
    d = reference - log_prob
    return torch.exp(d) - d - 1.0


class GRPO:
    """Updates a policy on batches of decisions."""

    def __init__(self, policy: VLAPolicy, reference: ReferencePolicy, config: GRPOConfig) -> None:
        self._policy, self._reference, self._config = policy, reference, config
        self._adam = AdamGroup(policy.trainable_parameters(), config.learning_rate, config.grad_clip)
        self.updates = 0

    def update(self, batch: GRPOBatch, rng: np.random.Generator) -> dict[str, float]:
        """`epochs` passes over `batch` in an order that `rng` draws.

        Raises FloatingPointError where the loss is not finite; the policy is then as it was after the last good step.
        """
        config = self._config
        totals: dict[str, float] = {}
        steps = 0
        for _ in range(config.epochs):
            order = torch.from_numpy(rng.permutation(len(batch)))
            for index in torch.split(order, config.minibatch):
                for name, value in self._step(batch.rows(index)).items():
                    totals[name] = totals.get(name, 0.0) + value
                steps += 1
        return {name: value / steps for name, value in totals.items()}

    def _step(self, batch: GRPOBatch) -> dict[str, float]:
        config, device = self._config, self._policy.device
        log_prob = self._policy.log_prob(batch.inputs, batch.tokens, config.temperature)
        old, advantage = batch.log_prob.to(device), batch.advantage.to(device)
        # A mean over all tokens: each action counts alike, in long trajectories and in short ones.
        taken = batch.valid.to(device)[..., None].expand_as(log_prob)
        loss = surrogate(log_prob, old, advantage, config.clip_low, config.clip_high)[taken].mean()
        reference = self._reference.log_prob(batch.inputs, batch.tokens, config.temperature)
        kl = divergence(log_prob, reference)[taken].mean()
        total = loss + config.kl * kl
        if not bool(torch.isfinite(total)):
            raise FloatingPointError(
                f"grpo: loss {float(loss.detach())}, divergence {float(kl.detach())} after {self.updates} updates; "
                "lower grpo.learning_rate, and look for broken observations"
            )
        self._adam.zero_grad()
        torch.autograd.backward(total)
        norm = self._adam.clip()
        self._adam.step()
        self.updates += 1
        ratio = torch.exp(log_prob.detach() - old)[taken]
        clipped = (ratio < 1.0 - config.clip_low) | (ratio > 1.0 + config.clip_high)
        return {
            "learner/loss": float(loss.detach()),
            "learner/kl": float(kl.detach()),
            "learner/grad_norm": float(norm),
            "learner/clipped": float(clipped.float().mean()),
            "learner/log_prob": float(log_prob.detach()[taken].mean()),
        }

    def tensors(self) -> dict[str, Tensor]:
        """The optimiser's state."""
        return self._adam.state()

    def load(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        """Continue from `tensors()`."""
        self._adam.load_state(tensors)
        self.updates = updates
