"""What a reward model must do: look at a clip and say, frame by frame, how probable it is that the task is done."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from robot.types import Float32

Images = Mapping[str, NDArray[np.uint8]]  # view -> (..., H, W, 3)
Readings = Mapping[str, Float32]  # entry of the proprio vector -> (...), SI units


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
    def readings(self) -> tuple[str, ...]:
        """The arm's readings that it needs beside the images; none where images are enough."""

    @property
    def version(self) -> int: ...

    def score(self, images: Images, readings: Readings | None = None) -> Float32:
        """view -> (B, T, H, W, 3) uint8 to success_prob (B, T) float32 in [0, 1]; NaN = unknown, never 0.

        readings: name -> (B, T) float32; those that it does not need are not looked at. Where one that it needs is not
        finite, the score is unknown. Raises RewardModelError for wrong or missing views and readings, sizes or types.
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


def check_readings(names: Sequence[str], readings: Readings | None, batch: int, length: int) -> Float32:
    """(B, T, R) of the readings `names`; raises RewardModelError where they do not fit clips of (batch, length)."""
    given = readings or {}
    check_known(names, given)
    for name in names:
        if given[name].shape != (batch, length) or given[name].dtype != np.float32:
            raise RewardModelError(
                f"readings[{name}]: expected ({batch}, {length}) float32 as there are frames, got "
                f"{given[name].shape} {given[name].dtype}"
            )
    if not names:
        return np.empty((batch, length, 0), np.float32)
    return np.stack([given[name] for name in names], axis=-1)


def check_known(names: Sequence[str], known: Collection[str]) -> None:
    """Raise RewardModelError where a model needs readings `names` that are not among the `known` ones."""
    missing = [name for name in names if name not in known]
    if missing:
        raise RewardModelError(
            f"readings: expected {list(names)}, {missing} are missing among {sorted(known)}; pass what the arm read "
            "beside the images, or train a reward model with other classifier.readings, [] for images alone"
        )


def by_name(proprio: Float32, names: Sequence[str]) -> Readings:
    """Proprio vectors (..., P) as readings, one per entry; raises RewardModelError where there are not P names."""
    if proprio.shape[-1] != len(names):
        raise RewardModelError(
            f"proprio: expected (..., {len(names)}) for {list(names)}, got {proprio.shape}"
        )
    return {name: proprio[..., index] for index, name in enumerate(names)}


def blank(images: Images) -> NDArray[np.bool_]:
    """(B, T): in some view all pixels of the frame are equal, as from a covered or dead camera; it shows nothing."""
    pixels = (-3, -2, -1)
    dead: NDArray[np.bool_] = np.any([f.max(pixels) == f.min(pixels) for f in images.values()], axis=0)
    return dead
