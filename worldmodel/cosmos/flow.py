"""Rectified flow: the training loss and the sampler, with the first latent frame given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

TRAIN_TIMES = 1000  # noise levels of the schedule that the released model was trained on

# (noisy latents (B, C, T, H, W), noise level (B,)) -> velocity (B, C, T, H, W)
Velocity = Callable[[Tensor, Tensor], Tensor]


def given_mask(latents: Tensor) -> Tensor:
    """(B, 1, T, H, W): 1 on the first latent frame, which is given, and 0 on those to predict."""
    mask = torch.zeros_like(latents[:, :1])
    mask[:, :, 0] = 1
    return mask


def noise_levels(normal: Tensor, shift: float) -> Tensor:
    """Training noise levels (B,) in (0, 1) from standard normal draws: u = sigmoid(n), t = s u / (1 + (s - 1) u).

    A logit-normal distribution (Esser et al. 2024, eq. 19) shifted towards noise by `shift` (eq. 23).
    """
    uniform = torch.sigmoid(normal)
    return shift * uniform / (1 + (shift - 1) * uniform)


def flow_loss(velocity: Velocity, latents: Tensor, noise: Tensor, level: Tensor, weight: Tensor) -> Tensor:
    """Mean squared error of the predicted velocity (Liu et al. 2023, eq. 1): v = noise - x, x_t = (1 - t) x + t noise.

    latents, noise: (B, C, T, H, W). level: (B,), one for all frames of a video. weight: (B, T), 0 leaves a latent
    frame out. The given frame enters clean and its velocity is known, so it adds no error but counts in the mean.
    """
    mask = given_mask(latents)
    t = level.view(-1, 1, 1, 1, 1)
    noisy = mask * latents + (1 - mask) * ((1 - t) * latents + t * noise)
    target = noise - latents
    predicted = mask * target + (1 - mask) * velocity(noisy, level).float()
    per_frame = (predicted - target).square().mean(dim=(1, 3, 4))
    return (per_frame * weight).sum() / weight.sum()


def sample(velocity: Velocity, first: Tensor, noise: Tensor, steps: int, shift: float) -> Tensor:
    """Latents (B, C, T, H, W), drawn from `noise` in `steps` steps of UniPC after the given `first` (B, C, 1, H, W)."""
    known = torch.zeros_like(noise)
    known[:, :, :1] = first
    mask = given_mask(noise)
    scheduler = make_scheduler(steps, shift, noise.device)
    x = noise
    for index, time in enumerate(scheduler.timesteps):
        level = scheduler.sigmas[index].to(noise).expand(len(noise))
        v = velocity(mask * known + (1 - mask) * x, level).float()
        v = mask * (noise - known) + (1 - mask) * v
        x = scheduler.step(v, time, x, return_dict=False)[0]
    return mask * known + (1 - mask) * x


def make_scheduler(steps: int, shift: float, device: torch.device) -> Any:
    """diffusers' UniPC at the vendor's noise levels, whose spacing is not quite diffusers' own."""
    from diffusers import UniPCMultistepScheduler

    scheduler = UniPCMultistepScheduler(
        num_train_timesteps=TRAIN_TIMES,
        prediction_type="flow_prediction",
        use_flow_sigmas=True,
        flow_shift=shift,
    )
    even = np.linspace(1 - 1 / TRAIN_TIMES, 0, steps + 1)[:-1]  # before the shift
    scheduler.set_timesteps(sigmas=even, device=device)
    return scheduler
