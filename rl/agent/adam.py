"""AdamGroup: the parameters one optimiser moves, their gradient norm, and a state that resumes bit by bit."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from rl.agent.weights import copied

_MOMENTS = ("exp_avg", "exp_avg_sq")


def load_optimiser() -> None:
    """Import what optimisers import on first use; a process that also renders calls it before it does.

    Triton comes with it, and Triton's LLVM beside that of a Mesa GL context made earlier crashes the process. Not
    at the top of this module: it takes a second, which only a process that optimises needs to spend.
    """
    importlib.import_module("torch._dynamo")


class AdamGroup:
    """Adam over `parameters`. grad_clip: largest gradient norm, None for no limit."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], learning_rate: float, grad_clip: float | None = None
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._adam = torch.optim.Adam(self.parameters, lr=learning_rate, fused=True)
        self._max_norm = float("inf") if grad_clip is None else grad_clip

    def zero_grad(self) -> None:
        self._adam.zero_grad(set_to_none=True)

    def clip(self) -> Tensor:
        """Clip the gradient in place; returns its norm before that, a scalar on the device."""
        return nn.utils.clip_grad_norm_(self.parameters, self._max_norm)

    def step(self) -> None:
        self._adam.step()

    def state(self) -> dict[str, Tensor]:
        """Copies of moments and step counts, named `<parameter>.<entry>`; empty before the first step."""
        return copied(
            {
                f"{index}.{key}": value
                for index, parameter in enumerate(self.parameters)
                for key, value in self._adam.state.get(parameter, {}).items()
            }
        )

    def expected_state(self) -> dict[str, Tensor]:
        """A template of `state()` after a step: names, shapes and dtypes."""
        return {
            f"{index}.{key}": parameter.detach() if key in _MOMENTS else torch.zeros((), dtype=torch.float32)
            for index, parameter in enumerate(self.parameters)
            for key in ("step", *_MOMENTS)
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()` of the same parameters; an empty one means that no step was taken."""
        self._adam.state.clear()
        for index, parameter in enumerate(self.parameters if state else ()):
            # The fused kernel walks raw memory: moments must have their parameter's memory layout.
            moments = {key: torch.empty_like(parameter).copy_(state[f"{index}.{key}"]) for key in _MOMENTS}
            step = state[f"{index}.step"].to(parameter.device, torch.float32, copy=True)
            self._adam.state[parameter] = {"step": step, **{key: m.detach() for key, m in moments.items()}}
