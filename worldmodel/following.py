"""Action following: does the commanded motion appear in the imagined frames? One number per model, without labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from robot.types import Array, Clip, Float32
from worldmodel.clips import split
from worldmodel.counterfactual import MOTION_DIM
from worldmodel.interface import Context, WorldModel, WorldModelError
from worldmodel.metrics import psnr

# Optic flow is measured in CELLS x CELLS parts of the image at each of these sizes: fine for small motions, and
# coarse for motions that a fine image loses.
FLOW_PIXELS = (16, 32)
CELLS = 4
FLAT = 1e-4  # mean squared gradient below which a cell is too plain to show motion
CHUNK = 512  # frame pairs at once


@dataclass(frozen=True)
class FollowingConfig:
    """How action following is measured."""

    steps: int = 4  # imagined per clip
    ridge: float = 0.1  # of the regression, in units of the features' variance
    visible: float = 0.3  # an action entry whose correlation in real frames is lower is not judged
    min_pairs: int = 200  # real frame pairs to fit the probe on

    def __post_init__(self) -> None:
        if self.steps < 1 or self.min_pairs < 2 or not self.ridge > 0 or not 0 < self.visible < 1:
            raise ValueError(
                "following: expected steps >= 1, min_pairs >= 2, ridge > 0 and visible in (0, 1), got "
                f"{self.steps}, {self.min_pairs}, {self.ridge}, {self.visible}"
            )


@dataclass(frozen=True)
class Following:
    """How well a model follows commands that have nothing to do with its context.

    score: imagined / real correlation over the visible entries, clipped to [0, 1]; NaN where no entry is visible.
    correlation: of the command with the motion that a probe sees in imagined frames, mean over visible entries;
    chance is 0. real_correlation: the same in real frames with their real actions, what the probe can see at best.
    gain_db: PSNR with the real actions minus PSNR with another clip's; 0 where actions do nothing.
    entries: which of the six motions are visible.
    """

    score: float
    correlation: float
    real_correlation: float
    gain_db: float
    entries: tuple[int, ...]


class MotionProbe:
    """Reads actions off successive frames: ridge regression from optic flow, fitted on real frames."""

    def __init__(self, frames: Mapping[str, NDArray[np.uint8]], action: Float32, ridge: float) -> None:
        """frames: view -> (N, 2, H, W, 3) uint8, before and after `action` (N, A)."""
        features = _flow_features(frames)
        self._mean, self._scale = features.mean(axis=0), features.std(axis=0) + 1e-6
        x = (features - self._mean) / self._scale
        self._offset = action.mean(axis=0, dtype=np.float64)
        gram = x.T @ x / len(x) + ridge * np.eye(x.shape[1])
        self._weights = np.linalg.solve(gram, x.T @ (action - self._offset) / len(x))

    def read(self, frames: Mapping[str, NDArray[np.uint8]]) -> Array:
        """The actions (N, A) that seem to lie between the frames, view -> (N, 2, H, W, 3)."""
        x = (_flow_features(frames) - self._mean) / self._scale
        action: Array = x @ self._weights + self._offset
        return action


def action_following(
    model: WorldModel,
    train: Clip,
    held_out: Clip,
    rng: np.random.Generator,
    config: FollowingConfig | None = None,
) -> Following:
    """Give each held-out context the actions of another clip, imagine, and look for them in the frames.

    A model that ignores its actions still moves as its training data usually do; but that has no correlation with a
    command drawn from elsewhere, so it scores 0. train: real clips that the probe is fitted on. held_out: B >= 2
    clips with K - 1 steps of history and at least `steps` after it. Raises WorldModelError where there is too little.
    """
    settings = config or FollowingConfig()
    context, future = split(held_out, model.spec)
    steps = settings.steps
    count, length = future.action.shape[:2]
    if count < 2 or length < steps:
        raise WorldModelError(
            f"action following: expected at least 2 clips of {steps} steps, got {count} of {length}; hold out more"
        )
    probe = _fit(model, train, settings)
    real_action, valid = future.action[:, :steps], future.valid[:, :steps]
    other = _elsewhere(count, rng)
    command = real_action[other]
    real = {view: frames[:, :steps] for view, frames in future.images.items()}
    followed = model.rollout(context, command).images
    repeated = model.rollout(context, real_action).images

    seen_real = _read(probe, context, real)[valid]
    entries = [
        (j, correlation)
        for j in range(min(MOTION_DIM, model.spec.action_dim))
        if (correlation := _correlation(seen_real[:, j], real_action[valid][:, j])) >= settings.visible
    ]
    given = valid[other]  # a padded command is no command
    seen = _read(probe, context, followed)[given]
    imagined = [_correlation(seen[:, j], command[given][:, j]) for j, _ in entries]
    correlation = float(np.mean(imagined)) if entries else math.nan
    best = float(np.mean([value for _, value in entries])) if entries else math.nan
    both = valid & given
    gains = [(psnr(repeated[v], real[v]) - psnr(followed[v], real[v]))[both] for v in real]
    return Following(
        score=float(np.clip(correlation / best, 0.0, 1.0)) if entries else math.nan,
        correlation=correlation,
        real_correlation=best,
        gain_db=float(np.mean(gains)),
        entries=tuple(j for j, _ in entries),
    )


def _fit(model: WorldModel, train: Clip, config: FollowingConfig) -> MotionProbe:
    missing = set(model.spec.views) - set(train.images)
    if missing:
        raise WorldModelError(f"action following: the training clips lack the views {sorted(missing)}")
    valid = train.valid
    if valid.sum() < config.min_pairs:
        raise WorldModelError(
            f"action following: expected at least {config.min_pairs} real frame pairs to fit the probe on, got "
            f"{int(valid.sum())}; pass more clips"
        )
    pairs = {
        view: np.stack([train.images[view][:, :-1][valid], train.images[view][:, 1:][valid]], axis=1)
        for view in model.spec.views
    }
    return MotionProbe(pairs, train.action[valid], config.ridge)


def _elsewhere(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """For each of `count` clips the index of another one, drawn at random: a cycle through a random order."""
    order = rng.permutation(count)
    other = np.empty(count, np.int64)
    other[order] = np.roll(order, 1)
    return other


def _read(probe: MotionProbe, context: Context, images: Mapping[str, NDArray[np.uint8]]) -> Array:
    """What the probe sees between the last real frame and each later one and its predecessor, (B, n, A)."""
    shown = {
        view: np.concatenate([context.images[view][:, -1:], frames], 1) for view, frames in images.items()
    }
    pairs = {view: np.stack([frames[:, :-1], frames[:, 1:]], axis=2) for view, frames in shown.items()}
    count, steps = next(iter(pairs.values())).shape[:2]
    flat = {view: frames.reshape(count * steps, *frames.shape[2:]) for view, frames in pairs.items()}
    return probe.read(flat).reshape(count, steps, -1)


def _correlation(first: Array, second: Array | Float32) -> float:
    """Pearson's; 0 where either is constant: no motion follows nothing."""
    if len(first) < 2 or first.std() < 1e-9 or second.std() < 1e-6:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def _flow_features(frames: Mapping[str, NDArray[np.uint8]]) -> Array:
    """Optic flow of frame pairs, view -> (N, 2, H, W, 3), as (N, F) features: all views, sizes and cells."""
    parts = []
    for pairs in frames.values():
        chunks = [pairs[start : start + CHUNK] for start in range(0, len(pairs), CHUNK)]
        for pixels in FLOW_PIXELS:
            parts.append(torch.cat([_flow(torch.tensor(chunk), pixels) for chunk in chunks]))
    features: Array = torch.cat(parts, dim=1).double().numpy()
    return features


def _flow(pairs: Tensor, pixels: int) -> Tensor:
    """Least-squares flow of each cell (Lucas and Kanade 1981): -[gx gx, gx gy; gx gy, gy gy]^-1 [gx gt; gy gt]."""
    gray = pairs.float().mean(dim=-1) / 255.0
    small = F.interpolate(gray, size=(pixels, pixels), mode="area")
    middle, change = small.mean(dim=1, keepdim=True), small[:, 1:] - small[:, :1]
    across = F.pad(middle[..., 2:] - middle[..., :-2], (1, 1)) / 2
    down = F.pad(middle[..., 2:, :] - middle[..., :-2, :], (0, 0, 1, 1)) / 2

    def cells(values: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(values, CELLS).flatten(1)

    xx, yy, xy = cells(across * across) + FLAT, cells(down * down) + FLAT, cells(across * down)
    xt, yt = cells(across * change), cells(down * change)
    determinant = xx * yy - xy * xy
    return torch.cat([(xy * yt - yy * xt) / determinant, (xy * xt - xx * yt) / determinant], dim=1)
