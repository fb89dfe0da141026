"""FlowWarpModel: the default world model, small enough to be trained on one core beside a working robot."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from robot.types import Float32
from worldmodel import checkpoint
from worldmodel.checkpoint import Checkpoint
from worldmodel.clips import normalised, require_clips, shrink, split, stack_views, to_frames, to_tensor
from worldmodel.flow_warp import FlowWarp, Layers, NetworkConfig
from worldmodel.interface import ClipSource, Context, Imagined, WorldModelError, WorldModelSpec, check_rollout
from worldmodel.trainer import OptimiserConfig, Trainer

BACKGROUND_FRAMES = 128  # whose median is painted before anything is learned


@dataclass(frozen=True)
class FlowWarpConfig:
    """Training: single steps in large batches first, then short unrolls, which teach the model its own mistakes.

    single_share: share of the first fit that trains single steps. unroll: steps of an unroll; after the first fit
    every `unroll_every`-th update is one. bfloat16: compute in half precision, half the time on CPUs that have it.
    """

    network: NetworkConfig = field(default_factory=NetworkConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    single_batch: int = 32
    single_share: float = 0.6
    unroll: int = 4
    unroll_batch: int = 8
    unroll_every: int = 4
    bfloat16: bool = True

    def __post_init__(self) -> None:
        if min(self.single_batch, self.unroll, self.unroll_batch, self.unroll_every) < 1:
            raise ValueError("flow_warp: expected batches, unroll and unroll_every >= 1")
        if not 0 <= self.single_share <= 1:
            raise ValueError(f"flow_warp.single_share: expected 0..1, got {self.single_share}")


@dataclass(frozen=True)
class Step:
    """One imagined step. frames: view -> (B, 3, H, W) in [-1, 1]. painted: (B,) share that no real pixel covers."""

    frames: Mapping[str, Tensor]
    painted: Tensor


class Unroll:
    """Imagines step by step, each from the frames before it, real or imagined; all frames are moved from the last
    real one.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        spec: WorldModelSpec,
        config: FlowWarpConfig,
        context: Context,
        device: torch.device,
    ) -> None:
        self._network, self._spec, self._config, self._device = network, spec, config, device
        real = {view: to_tensor(context.images[view], device) for view in spec.views}
        self._anchors = {view: frames[:, -1] for view, frames in real.items()}
        self._seen = stack_views(real, config.network.pixels)
        self._past = context.past_action  # (B, K - 1, A)
        self._layers: Layers | None = None

    def step(self, action: Float32) -> Step:
        """What follows `action` (B, A)."""
        pixels = self._config.network.pixels
        recent = np.concatenate((self._past, action[:, None]), axis=1)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._config.bfloat16):
            motion: Layers = self._network(self._seen, normalised(recent, self._spec, self._device))
        layers = self._layers = (self._layers or Layers.identity(motion)).then(motion)
        frames = {
            view: layers.render(index, anchor).clamp(-1.0, 1.0)
            for index, (view, anchor) in enumerate(self._anchors.items())
        }
        newest = torch.stack([shrink(frame, pixels) for frame in frames.values()], dim=1)
        self._seen = torch.cat((self._seen[:, 1:], newest[:, None]), dim=1)
        self._past = recent[:, 1:]
        return Step(frames, layers.painted)


class FlowWarpRollout:
    """An Unroll for those who choose each action by what is imagined."""

    def __init__(self, unroll: Unroll, version: int) -> None:
        self._unroll, self._version = unroll, version

    def step(self, action: Float32) -> Imagined:
        """One imagined step behind `action` (B, A)."""
        with torch.inference_mode():
            step = self._unroll.step(action)
        images = {view: to_frames(frame)[:, None] for view, frame in step.frames.items()}
        return Imagined(images, step.painted.float().cpu().numpy()[:, None], self._version)


class FlowWarpModel:
    """Deterministic. Risk of a frame: the share of it that is painted and not moved from the last real frame."""

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
            network = FlowWarp(
                len(spec.views), spec.context_frames, spec.context_frames * spec.action_dim, config.network
            )
        self._trainer = Trainer(network.to(device), config.optimiser)

    @property
    def spec(self) -> WorldModelSpec:
        return self._spec

    @property
    def updates(self) -> int:
        """Optimiser steps so far."""
        return self._trainer.updates

    def adapt(self, clips: ClipSource, steps: int, rng: np.random.Generator) -> dict[str, float]:
        """`steps` optimiser steps; the mean loss of those that trained single steps and of those that unrolled."""
        require_clips(clips)
        if self._trainer.updates == 0:
            self._paint_background(clips, rng)
        losses: dict[int, list[float]] = {}
        for _ in range(steps):
            horizon, batch = self._lesson()
            clip = clips.sample(batch, horizon, rng, self._spec.context_frames - 1)
            context, future = split(clip, self._spec)
            targets = {view: to_tensor(frames, self._device) for view, frames in future.images.items()}
            valid = torch.from_numpy(future.valid).to(self._device)
            unroll = Unroll(self._trainer.module, self._spec, self._config, context, self._device)
            loss = torch.stack(
                [
                    _reconstruction(
                        unroll.step(future.action[:, k]).frames,
                        {view: t[:, k] for view, t in targets.items()},
                        valid[:, k],
                    )
                    for k in range(horizon)
                ]
            ).sum() / valid.sum().clamp(min=1)
            self._trainer.step(loss)
            losses.setdefault(horizon, []).append(float(loss.detach()))
        return {f"world_model/loss_{n}": float(np.mean(values)) for n, values in sorted(losses.items())}

    def _paint_background(self, clips: ClipSource, rng: np.random.Generator) -> None:
        clip = clips.sample(BACKGROUND_FRAMES, 1, rng, self._spec.context_frames - 1)
        context, _ = split(clip, self._spec)
        last = {view: to_tensor(frames[:, -1:], self._device) for view, frames in context.images.items()}
        frames = stack_views(last, self._config.network.pixels)[:, 0]
        for network in (self._trainer.module, self._trainer.mean):
            network.set_background(frames)

    def _lesson(self) -> tuple[int, int]:
        """Horizon and batch of the next update."""
        config, updates = self._config, self._trainer.updates
        if updates < config.optimiser.fit_steps:
            unroll = updates >= config.single_share * config.optimiser.fit_steps
        else:
            unroll = updates % config.unroll_every == 0
        return (config.unroll, config.unroll_batch) if unroll else (1, config.single_batch)

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

    def save(self, path: Path, scores: Mapping[str, float] | None = None) -> None:
        """Write weights, their running mean and the optimiser's state."""
        config, trainer = dataclasses.asdict(self._config), self._trainer
        checkpoint.write(
            path,
            Checkpoint(
                self.KIND, self._spec, config, self.version, trainer.updates, trainer.tensors(), scores or {}
            ),
        )

    @classmethod
    def restore(cls, stored: Checkpoint, path: Path, device: torch.device) -> FlowWarpModel:
        """The model of a checkpoint read from `path`; raises WorldModelError where it does not fit itself."""
        model = cls(stored.spec, _config(stored, path), device, version=stored.version)
        model._trainer.restore(stored, path)
        return model


def _reconstruction(frames: Mapping[str, Tensor], targets: Mapping[str, Tensor], valid: Tensor) -> Tensor:
    """L1 + MSE/2 + half the L1 of neighbouring differences, mean over pixels and views, summed over valid frames."""
    losses = []
    for view, frame in frames.items():
        error = frame - targets[view]
        across, down = error.diff(dim=-1).abs(), error.diff(dim=-2).abs()
        pixel = error.abs() + 0.5 * error.square()
        losses.append(
            pixel.mean(dim=(1, 2, 3)) + 0.5 * (across.mean(dim=(1, 2, 3)) + down.mean(dim=(1, 2, 3)))
        )
    return (torch.stack(losses).mean(dim=0) * valid).sum()


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
