"""Repetition: whether a camera goes on sending one image, as one that hangs does, or a bridge on its way."""

from __future__ import annotations

import math

import numpy as np

from robot.types import Image

COARSE = 16  # rows from one to the next of those compared first; in a live image they differ


class Repetition:
    """Compares each image (H, W, 3) with the last, byte for byte; the noise of a sensor makes no two equal."""

    def __init__(self, allowed: float) -> None:
        """allowed [s]: for so long an image may come again; infinite: for ever."""
        self.count = 0  # images equal to the one before
        self.frozen = False  # the newest has come again for longer than allowed
        self._allowed = allowed
        self._image: Image | None = None
        self._since = math.inf

    def add(self, image: Image, now: float) -> bool:
        """Take in the image that came at `now` [s]; returns `frozen`."""
        if self._image is None or not _equal(image, self._image):
            self._image, self._since, self.frozen = image, now, False
        else:
            self.count += 1
            self.frozen = now - self._since >= self._allowed
        return self.frozen


def _equal(image: Image, other: Image) -> bool:
    return np.array_equal(image[::COARSE], other[::COARSE]) and np.array_equal(image, other)
