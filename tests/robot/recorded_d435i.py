"""Recordings by synthetic D435i cameras, made with the vendor's library, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from robot.clock import WallClock
from robot.sim.d435i import SyntheticD435i, record
from robot.types import Image

WIDTH, HEIGHT, FPS = 320, 240, 30
SIZE = {"width": WIDTH, "height": HEIGHT, "warm_up": 0.1}  # keys of a CameraConfig that plays them


def scene(number: int) -> Image:
    """Image `number` of a recording: left half dark, right half bright, and a bar that moves."""
    image = np.full((HEIGHT, WIDTH, 3), 40, np.uint8)
    image[:, WIDTH // 2 :] = 200
    image[100:140, 4 * number % WIDTH :][:, :8] = 255
    return image


def make_recording(path: Path, seconds: float, camera: SyntheticD435i | None = None, fps: int = FPS) -> Path:
    """`seconds` of `scene`, in about as long."""
    images: Sequence[Image] = [scene(number) for number in range(round(seconds * fps))]
    record(path, images, fps, camera or SyntheticD435i(), WallClock())
    return path
