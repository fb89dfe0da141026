"""From real clips to what a world model takes: context, actions, the frames that followed, and where they are real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from robot.types import Clip, Float32
from worldmodel.interface import ClipSource, Context, WorldModelError, WorldModelSpec

SCALE_PERCENTILE = 99.0


@dataclass(frozen=True)
class Future:
    """What followed B contexts. action: (B, n, A), stored. images: view -> (B, n, H, W, 3) uint8, after each action.

    valid: (B, n), False behind the end of the episode, where the last frame is repeated.
    """

    action: Float32
    images: Mapping[str, NDArray[np.uint8]]
    valid: NDArray[np.bool_]


def split(clip: Clip, spec: WorldModelSpec) -> tuple[Context, Future]:
    """A clip of K - 1 steps of history as what a rollout starts from and what followed; views beyond the spec drop out.

    Raises WorldModelError where the clip does not fit the spec.
    """
    past = spec.context_frames - 1
    _check(clip, spec, past)
    context = Context({view: clip.images[view][:, : past + 1] for view in spec.views}, clip.action[:, :past])
    future = Future(
        clip.action[:, past:],
        {view: clip.images[view][:, past + 1 :] for view in spec.views},
        clip.valid[:, past:],
    )
    return context, future


def _check(clip: Clip, spec: WorldModelSpec, past: int) -> None:
    if clip.history != past or clip.action.shape[1] <= past:
        raise WorldModelError(
            f"clip: expected {past} steps of history and at least 1 after it (context_frames={past + 1}), got "
            f"{clip.history} of {clip.action.shape[1]} steps; draw clips with history={past}"
        )
    if clip.action.shape[2] != spec.action_dim:
        raise WorldModelError(f"clip.action: expected {spec.action_dim} entries, got {clip.action.shape[2]}")
    if not np.isfinite(clip.action).all():
        raise WorldModelError("clip.action: expected finite values, got NaN or infinity; remove that episode")
    for view, size in spec.views.items():
        if view not in clip.images:
            raise WorldModelError(
                f"clip.images: expected views {sorted(spec.views)}, got {sorted(clip.images)}; "
                "choose views that were recorded"
            )
        got = clip.images[view].shape[2:4]
        if got != size:
            raise WorldModelError(
                f"clip.images[{view}]: expected {size[0]}x{size[1]} px, got {got[0]}x{got[1]}; "
                "a model keeps the sizes it was made for"
            )


def normalised(action: Float32, spec: WorldModelSpec, device: torch.device) -> Tensor:
    """Stored actions (..., A) as the network sees them."""
    return torch.from_numpy(spec.action.apply(action)).to(device)


def to_tensor(frames: NDArray[np.uint8], device: torch.device) -> Tensor:
    """(..., H, W, 3) uint8 as (..., 3, H, W) float32 in [-1, 1]."""
    return torch.from_numpy(frames).to(device).movedim(-1, -3).float().div(127.5).sub(1.0)


def to_frames(tensor: Tensor) -> NDArray[np.uint8]:
    """(..., 3, H, W) in [-1, 1] as (..., H, W, 3) uint8, rounded, values outside clipped."""
    levels = tensor.clamp(-1.0, 1.0).add(1.0).mul(127.5).round().to(torch.uint8)
    frames: NDArray[np.uint8] = levels.movedim(-3, -1).contiguous().cpu().numpy()
    return frames


def shrink(frames: Tensor, pixels: int) -> Tensor:
    """(..., 3, H, W) to a square of `pixels`, averaging over areas; as it is where it has that size."""
    if frames.shape[-2:] == (pixels, pixels):
        return frames
    flat = F.interpolate(frames.flatten(0, -4), (pixels, pixels), mode="area")
    return flat.view(*frames.shape[:-2], pixels, pixels)


def stack_views(frames: Mapping[str, Tensor], pixels: int) -> Tensor:
    """view -> (B, T, 3, H, W) to one (B, T, V, 3, pixels, pixels), in the order of the mapping."""
    return torch.stack([shrink(part, pixels) for part in frames.values()], dim=2)


def check_finite(loss: Tensor, updates: int) -> None:
    """Raise WorldModelError where a loss is NaN or infinite, before it moves a weight."""
    if not torch.isfinite(loss):
        raise WorldModelError(
            f"world model: the loss became {loss.item()} at update {updates}; weights are as before it: "
            "lower learning_rate, or look for damaged clips with `groundhog show check=true`"
        )


def require_clips(clips: ClipSource) -> None:
    """Raise WorldModelError where there is nothing to train on."""
    if clips.size == 0:
        raise WorldModelError("clips: nothing to train on; record episodes first, then refresh")
