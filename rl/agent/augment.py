"""Random shift of image batches, as in DrQ: pad by edge replication, crop at a random offset."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def random_shift(
    images: NDArray[np.uint8], pad: int, rng: np.random.Generator, out: NDArray[np.uint8]
) -> None:
    """Write `images` (B, H, W, C) into `out`, each shifted by its own (dy, dx) in [-pad, pad] pixels.

    A positive shift moves the content down and to the right; uncovered pixels repeat the edge. pad 0 copies.
    """
    if images.shape != out.shape:
        raise ValueError(f"random_shift: expected out of shape {images.shape}, got {out.shape}")
    height, width = images.shape[1:3]
    if not 0 <= pad < min(height, width):
        raise ValueError(f"random_shift: expected 0 <= pad < {min(height, width)} pixels, got {pad}")
    if pad == 0:
        np.copyto(out, images)
        return
    shifts = rng.integers(-pad, pad + 1, (len(images), 2)).tolist()
    # Slice copies move whole rows; gathering by index arrays costs about five times as much.
    for source, target, (dy, dx) in zip(images, out, shifts, strict=True):
        top, bottom = max(0, dy), height + min(0, dy)
        left, right = max(0, dx), width + min(0, dx)
        target[top:bottom, left:right] = source[top - dy : bottom - dy, left - dx : right - dx]
        if left > 0:
            target[top:bottom, :left] = target[top:bottom, left : left + 1]
        elif right < width:
            target[top:bottom, right:] = target[top:bottom, right - 1 : right]
        if top > 0:
            target[:top] = target[top]
        elif bottom < height:
            target[bottom:] = target[bottom - 1]
