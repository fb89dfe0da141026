"""From a dataset's frame to a store's image: crop, then resize."""

from __future__ import annotations

import numpy as np
from PIL import Image as PilImage

from rl.replay.lerobot.errors import DatasetError
from rl.replay.lerobot.mapping import Crop, View
from robot.types import Image


def fit_image(frame: Image, view: View) -> Image:
    """The frame (H, W, 3) as `view` stores it; smaller by averaging over areas, larger by interpolation."""
    left, top, right, bottom = _box(frame.shape[0], frame.shape[1], view)
    part = frame[top:bottom, left:right]
    if part.shape[:2] == (view.height, view.width):
        return np.ascontiguousarray(part)
    # Hamming is as sharp as plain averaging but does not shift edges at uneven ratios, as that does.
    kernel = PilImage.Resampling.HAMMING
    return np.asarray(
        PilImage.fromarray(np.ascontiguousarray(part)).resize((view.width, view.height), kernel)
    )


def _box(height: int, width: int, view: View) -> tuple[int, int, int, int]:
    """left, top, right, bottom [px] of what is kept."""
    if view.box:
        top, left, box_height, box_width = view.box
        if top + box_height > height or left + box_width > width:
            raise DatasetError(
                f"mapping: {view.feature}: the box {list(view.box)} leaves the frame of {height} x {width} px"
            )
        return left, top, left + box_width, top + box_height
    match view.crop:
        case Crop.NONE:
            return 0, 0, width, height
        case Crop.CENTER:
            kept_width = min(width, round(height * view.width / view.height))
            kept_height = min(height, round(width * view.height / view.width))
            left, top = (width - kept_width) // 2, (height - kept_height) // 2
            return left, top, left + kept_width, top + kept_height
