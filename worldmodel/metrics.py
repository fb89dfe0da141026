"""Image metrics of imagined against real frames: PSNR, SSIM, LPIPS, sharpness; each per frame, averaged later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot.types import Array
from worldmodel.lpips import Lpips

Frames = NDArray[np.uint8]  # (..., H, W, 3) RGB
CHUNK = 32  # frames whose SSIM maps are in memory at once
# Frames that are equal to the last bit still carry the error of rounding to uint8, a variance of 1/12 level^2.
# So their PSNR is 58.9 dB and not infinite, which no mean would survive.
ROUNDING_MSE = 1.0 / 12.0 / 255.0**2


class Convention(Enum):
    """How PSNR and SSIM are taken, for figures that are to be compared with others'.

    RGB: on colours; SSIM over a Gaussian 11x11 window, sigma 1.5, population covariance, only where the window fits
    (Wang et al. 2004). IRASIM: on OpenCV's gray levels; SSIM over a uniform 7x7 window, sample covariance, as
    scikit-image's default, which IRASim and the Bridge figures of Cosmos use.
    """

    RGB = "rgb"
    IRASIM = "irasim"


def psnr(predicted: Frames, actual: Frames, convention: Convention = Convention.RGB) -> Array:
    """10 log10(1 / MSE) in dB of each frame, values in [0, 1]: (..., H, W, 3) twice to (...)."""
    first, second = _prepare(predicted, actual, convention)
    error = np.square(first.astype(np.int32) - second)  # in whole levels, so that no sum is rounded
    mse = error.mean(axis=(-3, -2, -1), dtype=np.float64) / 255.0**2
    decibel: Array = -10.0 * np.log10(np.maximum(mse, ROUNDING_MSE))
    return decibel


def ssim(predicted: Frames, actual: Frames, convention: Convention = Convention.RGB) -> Array:
    """Structural similarity of each frame, in [-1, 1]: (..., H, W, 3) twice to (...)."""
    first, second = _prepare(predicted, actual, convention)
    window = _window(convention)
    shape = first.shape
    if min(shape[-3], shape[-2]) < len(window):
        raise ValueError(
            f"ssim: expected frames of at least {len(window)} px, got {shape[-3]}x{shape[-2]}; use larger frames"
        )
    flat = [frames.reshape(-1, *shape[-3:]) for frames in (first, second)]
    values = np.empty(len(flat[0]))
    for start in range(0, len(values), CHUNK):
        pair = [torch.tensor(frames[start : start + CHUNK]) for frames in flat]
        values[start : start + CHUNK] = _ssim(
            pair[0], pair[1], window, sample=convention is Convention.IRASIM
        ).numpy()
    return values.reshape(shape[:-3])


def sharpness(predicted: Frames, actual: Frames) -> Array:
    """Mean absolute difference of neighbouring pixels, predicted over actual, of each frame: 1 as sharp, < 1 blurred.

    NaN where the actual frame is of one colour.
    """
    _check(predicted, actual)
    detail = [_detail(frames) for frames in (predicted, actual)]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Array = np.where(detail[1] > 0, detail[0] / detail[1], np.nan)
    return ratio


@dataclass(frozen=True)
class FrameScores:
    """Scores of B x n frames of one view, each (B, n) float64; lpips is None where its weights are missing."""

    psnr: Array
    ssim: Array
    sharpness: Array
    lpips: Array | None = None

    def named(self) -> Mapping[str, Array]:
        """The scores that are there, by name."""
        scores = {"psnr": self.psnr, "ssim": self.ssim, "sharpness": self.sharpness}
        return scores if self.lpips is None else scores | {"lpips": self.lpips}


def score_frames(
    predicted: Frames,
    actual: Frames,
    lpips: Lpips | None = None,
    convention: Convention = Convention.RGB,
) -> FrameScores:
    """All metrics of (B, n, H, W, 3) uint8 frames of one view; LPIPS is always on colours."""
    return FrameScores(
        psnr=psnr(predicted, actual, convention),
        ssim=ssim(predicted, actual, convention),
        sharpness=sharpness(predicted, actual),
        lpips=None if lpips is None else lpips.distance(predicted, actual),
    )


def _check(predicted: Frames, actual: Frames) -> None:
    if predicted.shape != actual.shape or predicted.ndim < 3 or predicted.shape[-1] != 3:
        raise ValueError(
            f"metrics: expected two arrays (..., H, W, 3) of one shape, got {predicted.shape} and {actual.shape}"
        )
    if predicted.dtype != np.uint8 or actual.dtype != np.uint8:
        raise ValueError(
            f"metrics: expected uint8 frames, as they are stored, got {predicted.dtype} and {actual.dtype}"
        )


def _prepare(predicted: Frames, actual: Frames, convention: Convention) -> tuple[Frames, Frames]:
    _check(predicted, actual)
    match convention:
        case Convention.RGB:
            return predicted, actual
        case Convention.IRASIM:
            return _gray(predicted), _gray(actual)


def _gray(frames: Frames) -> Frames:
    weights = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601, as OpenCV rounds it
    gray: Frames = np.rint(frames @ weights).astype(np.uint8)[..., None]
    return gray


def _detail(frames: Frames) -> Array:
    values = frames.astype(np.int16)
    axes = (-3, -2, -1)
    down: Array = np.abs(np.diff(values, axis=-3)).mean(axis=axes)
    across: Array = np.abs(np.diff(values, axis=-2)).mean(axis=axes)
    return down + across


def _window(convention: Convention) -> Tensor:
    """The one-dimensional window; its outer product with itself is the window over the image."""
    match convention:
        case Convention.RGB:
            weights = torch.exp(-0.5 * (torch.arange(-5, 6, dtype=torch.float64) / 1.5) ** 2)
            return (weights / weights.sum()).float()
        case Convention.IRASIM:
            return torch.full((7,), 1.0 / 7.0)


def _slide(window: Tensor, size: int) -> Tensor:
    """The matrix (size - w + 1, size) that applies the window wherever it fits along one axis."""
    places = size - len(window) + 1
    matrix = torch.zeros(places, size)
    for offset, weight in enumerate(window):
        matrix.diagonal(offset)[:places] = weight
    return matrix


def _ssim(first: Tensor, second: Tensor, window: Tensor, *, sample: bool) -> Tensor:
    """Mean SSIM (N,) of (N, H, W, C) uint8 images.

    SSIM = (2 mx my + C1) (2 cov + C2) / ((mx^2 + my^2 + C1) (vx + vy + C2)), C1 = .01^2, C2 = .03^2.
    """
    # Around 0, where variances lose least to rounding: they do not care about an offset.
    x, y = (frames.movedim(-1, 1).float() / 255.0 - 0.5 for frames in (first, second))
    down, across = _slide(window, x.shape[-2]), _slide(window, x.shape[-1]).T

    def mean(values: Tensor) -> Tensor:
        return down @ values @ across

    with torch.autocast("cpu", enabled=False):
        mx, my = mean(x), mean(y)
        count = len(window) ** 2
        unbiased = count / (count - 1) if sample else 1.0
        vx, vy, cov = (
            unbiased * (mean(a * b) - c * d)
            for a, b, c, d in ((x, x, mx, mx), (y, y, my, my), (x, y, mx, my))
        )
        mx, my = mx + 0.5, my + 0.5
        c1, c2 = 0.01**2, 0.03**2
        similarity = (2 * mx * my + c1) * (2 * cov + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))
        return similarity.double().mean(dim=(1, 2, 3))
