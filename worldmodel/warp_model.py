"""FlowWarpModel: the default world model, small enough to be trained on one core beside a working robot."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
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
            imagined = self._imagine(self._trainer.module, context, future.action)
            loss = torch.stack(
                [
                    _reconstruction(step.frames, {view: t[:, k] for view, t in targets.items()}, valid[:, k])
                    for k, step in enumerate(imagined)
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
        frames: dict[str, list[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]] = {
            v: [] for v in self._spec.views
        }
        risks = []
        with torch.inference_mode():
            for step in self._imagine(self._trainer.mean, context, actions):
                risks.append(step.painted)
                for view, frame in step.frames.items():
                    frames[view].append(to_frames(frame))
        images = {view: np.stack(steps, axis=1) for view, steps in frames.items()}
        return Imagined(images, torch.stack(risks, dim=1).float().cpu().numpy(), self.version)

    def _imagine(self, network: torch.nn.Module, context: Context, actions: Float32) -> Iterator[Step]:
        """The steps that follow `actions` (B, n, A), each from the frames before it, real or imagined."""
        spec, pixels = self._spec, self._config.network.pixels
        real = {view: to_tensor(context.images[view], self._device) for view in spec.views}
        anchors = {view: frames[:, -1] for view, frames in real.items()}
        seen = stack_views(real, pixels)
        all_actions = normalised(np.concatenate((context.past_action, actions), axis=1), spec, self._device)
        layers: Layers | None = None
        for k in range(actions.shape[1]):
            with torch.autocast(self._device.type, torch.bfloat16, enabled=self._config.bfloat16):
                motion: Layers = network(seen, all_actions[:, k : k + spec.context_frames])
            layers = (layers or Layers.identity(motion)).then(motion)
            frames = {
                view: layers.render(index, anchor).clamp(-1.0, 1.0)
                for index, (view, anchor) in enumerate(anchors.items())
            }
            yield Step(frames, layers.painted)
            newest = torch.stack([shrink(frame, pixels) for frame in frames.values()], dim=1)
            seen = torch.cat((seen[:, 1:], newest[:, None]), dim=1)

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
