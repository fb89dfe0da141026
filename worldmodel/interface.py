"""What a world model must do: `adapt` on real clips, `rollout` imagined ones; the border that every model keeps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robot.types import Clip, Float32


class WorldModelError(ValueError):
    """A wrong input to a world model, or a wrong checkpoint; the message names the place and the remedy."""


@dataclass(frozen=True)
class ActionNormalisation:
    """Maps stored actions to what the network sees: (action - offset) / scale, each (A,) float32.

    Simulated and real arms store actions in [-1, 1], so offset 0 and scale 1 are the default; a data set in metres
    and radians has its own. It belongs to the checkpoint: actions of another normalisation are refused.
    meaning: what a stored action of 1 is in the world (frame, scale, rate), as text that is only compared.
    """

    offset: Float32
    scale: Float32
    meaning: str = ""

    def __post_init__(self) -> None:
        if self.offset.shape != self.scale.shape or self.offset.ndim != 1:
            raise WorldModelError(
                f"action normalisation: expected offset and scale of one shape (A,), got {self.offset.shape} "
                f"and {self.scale.shape}"
            )
        if not (np.isfinite(self.offset).all() and np.isfinite(self.scale).all() and (self.scale > 0).all()):
            raise WorldModelError("action normalisation: expected finite offsets and finite scales > 0")

    @classmethod
    def identity(cls, action_dim: int, meaning: str = "") -> ActionNormalisation:
        return cls(np.zeros(action_dim, np.float32), np.ones(action_dim, np.float32), meaning)

    def apply(self, action: Float32) -> Float32:
        """(..., A) stored actions to (..., A) network inputs."""
        normalised: Float32 = (action - self.offset) / self.scale
        return normalised


@dataclass(frozen=True)
class WorldModelSpec:
    """What a model sees and predicts; equal for every version of one run.

    views: view -> (H, W) of the frames that go in and come out, in the order of the network's channels.
    context_frames: K, real frames that a rollout starts from. max_horizon: longest rollout, in steps.
    """

    views: Mapping[str, tuple[int, int]]
    action: ActionNormalisation
    context_frames: int = 4
    max_horizon: int = 24

    def __post_init__(self) -> None:
        if not self.views:
            raise WorldModelError(
                "views: a world model needs at least one camera, got none (state observations?)"
            )
        if self.context_frames < 1 or self.max_horizon < 1:
            raise WorldModelError(
                f"context_frames and max_horizon: expected >= 1, got {self.context_frames}, {self.max_horizon}"
            )

    @property
    def action_dim(self) -> int:
        return len(self.action.offset)


@dataclass(frozen=True)
class Context:
    """B starts of a rollout, the newest frame last.

    images: view -> (B, K, H, W, 3) uint8. past_action: (B, K-1, A), the stored action between each pair of frames.
    Before an episode's first frame that frame is repeated and the action is zero: the arm rested.
    """

    images: Mapping[str, NDArray[np.uint8]]
    past_action: Float32

    def __len__(self) -> int:
        return len(self.past_action)


@dataclass(frozen=True)
class Imagined:
    """B imagined futures of n steps. images: view -> (B, n, H, W, 3) uint8; frame t follows action t.

    risk: (B, n) float32 >= 0, larger where the model trusts itself less; an ordinal signal, no probability.
    version: of the model that made them.
    """

    images: Mapping[str, NDArray[np.uint8]]
    risk: Float32
    version: int


class ClipSource(Protocol):
    """Where training clips come from; the replay store implements it, tests hold theirs in memory."""

    @property
    def size(self) -> int:
        """Start positions to draw from."""

    def sample(self, n: int, length: int, rng: np.random.Generator, history: int = 0) -> Clip:
        """`n` clips of `history` steps before and `length` actions after a uniformly drawn start."""


class WorldModel(Protocol):
    """An action-conditioned video model.

    version: names the weights; `adapt` leaves it alone, whoever publishes the weights sets it one higher.
    """

    version: int

    @property
    def spec(self) -> WorldModelSpec: ...

    @property
    def stochastic(self) -> bool:
        """Two seeds give two futures."""

    def adapt(self, clips: ClipSource, steps: int, rng: np.random.Generator) -> dict[str, float]:
        """`steps` optimiser steps on clips; returns metrics. Raises WorldModelError where a loss is not finite."""

    def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
        """Imagine the frames that follow `actions` (B, n, A), n <= max_horizon, stored (not normalised) actions.

        Raises WorldModelError for wrong views, sizes, lengths or non-finite actions.
        """

    def save(
        self, path: Path, scores: Mapping[str, float] | None = None, learned: Collection[str] | None = None
    ) -> None:
        """Write all that loading and an exact resume need (safetensors), beside and renamed.

        scores: how this version did on held-out clips. learned: names of the episodes that it has learned from; None:
        not known. Both travel in the file's metadata.
        """


class Rollout(Protocol):
    """A rollout under way, for actions that depend on what is imagined."""

    def step(self, action: Float32) -> Imagined:
        """One imagined step of the B futures behind stored actions (B, A)."""


@runtime_checkable
class Stepwise(Protocol):
    """A world model that can be given its actions one by one without losing anything."""

    def begin(self, context: Context, seed: int = 0) -> Rollout:
        """Futures that begin at `context`."""


class ReenteringRollout:
    """The same for any other model: each imagined frame becomes context of the next single-step rollout."""

    def __init__(self, model: WorldModel, context: Context, seed: int = 0) -> None:
        self._model, self._context, self._seed = model, context, seed

    def step(self, action: Float32) -> Imagined:
        """One imagined step behind `action` (B, A)."""
        context = self._context
        imagined = self._model.rollout(context, action[:, None], self._seed)
        past = np.concatenate((context.past_action, action[:, None]), axis=1)[:, 1:]
        images = {
            view: np.concatenate((frames[:, 1:], imagined.images[view]), axis=1)
            for view, frames in context.images.items()
        }
        self._context, self._seed = Context(images, past), self._seed + 1
        return imagined


def begin(model: WorldModel, context: Context, seed: int = 0) -> Rollout:
    """A rollout that is given its actions one by one."""
    return (
        model.begin(context, seed) if isinstance(model, Stepwise) else ReenteringRollout(model, context, seed)
    )


def check_rollout(spec: WorldModelSpec, context: Context, actions: Float32) -> None:
    """Raise WorldModelError where a rollout's inputs do not fit the spec; every model calls it first."""
    if set(context.images) != set(spec.views):
        raise WorldModelError(
            f"views: expected {sorted(spec.views)}, got {sorted(context.images)}; choose the views that the model "
            "was trained on, or train a new one"
        )
    batch, k = len(context), spec.context_frames
    for view, (height, width) in spec.views.items():
        frames = context.images[view]
        expected = (batch, k, height, width, 3)
        if frames.shape != expected or frames.dtype != np.uint8:
            raise WorldModelError(
                f"context.images[{view}]: expected {expected} uint8, got {frames.shape} {frames.dtype}"
            )
    if context.past_action.shape != (batch, k - 1, spec.action_dim):
        raise WorldModelError(
            f"context.past_action: expected {(batch, k - 1, spec.action_dim)}, got {context.past_action.shape}"
        )
    if actions.ndim != 3 or actions.shape[0] != batch or actions.shape[2] != spec.action_dim:
        raise WorldModelError(f"actions: expected ({batch}, n, {spec.action_dim}), got {actions.shape}")
    if not 1 <= actions.shape[1] <= spec.max_horizon:
        raise WorldModelError(
            f"actions: expected 1..{spec.max_horizon} steps, got {actions.shape[1]}; imagine in shorter clips"
        )
    if not (np.isfinite(actions).all() and np.isfinite(context.past_action).all()):
        raise WorldModelError(
            "actions: expected finite values, got NaN or infinity; nothing is imagined from that"
        )
