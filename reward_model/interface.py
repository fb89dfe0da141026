"""What a reward model must do: look at a clip and say, frame by frame, how probable it is that the task is done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from robot.types import Float32

Images = Mapping[str, NDArray[np.uint8]]  # view -> (..., H, W, 3)


class RewardModelError(ValueError):
    """A wrong input to a reward model, or a wrong file; the message names the place and the remedy."""


class RewardModel(Protocol):
    """Scores clips. `version` names the weights or the prompt; scores of two versions are not comparable."""

    @property
    def task(self) -> str:
        """The task whose success it judges."""

    @property
    def views(self) -> Mapping[str, tuple[int, int]]:
        """view -> (H, W) of the images that it needs."""

    @property
    def version(self) -> int: ...

    def score(self, images: Images) -> Float32:
        """view -> (B, T, H, W, 3) uint8 to success_prob (B, T) float32 in [0, 1]; NaN = unknown, never 0.

        Raises RewardModelError for wrong views, sizes or types.
        """

    def save(self, path: Path) -> None:
        """Write all that `load` needs, beside and renamed."""


def check_images(views: Mapping[str, tuple[int, int]], images: Images) -> tuple[int, int]:
    """(B, T) of clips that fit `views`; raises RewardModelError otherwise. Every model calls it first."""
    missing = sorted(set(views) - set(images))
    if missing:
        raise RewardModelError(
            f"views: expected {sorted(views)}, {missing} are missing among {sorted(images)}; "
            "score with the cameras that the model was trained on, or train a new one"
        )
    shapes = {images[view].shape[:2] for view in views}
    if len(shapes) != 1:
        raise RewardModelError(f"images: expected one (B, T) for all views, got {sorted(shapes)}")
    batch, length = shapes.pop()
    for view, (height, width) in views.items():
        frames = images[view]
        if frames.shape != (batch, length, height, width, 3) or frames.dtype != np.uint8:
            raise RewardModelError(
                f"images[{view}]: expected (B, T, {height}, {width}, 3) uint8, got {frames.shape} {frames.dtype}"
            )
    return batch, length


def blank(images: Images) -> NDArray[np.bool_]:
    """(B, T): in some view all pixels of the frame are equal, as from a covered or dead camera; it shows nothing."""
    pixels = (-3, -2, -1)
    dead: NDArray[np.bool_] = np.any([f.max(pixels) == f.min(pixels) for f in images.values()], axis=0)
    return dead
