"""What policies share that choose one bin per action entry: log-probabilities to tokens and back, checks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rl.agent.weights import WeightsError, check_weights
from rl.vla.policy import PolicyError, PolicySpec


def draw(log_probs: Tensor, generator: torch.Generator) -> Tensor:
    """Tokens (B, C, A) int64, drawn from log-probabilities (B, C, A, bins) on the generator's CPU."""
    flat = log_probs.exp().flatten(0, 2).cpu()
    return torch.multinomial(flat, 1, generator=generator).view(log_probs.shape[:3]).to(log_probs.device)


def chosen(log_probs: Tensor, tokens: Tensor) -> Tensor:
    """Those of the tokens: (B, C, A, bins) and (B, C, A) int64 to (B, C, A). Raises PolicyError for another shape."""
    if tokens.shape != log_probs.shape[:3] or tokens.dtype != torch.int64:
        raise PolicyError(
            f"tokens: expected {tuple(log_probs.shape[:3])} int64, got {tuple(tokens.shape)} {tokens.dtype}"
        )
    return log_probs.gather(-1, tokens.to(log_probs.device)[..., None]).squeeze(-1)


def check_spec(spec: PolicySpec, chunk: int) -> None:
    """Raise PolicyError where `spec` is not of `chunk` actions with one token per entry."""
    if (spec.chunk, spec.tokens) != (chunk, spec.action_dim):
        raise PolicyError(
            f"policy: expected a spec of {chunk} actions with {spec.action_dim} tokens each, got {spec.chunk} "
            f"with {spec.tokens}"
        )


def check_tensors(tensors: Mapping[str, Tensor], mine: Mapping[str, Tensor]) -> None:
    """Raise PolicyError where `tensors` have other names or shapes than `mine`."""
    try:
        check_weights(tensors, mine)
    except WeightsError as error:
        raise PolicyError(str(error)) from error
