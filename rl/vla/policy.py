"""What a language-conditioned policy must do to be post-trained here: the border that small and public ones keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from robot.types import ACTION_DIM, ProprioSpec


class PolicyError(ValueError):
    """A wrong input to a policy, or a wrong file; the message names the place and the remedy."""


@dataclass(frozen=True)
class PolicySpec:
    """Inputs and outputs of a policy; equal for every version of one run.

    views: cameras in the order of the image tensor, none for a policy without images. image_size: (H, W) of all of
    them. proprio: names and scales of the readings, SI units. chunk: C, actions per decision. tokens: K, log-
    probabilities per action of a chunk: one per discrete token, or 1 for a density over the whole action.
    """

    views: tuple[str, ...]
    image_size: tuple[int, int]
    proprio: ProprioSpec
    chunk: int
    tokens: int
    action_dim: int = ACTION_DIM

    def __post_init__(self) -> None:
        if min(self.image_size) < 1 or self.chunk < 1 or self.tokens < 1 or self.action_dim < 1:
            raise PolicyError(
                "policy: expected image_size, chunk, tokens and action_dim >= 1, got "
                f"{self.image_size}, {self.chunk}, {self.tokens}, {self.action_dim}"
            )
        if len(set(self.views)) != len(self.views):
            raise PolicyError(f"policy.views: expected each once, got {self.views}")

    def to_json(self) -> dict[str, Any]:
        """A JSON-able description; `from_json` restores it exactly."""
        value = dataclasses.asdict(self)
        value["proprio"] = {
            "names": list(self.proprio.names),
            **{name: getattr(self.proprio, name).tolist() for name in ("offset", "scale", "fine")},
        }
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PolicySpec:
        """The spec that `to_json` described; raises PolicyError on anything else."""
        try:
            proprio = value["proprio"]
            return cls(
                views=tuple(value["views"]),
                image_size=(int(value["image_size"][0]), int(value["image_size"][1])),
                proprio=ProprioSpec(
                    tuple(proprio["names"]),
                    *(np.asarray(proprio[name], np.float32) for name in ("offset", "scale", "fine")),
                ),
                chunk=int(value["chunk"]),
                tokens=int(value["tokens"]),
                action_dim=int(value["action_dim"]),
            )
        except (KeyError, TypeError, IndexError) as error:
            raise PolicyError(
                f"policy spec: expected the form of to_json, got {value!r} ({error!r})"
            ) from error


@dataclass(frozen=True)
class PolicyInputs:
    """What B decisions are made from.

    instruction: B texts. images: (B, V, H, W, 3) uint8 RGB, views in the order of the spec; V may be 0.
    proprio: (B, P) float32, SI units, entries as named in the spec.
    """

    instruction: Sequence[str]
    images: Tensor
    proprio: Tensor

    def __len__(self) -> int:
        return len(self.instruction)

    def check(self, spec: PolicySpec) -> None:
        """Raise PolicyError where a shape or dtype does not fit the spec; every policy calls it first."""
        batch, (height, width) = len(self.instruction), spec.image_size
        for name, tensor, shape, dtype in (
            ("images", self.images, (batch, len(spec.views), height, width, 3), torch.uint8),
            ("proprio", self.proprio, (batch, spec.proprio.dim), torch.float32),
        ):
            if tuple(tensor.shape) != shape or tensor.dtype != dtype:
                raise PolicyError(
                    f"policy inputs, {name}: expected {shape} {dtype}, got {tuple(tensor.shape)} {tensor.dtype}; "
                    "use the cameras, image size and robot that the policy was made for"
                )

    def rows(self, index: Tensor) -> PolicyInputs:
        """The decisions at `index` (N,) int64."""
        texts = [self.instruction[i] for i in index.tolist()]
        return PolicyInputs(texts, self.images[index], self.proprio[index])

    def to(self, device: torch.device) -> PolicyInputs:
        """The same on `device`."""
        return PolicyInputs(self.instruction, self.images.to(device), self.proprio.to(device))


def concatenate(parts: Sequence[PolicyInputs]) -> PolicyInputs:
    """All decisions of `parts`, in order; at least one part."""
    return PolicyInputs(
        [text for part in parts for text in part.instruction],
        torch.cat([part.images for part in parts]),
        torch.cat([part.proprio for part in parts]),
    )


@dataclass(frozen=True)
class Decisions:
    """B sampled action chunks.

    actions: (B, C, A) float32 in [-1, 1], what the robot is asked for: translation, rotation, gripper (+1 opens), in
    units of the task's action scale. tokens: (B, C, ...) what was drawn, int64 tokens or the float32 pre-image of a
    continuous head; `log_prob` takes it back. log_prob: (B, C, K) float32 under the policy that drew them.
    """

    actions: Tensor
    tokens: Tensor
    log_prob: Tensor

    def __len__(self) -> int:
        return len(self.actions)


class ReferencePolicy(Protocol):
    """A frozen policy that only says how probable something was."""

    def log_prob(self, inputs: PolicyInputs, tokens: Tensor, temperature: float = 1.0) -> Tensor:
        """As `VLAPolicy.log_prob`, without a gradient."""


class VLAPolicy(Protocol):
    """Instruction, images and proprio to a chunk of actions.

    Evaluation is free of randomness: two calls of `log_prob` with the same weights agree, and `sample` returns the
    very `log_prob` that `log_prob` gives for its tokens, up to rounding. No dropout, no batch statistics.
    """

    @property
    def spec(self) -> PolicySpec: ...

    @property
    def device(self) -> torch.device: ...

    def sample(self, inputs: PolicyInputs, generator: torch.Generator, temperature: float = 1.0) -> Decisions:
        """One chunk per decision, without a gradient; all randomness from `generator`, which is on the CPU.

        temperature: > 1 flattens the distribution; the log-probabilities are those at this temperature.
        Raises PolicyError for inputs that do not fit the spec.
        """

    def mode(self, inputs: PolicyInputs) -> Tensor:
        """The deterministic chunk (B, C, A) in [-1, 1], without a gradient."""

    def log_prob(self, inputs: PolicyInputs, tokens: Tensor, temperature: float = 1.0) -> Tensor:
        """Differentiable log-probabilities (B, C, K) of `tokens` as `sample` returned them."""

    def imitation_loss(self, inputs: PolicyInputs, actions: Tensor, valid: Tensor) -> Tensor:
        """Scalar loss of imitating chunks `actions` (B, C, A) in [-1, 1]; valid (B, C) bool is False on padding."""

    def trainable_parameters(self) -> list[nn.Parameter]:
        """What post-training changes, in a fixed order: all, or the adapters only."""

    def reference(self) -> ReferencePolicy:
        """This policy as it is now, frozen; shares with it what is not trained."""

    def tensors(self) -> dict[str, Tensor]:
        """A copy on the CPU of what is trained; together with what `save` wrote once, this is the whole policy."""

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over `tensors()` of the same policy; raises PolicyError, with nothing changed, where they do not fit."""

    def save(self, path: Path) -> None:
        """Write all that `rl.vla.factory.load_policy` needs into the directory `path`: safetensors and JSON."""
