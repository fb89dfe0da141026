"""SquashedGaussian: the policy's action distribution, a tanh of a diagonal Gaussian."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

SATURATED = 0.98  # an action entry beyond this counts as saturated


@dataclass(frozen=True, slots=True)
class Certainty:
    """How sure a policy is, from one sampled action in each of some states.

    entropy: mean of -log pi(a|s), nats. saturated: share of saturated action entries. std: mean of the Gaussian before
    the tanh.
    """

    entropy: float
    saturated: float
    std: float


@dataclass(frozen=True, slots=True)
class SquashedGaussian:
    """a = tanh(u), u ~ N(mean, exp(log_std)^2), entries independent. mean, log_std: (B, A)."""

    mean: Tensor
    log_std: Tensor

    @property
    def mode(self) -> Tensor:
        """The deterministic action tanh(mean), (B, A)."""
        return torch.tanh(self.mean)

    def sample(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Reparameterised action (B, A) and its log-probability (B,), from standard normal `noise` (B, A).

        log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)): exact, and finite where tanh rounds to 1.
        """
        u = self.mean + noise * self.log_std.exp()
        gaussian = -0.5 * noise.square() - self.log_std - 0.5 * math.log(2 * math.pi)
        squash = 2.0 * (math.log(2.0) - u - F.softplus(-2.0 * u))
        return torch.tanh(u), (gaussian - squash).sum(-1)

    def certainty(self, noise: Tensor) -> Certainty:
        """How sure these distributions are, by standard normal `noise` (B, A)."""
        action, log_prob = self.sample(noise)
        saturated = (action.abs() > SATURATED).float().mean()
        return Certainty(-float(log_prob.mean()), float(saturated), float(self.log_std.exp().mean()))
