"""Between camera frames and latents: views are encoded one by one and their latents stacked along the height."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

LATENT_PIXEL = 8  # image pixels per latent pixel, in height and in width


def to_video(
    images: Mapping[str, NDArray[np.uint8]], views: Sequence[str], size: tuple[int, int], device: torch.device
) -> Tensor:
    """view -> (B, T, H, W, 3) uint8 to (B, V, 3, T, h, w) float32 in [-1, 1], every view resized to `size`.

    The aspect ratio is not kept: choose `size` like the camera's.
    """
    return torch.stack([_resized(images[view], size, device) for view in views], dim=1)


def to_images(
    video: Tensor, views: Sequence[str], sizes: Mapping[str, tuple[int, int]]
) -> dict[str, NDArray[np.uint8]]:
    """(B, V, 3, T, h, w) in [-1, 1] to view -> (B, T, H, W, 3) uint8 at each view's own size."""
    images = {}
    for index, view in enumerate(views):
        batch, _, frames = video[:, index].shape[:3]
        flat = video[:, index].transpose(1, 2).flatten(0, 1)
        flat = F.interpolate(flat, sizes[view], mode="bilinear", antialias=True, align_corners=False)
        pixels = ((flat.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
        height, width = pixels.shape[-2:]
        shaped = pixels.permute(0, 2, 3, 1).reshape(batch, frames, height, width, 3)
        images[view] = shaped.cpu().numpy()
    return images


def quantise(video: Tensor) -> Tensor:
    """[-1, 1] rounded to the 256 values of a pixel: what a camera would have delivered."""
    return ((video.clamp(-1, 1) + 1) * 127.5).round() / 127.5 - 1


def encode(autoencoder: Any, video: Tensor) -> Tensor:
    """(B, V, 3, 1 + 4k, h, w) to normalised latents (B, 16, 1 + k, V*h/8, w/8) float32, view under view.

    Latents are stacked rather than images, so that the autoencoder does not mix the views at their seam; to the
    transformer they are one taller picture.
    """
    batch, views = video.shape[:2]
    dtype = next(autoencoder.parameters()).dtype
    latents = autoencoder.encode(video.flatten(0, 1).to(dtype)).latent_dist.mode().float()
    mean, std = _statistics(autoencoder, latents)
    latents = (latents - mean) / std
    return torch.cat(latents.reshape(batch, views, *latents.shape[1:]).unbind(1), dim=3)


def decode(autoencoder: Any, latents: Tensor, views: int) -> Tensor:
    """The inverse of `encode`: (B, V, 3, 1 + 4k, h, w) float32, within [-1, 1]."""
    batch = len(latents)
    dtype = next(autoencoder.parameters()).dtype
    stacked = torch.stack(latents.chunk(views, dim=3), dim=1).flatten(0, 1)
    mean, std = _statistics(autoencoder, stacked)
    video: Tensor = autoencoder.decode((stacked * std + mean).to(dtype), return_dict=False)[0].float()
    return video.clamp(-1, 1).reshape(batch, views, *video.shape[1:])


def _resized(frames: NDArray[np.uint8], size: tuple[int, int], device: torch.device) -> Tensor:
    batch, length = frames.shape[:2]
    flat = torch.from_numpy(np.ascontiguousarray(frames)).to(device).flatten(0, 1).permute(0, 3, 1, 2).float()
    if flat.shape[-2:] != size:
        flat = F.interpolate(flat, size, mode="bilinear", antialias=True, align_corners=False)
    return (flat.reshape(batch, length, 3, *size) / 127.5 - 1).transpose(1, 2)


def _statistics(autoencoder: Any, like: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation per latent channel, as the transformer was trained with."""
    mean, std = (
        torch.tensor(values, device=like.device, dtype=like.dtype).view(1, -1, 1, 1, 1)
        for values in (autoencoder.config.latents_mean, autoencoder.config.latents_std)
    )
    return mean, std
