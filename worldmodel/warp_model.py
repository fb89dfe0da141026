"""FlowWarpModel: the default world model, small enough to be trained on one core beside a working robot."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from robot.types import Float32
from worldmodel.checkpoint import Checkpoint
from worldmodel.clips import (
    Future,
    normalised,
    require_clips,
    shrink,
    split,
    stack_views,
    to_frames,
    to_tensor,
)
from worldmodel.flow_warp import FlowWarp, Layers, NetworkConfig
from worldmodel.interface import ClipSource, Context, Imagined, WorldModelError, WorldModelSpec, check_rollout
from worldmodel.trainer import OptimiserConfig, Trainer

ERROR_FLOOR = 0.01  # of a frame's error, in half-ranges; frames this good are good enough
BACKGROUND_FRAMES = 128  # whose median is painted before anything is learned


@dataclass(frozen=True)
class FlowWarpConfig:
    """Training: single passes in large batches first, then short unrolls, which teach the model its own mistakes.

    A single pass predicts one frame, a random number of steps ahead within the network's stride. single_share: share
    of the first fit that trains single passes. unroll: strides of an unroll, all of whose frames count; after the
    first fit every `unroll_every`-th update is one. bfloat16: half precision, half the time on CPUs that have it.
    paint_penalty: times what painting changed (`Step.risk`), added to the loss. Where motion is hard to predict, paint
    fades a thing instead of moving it, which squared errors like and eyes do not; 0 lets it.
    """

    network: NetworkConfig = field(default_factory=NetworkConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    single_batch: int = 32
    single_share: float = 0.6
    unroll: int = 2
    unroll_batch: int = 8
    unroll_every: int = 4
    paint_penalty: float = 0.0
    bfloat16: bool = True

    def __post_init__(self) -> None:
        if min(self.single_batch, self.unroll, self.unroll_batch, self.unroll_every) < 1:
            raise ValueError("flow_warp: expected batches, unroll and unroll_every >= 1")
        if not 0 <= self.single_share <= 1:
            raise ValueError(f"flow_warp.single_share: expected 0..1, got {self.single_share}")
        if self.paint_penalty < 0:
            raise ValueError(f"flow_warp.paint_penalty: expected >= 0, got {self.paint_penalty}")


@dataclass(frozen=True)
class Step:
    """One imagined step. frames: view -> (B, 3, H, W) in [-1, 1]. risk: (B,), what painting changed in them."""

    frames: Mapping[str, Tensor]
    risk: Tensor


class Unroll:
    """Imagines step by step; all frames are moved from the last real one.

    The frames of a stride come from one context, each in a pass of its own; the last of them are the next context.
    small: show frames at the network's size and not at that of the views.
    """

    def __init__(
        self,
        network: FlowWarp,
        spec: WorldModelSpec,
        config: FlowWarpConfig,
        context: Context,
        device: torch.device,
        *,
        small: bool = False,
    ) -> None:
        self._network, self._spec, self._config, self._device = network, spec, config, device
        real = {view: to_tensor(context.images[view], device) for view in spec.views}
        self._seen = stack_views(real, config.network.pixels)
        last = self._seen[:, -1].unbind(dim=1) if small else [frames[:, -1] for frames in real.values()]
        self._anchors = dict(zip(spec.views, last, strict=True))
        self._actions = normalised(context.past_action, spec, device)
        self._stride: list[Tensor] = []  # its frames so far, at the network's size
        self._before: Layers | None = None  # the motion up to its start

    def step(self, action: Float32) -> Step:
        """What follows `action` (B, A)."""
        stride, k = self._config.network.stride, self._spec.context_frames
        self._actions = torch.cat(
            (self._actions, normalised(action[:, None], self._spec, self._device)), dim=1
        )
        ahead = len(self._stride) + 1
        asked = torch.full((len(action),), ahead, device=self._device)
        layers = self._moved(F.pad(self._actions, (0, 0, 0, stride - ahead)), asked)
        step = self._shown(layers)
        small = {view: frame[:, None] for view, frame in step.frames.items()}
        self._stride.append(stack_views(small, self._config.network.pixels))
        if ahead == stride:
            self._seen = torch.cat((self._seen, *self._stride), dim=1)[:, -k:]
            self._actions, self._before, self._stride = self._actions[:, stride:], layers, []
        return step

    def jump(self, actions: Float32, ahead: NDArray[np.int64]) -> Step:
        """Of the frames that follow `actions` (B, stride, A) from the start, the one `ahead` (B,) steps away."""
        every = torch.cat((self._actions, normalised(actions, self._spec, self._device)), dim=1)
        return self._shown(self._moved(every, torch.from_numpy(ahead).to(self._device)))

    def _moved(self, actions: Tensor, ahead: Tensor) -> Layers:
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._config.bfloat16):
            motion: Layers = self._network(self._seen, actions, ahead)
        return (self._before or Layers.identity(motion)).then(motion)

    def _shown(self, layers: Layers) -> Step:
        shown = {
            view: layers.render(index, anchor) for index, (view, anchor) in enumerate(self._anchors.items())
        }
        frames = {view: frame.clamp(-1.0, 1.0) for view, (frame, _) in shown.items()}
        return Step(frames, torch.stack([changed for _, changed in shown.values()]).mean(dim=0))


class FlowWarpRollout:
    """An Unroll for those who choose each action by what is imagined."""

    def __init__(self, unroll: Unroll, version: int) -> None:
        self._unroll, self._version = unroll, version

    def step(self, action: Float32) -> Imagined:
        """One imagined step behind `action` (B, A)."""
        with torch.inference_mode():
            step = self._unroll.step(action)
        images = {view: to_frames(frame)[:, None] for view, frame in step.frames.items()}
        return Imagined(images, step.risk.float().cpu().numpy()[:, None], self._version)


class FlowWarpModel:
    """Deterministic. Risk of a frame: how far painting changed it from what moving the last real frame gives.

    That orders frames by their true error twice as well as the painted share does: paint that agrees with what was
    moved there, as on a known background, is no risk.
    """

    KIND = "flow_warp"
    stochastic = False

    def __init__(
        self,
        spec: WorldModelSpec,
        config: FlowWarpConfig,
        device: torch.device,
        seed: int = 0,
        version: int = 0,
    ) -> None:
        self._spec, self._config, self._device, self.version = spec, config, device, version
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = FlowWarp(len(spec.views), spec.context_frames, spec.action_dim, config.network)
        self._trainer = Trainer(network.to(device), config.optimiser)

    @property
    def spec(self) -> WorldModelSpec:
        return self._spec

    @property
    def updates(self) -> int:
        """Optimiser steps so far."""
        return self._trainer.updates

    def adapt(self, clips: ClipSource, steps: int, rng: np.random.Generator) -> dict[str, float]:
        """`steps` optimiser steps; the mean loss of those that trained single passes and of those that unrolled."""
        require_clips(clips)
        if self._trainer.updates == 0:
            self._paint_background(clips, rng)
        losses: dict[str, list[float]] = {}
        for _ in range(steps):
            name, loss = (
                ("unroll", self._unroll_loss) if self._unrolls_next() else ("single", self._single_loss)
            )
            value = loss(clips, rng)
            self._trainer.step(value)
            losses.setdefault(name, []).append(value.item())
        return {f"world_model/{name}_loss": float(np.mean(values)) for name, values in sorted(losses.items())}

    def _unrolls_next(self) -> bool:
        config, updates = self._config, self._trainer.updates
        if updates < config.optimiser.fit_steps:
            return updates >= config.single_share * config.optimiser.fit_steps
        return updates % config.unroll_every == 0

    def _single_loss(self, clips: ClipSource, rng: np.random.Generator) -> Tensor:
        """One frame of each clip, at random within the stride and within its episode, at the network's size."""
        stride = self._config.network.stride
        unroll, future = self._lesson(clips, self._config.single_batch, stride, rng, small=True)
        valid, rows = future.valid, np.arange(len(future.valid))
        ahead = np.minimum(rng.integers(1, stride + 1, len(rows)), np.maximum(1, valid.sum(axis=1)))
        step = unroll.jump(future.action, ahead)
        images = {view: frames[rows, ahead - 1] for view, frames in future.images.items()}
        known = valid[rows, ahead - 1]
        return self._error(step, images, known) / float(max(1, known.sum()))

    def _unroll_loss(self, clips: ClipSource, rng: np.random.Generator) -> Tensor:
        """All frames of the clips, those behind the first stride imagined from imagined ones."""
        config = self._config
        length = config.unroll * config.network.stride
        unroll, future = self._lesson(clips, config.unroll_batch, length, rng)
        losses = []
        for k in range(length):
            images = {view: frames[:, k] for view, frames in future.images.items()}
            losses.append(self._error(unroll.step(future.action[:, k]), images, future.valid[:, k]))
        return torch.stack(losses).sum() / float(max(1, future.valid.sum()))

    def _lesson(
        self, clips: ClipSource, batch: int, length: int, rng: np.random.Generator, *, small: bool = False
    ) -> tuple[Unroll, Future]:
        """The starts of some clips, and what followed."""
        clip = clips.sample(batch, length, rng, self._spec.context_frames - 1)
        context, future = split(clip, self._spec)
        network = self._trainer.module
        return Unroll(network, self._spec, self._config, context, self._device, small=small), future

    def _error(self, step: Step, images: Mapping[str, NDArray[np.uint8]], valid: NDArray[np.bool_]) -> Tensor:
        """log(L1 + MSE/2 + half the L1 of neighbouring differences + floor): mean over views, sum over valid frames.

        The logarithm, as in PSNR: a view in which little moves counts as much as one in which all does.
        """
        losses = []
        for view, frame in step.frames.items():
            target = to_tensor(images[view], self._device)
            if target.shape != frame.shape:
                target = shrink(target, frame.shape[-1])
            error = frame - target
            across, down = error.diff(dim=-1).abs(), error.diff(dim=-2).abs()
            edges = across.mean(dim=(1, 2, 3)) + down.mean(dim=(1, 2, 3))
            pixels = (error.abs() + 0.5 * error.square()).mean(dim=(1, 2, 3))
            losses.append((pixels + 0.5 * edges + ERROR_FLOOR).log())
        loss = torch.stack(losses).mean(dim=0) + self._config.paint_penalty * step.risk
        return (loss * torch.from_numpy(valid).to(self._device)).sum()

    def _paint_background(self, clips: ClipSource, rng: np.random.Generator) -> None:
        clip = clips.sample(BACKGROUND_FRAMES, 1, rng, self._spec.context_frames - 1)
        context, _ = split(clip, self._spec)
        last = {view: to_tensor(frames[:, -1:], self._device) for view, frames in context.images.items()}
        frames = stack_views(last, self._config.network.pixels)[:, 0]
        for network in (self._trainer.module, self._trainer.mean):
            network.set_background(frames)

    def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
        """Imagine the frames that follow `actions`; the seed is of no consequence."""
        check_rollout(self._spec, context, actions)
        begun = self.begin(context)
        steps = [begun.step(actions[:, k]) for k in range(actions.shape[1])]
        images = {
            view: np.concatenate([step.images[view] for step in steps], axis=1) for view in self._spec.views
        }
        return Imagined(images, np.concatenate([step.risk for step in steps], axis=1), self.version)

    def begin(self, context: Context, seed: int = 0) -> FlowWarpRollout:
        """A rollout that is given its actions one by one; whatever is composed back to the last real frame stays so."""
        unroll = Unroll(self._trainer.mean, self._spec, self._config, context, self._device)
        return FlowWarpRollout(unroll, self.version)

    def save(
        self, path: Path, scores: Mapping[str, float] | None = None, learned: Collection[str] | None = None
    ) -> None:
        """Write weights, their running mean and the optimiser's state."""
        config = dataclasses.asdict(self._config)
        self._trainer.save(path, self.KIND, self._spec, config, self.version, scores, learned)

    @classmethod
    def restore(cls, stored: Checkpoint, path: Path, device: torch.device) -> FlowWarpModel:
        """The model of a checkpoint read from `path`; raises WorldModelError where it does not fit itself."""
        model = cls(stored.spec, _config(stored, path), device, version=stored.version)
        model._trainer.restore(stored, path)
        return model


def _config(stored: Checkpoint, path: Path) -> FlowWarpConfig:
    try:
        entries = dict(stored.config)
        network, optimiser = (
            NetworkConfig(**entries.pop("network")),
            OptimiserConfig(**entries.pop("optimiser")),
        )
        return FlowWarpConfig(network, optimiser, **entries)
    except (KeyError, TypeError, ValueError) as error:
        raise WorldModelError(f"{path}: its config is not of this version ({error!r})") from error
