"""Multilayer perceptrons of the agent: the ensemble behind every critic, and the Gaussian policy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rl.agent.distribution import SquashedGaussian


class EnsembleMLP(nn.Module):
    """E perceptrons that share nothing: (B, D) -> (E, B, O), two hidden layers of LayerNorm and ReLU.

    All members run side by side in one batched product. LayerNorm has no parameters: the next layer has them.
    """

    def __init__(self, members: int, in_dim: int, hidden: int, out_dim: int) -> None:
        super().__init__()
        self.hidden = hidden
        dims = [in_dim, hidden, hidden, out_dim]
        gains = [
            2**0.5,
            2**0.5,
            0.1,
        ]  # a small last layer: first targets come from the rewards, not from noise
        self.weights = nn.ParameterList(
            [
                nn.Parameter(torch.stack([_orthogonal(rows, columns, gain) for _ in range(members)]))
                for rows, columns, gain in zip(dims, dims[1:], gains, strict=False)
            ]
        )
        self.biases = nn.ParameterList(
            [nn.Parameter(torch.zeros(members, 1, columns)) for columns in dims[1:]]
        )

    def forward(self, x: Tensor, members: Sequence[int] | None = None) -> Tensor:
        """All members' outputs (E, B, O), or only those of `members` in that order."""
        weights: list[Tensor] = list(self.weights)
        biases: list[Tensor] = list(self.biases)
        if members is not None:
            chosen = list(members)
            weights, biases = [w[chosen] for w in weights], [b[chosen] for b in biases]
        h = x.expand(len(weights[0]), *x.shape)
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            h = F.relu(F.layer_norm(torch.baddbmm(bias, h, weight), (self.hidden,)))
        return torch.baddbmm(biases[-1], h, weights[-1])


def _orthogonal(rows: int, columns: int, gain: float) -> Tensor:
    weight = torch.empty(rows, columns)
    nn.init.orthogonal_(weight, gain)
    return weight


class GaussianPolicy(nn.Module):
    """(B, D) features -> SquashedGaussian over (B, A); two hidden layers of LayerNorm and tanh.

    std: of every action entry before the tanh, at the start.
    """

    def __init__(
        self, in_dim: int, hidden: int, action_dim: int, log_std_range: tuple[float, float], std: float
    ) -> None:
        super().__init__()
        self.log_std_min, self.log_std_max = log_std_range
        self.trunk = nn.Sequential(
            nn.Linear(in_dim, hidden),
            nn.LayerNorm(hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
            nn.Tanh(),
        )
        self.head = nn.Linear(hidden, 2 * action_dim)
        # A small head starts the policy at zero motion with this std, whatever it sees.
        nn.init.orthogonal_(self.head.weight, 0.01)
        nn.init.zeros_(self.head.bias)
        nn.init.constant_(self.head.bias[action_dim:], math.log(std))

    def forward(self, features: Tensor) -> SquashedGaussian:
        mean, log_std = self.head(self.trunk(features)).chunk(2, dim=-1)
        return SquashedGaussian(mean, log_std.clamp(self.log_std_min, self.log_std_max))
