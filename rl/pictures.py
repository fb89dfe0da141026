"""Pictures of episodes: strips and contact sheets as PNG, films as mp4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image as PilImage
from PIL import ImageDraw

from robot.types import Image

TILE = 128  # pixels of a shown frame; smaller frames are enlarged without smoothing
HUMAN = (255, 140, 0)
POLICY = (60, 180, 75)


def tile(image: Image, size: int = TILE) -> Image:
    """The image at `size` x `size` pixels, nearest neighbour, so that what the policy sees is what is shown."""
    return np.asarray(PilImage.fromarray(image).resize((size, size), PilImage.Resampling.NEAREST))


def strip(
    images: Mapping[str, NDArray[np.uint8]], columns: int, marks: Sequence[bool] | None = None
) -> Image:
    """`columns` moments of an episode, evenly spread, one row per view; corrected moments get an orange frame.

    images: view -> (T, H, W, 3). Returns (rows * TILE, columns * TILE, 3).
    """
    length = min(len(frames) for frames in images.values())
    if length == 0:
        raise ValueError("expected at least one frame to show, got none")
    picks = np.unique(np.linspace(0, length - 1, min(columns, length)).round().astype(int))
    rows = [np.concatenate([tile(frames[i]) for i in picks], axis=1) for frames in images.values()]
    canvas = PilImage.fromarray(np.concatenate(rows, axis=0))
    if marks is not None:
        draw = ImageDraw.Draw(canvas)
        for column, i in enumerate(picks):
            if i < len(marks) and marks[i]:
                x = column * TILE
                draw.rectangle((x, 0, x + TILE - 1, canvas.height - 1), outline=HUMAN, width=4)
    return np.asarray(canvas)


def save_png(path: Path, image: Image) -> Path:
    """Write a PNG beside and rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp.png")
    PilImage.fromarray(image).save(beside)
    beside.rename(path)
    return path


def save_film(path: Path, images: Mapping[str, Sequence[Image] | NDArray[np.uint8]], fps: int = 10) -> Path:
    """Write an H.264 mp4 with the views side by side; raises ValueError without frames."""
    views = list(images.values())
    length = min((len(frames) for frames in views), default=0)
    if length == 0:
        raise ValueError(f"{path}: expected at least one frame per view, got none")
    size = 2 * TILE
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp.mp4")
    with av.open(str(beside), "w") as container:
        stream = container.add_stream("libx264", rate=Fraction(fps))
        stream.width, stream.height, stream.pix_fmt = size * len(views), size, "yuv420p"
        for i in range(length):
            picture = np.concatenate([tile(frames[i], size) for frames in views], axis=1)
            container.mux(
                stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24"))
            )
        container.mux(stream.encode())
    beside.rename(path)
    return path
