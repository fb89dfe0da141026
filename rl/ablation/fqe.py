"""Fitted Q evaluation: what a fixed policy is worth by recorded transitions alone, with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rl.agent.adam import AdamGroup
from rl.agent.networks import EnsembleMLP


@dataclass(frozen=True)
class FQEConfig:
    """members: networks, each fitted to its own bootstrap sample of the episodes. hidden: width of their layers.

    tau: share of the online network that enters the target per update; a success T steps ahead is known at the start
    after about T / tau updates. discount: per control step; None for that of the recorded run, so that arms with other
    discounts are measured alike.
    """

    updates: int = 1500
    batch_size: int = 128
    members: int = 16
    hidden: int = 64
    lr: float = 1e-3
    tau: float = 0.05
    discount: float | None = None

    def __post_init__(self) -> None:
        if min(self.updates, self.batch_size, self.hidden) < 1 or self.members < 2:
            raise ValueError("fqe: expected updates, batch_size, hidden >= 1 and members >= 2")
        if self.lr <= 0.0 or not 0.0 < self.tau <= 1.0:
            raise ValueError(f"fqe: expected lr > 0 and tau in (0, 1], got {self.lr} and {self.tau}")
        if self.discount is not None and not 0.0 <= self.discount < 1.0:
            raise ValueError(f"fqe.discount: expected [0, 1), got {self.discount}")


@dataclass(frozen=True)
class FQEData:
    """N recorded transitions of E episodes, as inputs of a critic.

    taken (N, D): state and executed action. following (N, D): next state and the policy's action there. reward (N,).
    not_terminated (N,): 0 where the episode ended. episode (N,): 0..E-1. first (E, D): the episodes' first states and
    the policy's actions there. bounds: least and largest return that there can be.
    """

    taken: Tensor
    following: Tensor
    reward: Tensor
    not_terminated: Tensor
    episode: Tensor
    first: Tensor
    bounds: tuple[float, float]


@dataclass(frozen=True)
class FQEResult:
    """value: discounted return of the policy from the recorded first states, the members' mean; low, high: their
    2.5% and 97.5% points, over bootstrap samples of the episodes.
    """

    value: float
    low: float
    high: float
    episodes: int
    transitions: int


def fitted_q_evaluation(data: FQEData, config: FQEConfig, *, discount: float, seed: int) -> FQEResult:
    """Each member m minimises mean_b w_mb (Q_m(s, a) - y)^2, y = r + discount (1 - terminated) Q'_m(s', pi(s')).

    w_mb: how often the transition's episode is in the member's bootstrap sample. The target is kept to `data.bounds`.
    Deterministic for a seed. Raises ValueError where there is nothing to fit.
    """
    count, episodes = len(data.reward), len(data.first)
    if not count or not episodes:
        raise ValueError("fitted Q evaluation: expected at least one episode with a transition, got none")
    rng = np.random.default_rng(seed)
    share = np.full(episodes, 1.0 / episodes)
    drawn = torch.from_numpy(rng.multinomial(episodes, share, size=config.members).astype(np.float32))
    drawn = drawn.to(data.reward.device)  # (M, E)
    online, target = (_network(data, config, seed) for _ in range(2))
    adam = AdamGroup(online.parameters(), config.lr)
    for _ in range(config.updates):
        rows = torch.from_numpy(rng.integers(count, size=config.batch_size)).to(data.reward.device)
        with torch.no_grad():
            value = target(data.following[rows]).squeeze(-1)  # (M, B)
            wished = data.reward[rows] + discount * data.not_terminated[rows] * value
            wished = wished.clamp(*data.bounds)
        error = online(data.taken[rows]).squeeze(-1) - wished
        loss = (drawn[:, data.episode[rows]] * error.square()).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), config.tau)
    with torch.no_grad():
        values = (drawn * online(data.first).squeeze(-1)).sum(dim=1) / drawn.sum(dim=1)
    low, high = np.quantile(values.cpu().numpy(), [0.025, 0.975]).tolist()
    return FQEResult(float(values.mean()), low, high, episodes, count)


def _network(data: FQEData, config: FQEConfig, seed: int) -> EnsembleMLP:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = EnsembleMLP(config.members, data.taken.shape[1], config.hidden, 1)
    return network.to(data.taken.device)
