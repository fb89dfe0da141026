"""EdmModel: next-frame diffusion on diffusers' UNet2DModel, the baseline that paints each frame anew.

As DIAMOND (Alonso et al. 2024): context frames stacked on the channels, actions in the normalisation layers, few
Euler steps; preconditioning and noise schedule of Karras et al. 2022 ("EDM"). diffusers is imported when it is used.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from robot.types import Float32
from worldmodel.checkpoint import Checkpoint
from worldmodel.clips import Future, normalised, require_clips, split, stack_views, to_frames, to_tensor
from worldmodel.interface import ClipSource, Context, Imagined, WorldModelError, WorldModelSpec, check_rollout
from worldmodel.trainer import OptimiserConfig, Trainer

_NOISE_TO_TIME = 1000.0  # diffusers' sinusoids resolve whole numbers; c_noise lies within a few units of 0


@dataclass(frozen=True)
class EdmConfig:
    """pixels: side at which all views are imagined; another size is resized in and out. unshuffle: as flow_warp's.

    noise_mean, noise_std: of the logarithm of the training noise. sigma_max: where sampling begins.
    offset_noise: extra noise that is equal over a picture, so that the model may not trust its mean colour.
    """

    pixels: int = 64
    unshuffle: int = 2
    channels: list[int] = field(default_factory=lambda: [48, 64, 96, 128])
    optimiser: OptimiserConfig = field(default_factory=lambda: OptimiserConfig(learning_rate=5e-4))
    batch: int = 16
    num_denoising_steps: int = 3
    sigma_data: float = 0.5
    sigma_min: float = 0.002
    sigma_max: float = 5.0
    noise_mean: float = -0.4
    noise_std: float = 1.2
    offset_noise: float = 0.1
    bfloat16: bool = True

    def __post_init__(self) -> None:
        coarsest = self.unshuffle * 2 ** (len(self.channels) - 1)
        if (
            not self.channels
            or self.unshuffle < 1
            or self.pixels % coarsest
            or any(c % 16 for c in self.channels)
        ):
            raise ValueError(
                f"edm: expected channels in multiples of 16 and pixels in multiples of {coarsest}, got "
                f"{self.channels} and {self.pixels}"
            )
        if self.batch < 1 or self.num_denoising_steps < 1:
            raise ValueError("edm: expected batch and num_denoising_steps >= 1")
        if not 0 < self.sigma_min < self.sigma_max or self.sigma_data <= 0 or self.offset_noise < 0:
            raise ValueError("edm: expected 0 < sigma_min < sigma_max, sigma_data > 0 and offset_noise >= 0")


class Denoiser(nn.Module):
    """F_theta of EDM, eq. 7: (scaled noisy frame, c_noise, context, actions) to a frame, views on the channels."""

    def __init__(self, frame_channels: int, context_frames: int, num_actions: int, config: EdmConfig) -> None:
        super().__init__()
        channels, block = config.channels, config.unshuffle**2
        levels = len(channels)
        width = 4 * channels[0]  # diffusers' width of the time embedding
        self._unshuffle = config.unshuffle
        self.embed = nn.Sequential(nn.Linear(num_actions, width), nn.SiLU(), nn.Linear(width, width))
        self.unet = _diffusers().UNet2DModel(
            sample_size=config.pixels // config.unshuffle,
            in_channels=frame_channels * (context_frames + 1) * block,
            out_channels=frame_channels * block,
            layers_per_block=1,
            block_out_channels=tuple(channels),
            down_block_types=("DownBlock2D",) * levels,
            up_block_types=("UpBlock2D",) * levels,
            norm_num_groups=16,
            attention_head_dim=32,
            class_embed_type="identity",
        )

    def forward(self, noisy: Tensor, noise: Tensor, context: Tensor, actions: Tensor) -> Tensor:
        x = F.pixel_unshuffle(torch.cat((context, noisy), dim=1), self._unshuffle)
        embedding = self.embed(actions.flatten(1))
        out = self.unet(x, _NOISE_TO_TIME * noise, class_labels=embedding).sample
        return F.pixel_shuffle(out, self._unshuffle).float()


class EdmModel:
    """Stochastic: two seeds give two futures. Risk: how far sampling moved a frame from the first, mean guess."""

    KIND = "edm"
    stochastic = True

    def __init__(
        self, spec: WorldModelSpec, config: EdmConfig, device: torch.device, seed: int = 0, version: int = 0
    ) -> None:
        self._spec, self._config, self._device, self.version = spec, config, device, version
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = Denoiser(
                3 * len(spec.views), spec.context_frames, spec.context_frames * spec.action_dim, config
            )
        self._trainer = Trainer(network.to(device), config.optimiser)
        self._scheduler = _diffusers().EDMEulerScheduler(
            sigma_min=config.sigma_min, sigma_max=config.sigma_max, sigma_data=config.sigma_data
        )

    @property
    def spec(self) -> WorldModelSpec:
        return self._spec

    @property
    def updates(self) -> int:
        """Optimiser steps so far."""
        return self._trainer.updates

    def adapt(self, clips: ClipSource, steps: int, rng: np.random.Generator) -> dict[str, float]:
        """`steps` optimiser steps on next frames; returns the mean loss."""
        require_clips(clips)
        losses = []
        for _ in range(steps):
            clip = clips.sample(self._config.batch, 1, rng, self._spec.context_frames - 1)
            loss = self._loss(*split(clip, self._spec), rng)
            self._trainer.step(loss)
            losses.append(loss.item())
        return {"world_model/loss_1": float(np.mean(losses))}

    def _loss(self, context: Context, future: Future, rng: np.random.Generator) -> Tensor:
        """EDM eq. 8: lambda(sigma) |D(x + n; sigma) - x|^2 with lambda = (sigma^2 + sd^2) / (sigma sd)^2."""
        config = self._config
        seen, actions = self._inputs(context, future.action)
        target = stack_views(self._tensors(future.images), config.pixels).flatten(1, 3)
        noise = self._normal(rng, target.shape)
        noise = noise + config.offset_noise * self._normal(rng, (*target.shape[:2], 1, 1))
        sigma = (config.noise_mean + config.noise_std * self._normal(rng, (len(target),))).exp()
        sigma = sigma.clamp(config.sigma_min, 20.0)[:, None, None, None]
        denoised = self._denoise(self._trainer.module, target + sigma * noise, sigma, seen, actions)
        weight = (sigma.square() + config.sigma_data**2) / (sigma * config.sigma_data).square()
        valid = torch.from_numpy(future.valid[:, 0]).to(self._device)
        each = (weight * (denoised - target).square()).mean(dim=(1, 2, 3))
        return (each * valid).sum() / valid.sum().clamp(min=1)

    def _denoise(
        self, network: nn.Module, noisy: Tensor, sigma: Tensor, seen: Tensor, actions: Tensor
    ) -> Tensor:
        """D(x; sigma) = c_skip x + c_out F(c_in x; c_noise), EDM eq. 7."""
        scaled = self._scheduler.precondition_inputs(noisy, sigma)
        level = 0.25 * sigma.flatten().log().expand(len(noisy))
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._config.bfloat16):
            out = network(scaled, level, seen, actions)
        denoised: Tensor = self._scheduler.precondition_outputs(noisy, out, sigma)
        return denoised

    def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
        """Imagine the frames that follow `actions`, one future of the seed."""
        check_rollout(self._spec, context, actions)
        generator = torch.Generator("cpu").manual_seed(seed)
        seen, all_actions = self._inputs(context, actions)
        k, size = self._spec.context_frames, seen.shape[1] // self._spec.context_frames
        frames: list[Tensor] = []
        risks: list[Tensor] = []
        with torch.inference_mode():
            for step in range(actions.shape[1]):
                frame, first = self._sample(seen, all_actions[:, step : step + k], size, generator)
                frames.append(frame)
                risks.append((frame - first).abs().mean(dim=(1, 2, 3)))
                seen = torch.cat((seen[:, size:], frame), dim=1)
        images = {
            view: np.stack([self._output(frame, index, shape) for frame in frames], axis=1)
            for index, (view, shape) in enumerate(self._spec.views.items())
        }
        return Imagined(images, torch.stack(risks, dim=1).float().cpu().numpy(), self.version)

    def _sample(
        self, seen: Tensor, actions: Tensor, size: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """The next frame and the first guess of it."""
        self._scheduler.set_timesteps(self._config.num_denoising_steps, device=self._device)
        shape = (len(seen), size, *seen.shape[-2:])
        x = torch.randn(shape, generator=generator).to(self._device) * self._scheduler.sigmas[0]
        guesses: list[Tensor] = []
        for sigma, below in zip(self._scheduler.sigmas[:-1], self._scheduler.sigmas[1:], strict=True):
            guess = self._denoise(self._trainer.mean, x, sigma, seen, actions).clamp(-1.0, 1.0)
            x = guess + (x - guess) * (below / sigma)  # Euler, EDM algorithm 1
            guesses.append(guess)
        return x.clamp(-1.0, 1.0), guesses[0]

    def _output(self, frame: Tensor, index: int, shape: tuple[int, int]) -> NDArray[np.uint8]:
        part = frame[:, 3 * index : 3 * index + 3]
        if part.shape[-2:] != shape:
            part = F.interpolate(part, shape, mode="bilinear", align_corners=False)
        return to_frames(part)

    def _inputs(self, context: Context, actions: Float32) -> tuple[Tensor, Tensor]:
        """Context frames on the channels, and all actions, past and future."""
        real = self._tensors({view: context.images[view] for view in self._spec.views})
        seen = stack_views(real, self._config.pixels).flatten(1, 3)
        every = np.concatenate((context.past_action, actions), axis=1)
        return seen, normalised(every, self._spec, self._device)

    def _tensors(self, images: Mapping[str, NDArray[np.uint8]]) -> dict[str, Tensor]:
        return {view: to_tensor(frames, self._device) for view, frames in images.items()}

    def _normal(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(self._device)

    def save(
        self, path: Path, scores: Mapping[str, float] | None = None, learned: Collection[str] | None = None
    ) -> None:
        """Write weights, their running mean and the optimiser's state."""
        config = dataclasses.asdict(self._config)
        self._trainer.save(path, self.KIND, self._spec, config, self.version, scores, learned)

    @classmethod
    def restore(cls, stored: Checkpoint, path: Path, device: torch.device) -> EdmModel:
        """The model of a checkpoint read from `path`; raises WorldModelError where it does not fit itself."""
        entries = dict(stored.config)
        try:
            config = EdmConfig(optimiser=OptimiserConfig(**entries.pop("optimiser")), **entries)
        except (KeyError, TypeError, ValueError) as error:
            raise WorldModelError(f"{path}: its config is not of this version ({error!r})") from error
        model = cls(stored.spec, config, device, version=stored.version)
        model._trainer.restore(stored, path)
        return model


def _diffusers() -> Any:
    try:
        return importlib.import_module("diffusers")
    except ImportError as error:
        raise WorldModelError(
            "kind=edm needs diffusers: pip install 'groundhog[diffusion]', or choose kind=flow_warp"
        ) from error
