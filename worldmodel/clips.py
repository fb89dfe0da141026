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
from worldmodel.interface import ClipSource, Conditioning, Context, WorldModelError, WorldModelSpec

SCALE_PERCENTILE = 99.0
POSE = 6  # entries of the tool's pose at the head of a proprio vector, and of its motion at the head of an action
MOTION_UNIT = np.repeat(
    np.array([0.01, 0.05], np.float32), 3
)  # m and rad per step, what a measured motion of 1 is


@dataclass(frozen=True)
class Future:
    """What followed B contexts. action: (B, n, A), as `told`. images: view -> (B, n, H, W, 3) uint8, after each action.

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
    action = told(spec, clip.action, clip.proprio)
    context = Context({view: clip.images[view][:, : past + 1] for view in spec.views}, action[:, :past])
    future = Future(
        action[:, past:],
        {view: clip.images[view][:, past + 1 :] for view in spec.views},
        clip.valid[:, past:],
    )
    return context, future


def told(spec: WorldModelSpec, action: Float32, proprio: Float32) -> Float32:
    """What a model of this spec is told of stored actions (..., T, A) between readings (..., T + 1, P): (..., T, A).

    COMMANDED: the actions. MEASURED: the first six entries are the change of the tool's pose, position and rotation
    vector, in MOTION_UNIT; the gripper's stays as commanded. In contact a command moves nothing, and only the readings
    say so. Raises WorldModelError where a pose is not finite.
    """
    if spec.conditioning is Conditioning.COMMANDED:
        return action
    change = np.diff(proprio[..., :POSE], axis=-2)
    change[..., 3:] = _turned(change[..., 3:], proprio[..., 1:, 3:POSE])
    if not np.isfinite(change).all():
        raise WorldModelError("clip.proprio: expected finite poses, got NaN or infinity; remove that episode")
    motion: Float32 = np.concatenate([change / MOTION_UNIT, action[..., POSE:]], axis=-1, dtype=np.float32)
    return motion


def _turned(change: Float32, after: Float32) -> Float32:
    """The smaller change to rotation vectors `after` (..., 3): a full turn back they name the same rotation."""
    angle = np.linalg.norm(after, axis=-1, keepdims=True)
    around = change - 2.0 * np.pi * after / np.maximum(angle, 1e-6)
    shorter = np.linalg.norm(around, axis=-1, keepdims=True) < np.linalg.norm(change, axis=-1, keepdims=True)
    smaller: Float32 = np.where(shorter, around, change)
    return smaller


def only_commanded(spec: WorldModelSpec, place: str) -> None:
    """Raise WorldModelError where a model would need readings of actions that nobody has taken."""
    if spec.conditioning is not Conditioning.COMMANDED:
        raise WorldModelError(
            f"{place}: this world model is told the measured motion, which nobody has measured for actions that were "
            "never taken; train one with model.conditioning=COMMANDED for it"
        )


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
