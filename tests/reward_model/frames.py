"""A made-up task for the reward model's tests: success is a bright square in one view, and the other shows noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reward_model.dataset import KnownClip, Origin, label_frames
from robot.types import Label

VIEWS = {"wrist": (16, 16), "side": (12, 20)}


def clip(
    index: int, outcome: Label, *, length: int = 8, hold: int = 2, origin: Origin = Origin.REAL
) -> KnownClip:
    """Episode `index`; the square is there in the frames that are labelled as success."""
    rng = np.random.default_rng(index)
    label = label_frames(outcome, length, hold)
    images = {view: rng.integers(0, 60, (length, *size, 3), dtype=np.uint8) for view, size in VIEWS.items()}
    images["wrist"][label == Label.SUCCESS, 4:12, 4:12] = 230
    return KnownClip(images, label, "press", f"store/{index}", origin)


def clips(count: int, origin: Origin = Origin.REAL, first: int = 0) -> list[KnownClip]:
    """Successes and failures in turn."""
    outcomes = (Label.SUCCESS, Label.FAILURE)
    return [clip(index, outcomes[index % 2], origin=origin) for index in range(first, first + count)]


def batch(known: KnownClip) -> dict[str, NDArray[np.uint8]]:
    """The images of one clip as a batch of one."""
    return {view: frames[None] for view, frames in known.images.items()}
