"""Trainer: moves a network's weights and their running mean, and resumes bit by bit."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from worldmodel import checkpoint
from worldmodel.checkpoint import Checkpoint
from worldmodel.clips import check_finite
from worldmodel.interface import WorldModelError, WorldModelSpec

Network = TypeVar("Network", bound=nn.Module)

_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class OptimiserConfig:
    """AdamW with a running mean of the weights, which is what imagines.

    fit_steps: length of the first fit, over which the rate falls along a cosine from learning_rate to its
    `final_share`; every step after it, with the robot at work, has online_learning_rate. ema, online_ema: share of
    the old mean that a step keeps.
    """

    learning_rate: float = 1.5e-3
    online_learning_rate: float = 6e-4
    final_share: float = 0.03
    warmup_steps: int = 50
    fit_steps: int = 1500
    weight_decay: float = 0.01
    grad_clip: float = 1.0
    ema: float = 0.998
    online_ema: float = 0.995

    def __post_init__(self) -> None:
        if min(self.learning_rate, self.online_learning_rate, self.grad_clip) <= 0 or self.weight_decay < 0:
            raise ValueError("optimiser: expected rates and grad_clip > 0, weight_decay >= 0")
        if not (0 <= self.final_share <= 1 and 0 <= self.ema < 1 and 0 <= self.online_ema < 1):
            raise ValueError("optimiser: expected final_share in [0, 1] and ema, online_ema in [0, 1)")
        if self.warmup_steps < 1 or self.fit_steps < 1:
            raise ValueError("optimiser: expected warmup_steps and fit_steps >= 1")

    def rate(self, updates: int) -> float:
        """Learning rate of the step after `updates`."""
        warm = min(1.0, (updates + 1) / self.warmup_steps)
        if updates >= self.fit_steps:
            return self.online_learning_rate
        cosine = 0.5 * (1.0 + math.cos(math.pi * updates / self.fit_steps))
        return self.learning_rate * warm * (self.final_share + (1.0 - self.final_share) * cosine)

    def decay(self, updates: int) -> float:
        """Share of the old mean; small at first, so that the mean soon forgets the initial weights."""
        limit = self.ema if updates < self.fit_steps else self.online_ema
        return min(limit, (1 + updates) / (10 + updates))


class Trainer(Generic[Network]):
    """`module` is trained, `mean` is the running mean of its weights; `updates` counts steps."""

    def __init__(self, module: Network, config: OptimiserConfig) -> None:
        self.module, self._config = module, config
        self.mean = copy.deepcopy(module).requires_grad_(False).eval()
        self.updates = 0
        self._parameters: list[Tensor] = list(module.parameters())
        self._adam = torch.optim.AdamW(
            self._parameters,
            lr=config.learning_rate,
            betas=(0.9, 0.99),
            weight_decay=config.weight_decay,
            fused=True,
        )

    def step(self, loss: Tensor) -> None:
        """One optimiser step; raises WorldModelError, and moves nothing, where the loss is not finite."""
        check_finite(loss, self.updates)
        for group in self._adam.param_groups:
            group["lr"] = self._config.rate(self.updates)
        self._adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._parameters, self._config.grad_clip)
        self._adam.step()
        self.updates += 1
        with torch.no_grad():
            kept = self._config.decay(self.updates)
            torch._foreach_lerp_(list(self.mean.parameters()), self._parameters, 1.0 - kept)

    def tensors(self) -> dict[str, Tensor]:
        """Mean, weights and moments, under `mean.`, `weights.` and `adam.`."""
        moments = {
            f"adam.{index}.{key}": value
            for index, parameter in enumerate(self._parameters)
            for key, value in self._adam.state.get(parameter, {}).items()
        }
        parts = {"mean": self.mean.state_dict(), "weights": self.module.state_dict()}
        named = {f"{part}.{name}": tensor for part, state in parts.items() for name, tensor in state.items()}
        return named | moments

    def save(
        self,
        path: Path,
        kind: str,
        spec: WorldModelSpec,
        config: Mapping[str, Any],
        version: int,
        scores: Mapping[str, float] | None,
        learned: Collection[str] | None,
    ) -> None:
        """Write a world model that this trains, see `WorldModel.save`, with all that `restore` needs."""
        stored = Checkpoint(kind, spec, config, version, self.updates, self.tensors(), scores or {}, learned)
        checkpoint.write(path, stored)

    def restore(self, stored: Checkpoint, path: Path) -> None:
        """Continue from `tensors()`; raises WorldModelError where they do not fit."""
        checkpoint.restore(self.mean, stored.part("mean"), path)
        checkpoint.restore(self.module, stored.part("weights"), path)
        self.updates = stored.updates
        self._restore_moments(stored.part("adam"), path)

    def _restore_moments(self, moments: Mapping[str, Tensor], path: Path) -> None:
        self._adam.state.clear()
        if not moments:
            return
        for index, parameter in enumerate(self._parameters):
            try:
                # The fused kernel walks raw memory: moments need their parameter's layout.
                own = {key: torch.empty_like(parameter).copy_(moments[f"{index}.{key}"]) for key in _MOMENTS}
                step = moments[f"{index}.step"].to(parameter.device, torch.float32, copy=True)
            except (KeyError, RuntimeError) as error:
                raise WorldModelError(
                    f"{path}: its optimiser state does not fit its weights ({error!r}); choose another version"
                ) from error
            self._adam.state[parameter] = {"step": step} | {key: m.detach() for key, m in own.items()}
