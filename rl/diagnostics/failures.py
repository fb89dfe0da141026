"""Contact sheet of failed evaluation episodes, for a person to see how the final policy fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image as PilImage
from PIL import ImageDraw

from rl.evaluation import FailedEpisode
from rl.pictures import save_png, strip
from robot.types import Image

COLUMNS = 12  # moments of an episode
TITLE_HEIGHT = 18  # pixels


class FailureSheet:
    """Keeps the first `limit` failed episodes as strips, one row per view, and writes them under each other."""

    def __init__(self, limit: int = 6) -> None:
        self._limit = limit
        self._strips: list[Image] = []

    def add(self, episode: FailedEpisode) -> None:
        """Take in one more episode; one without images or beyond the limit is left out."""
        if len(self._strips) == self._limit or not episode.frames or not episode.frames[0]:
            return
        images = {view: np.stack([frame[view] for frame in episode.frames]) for view in episode.frames[0]}
        title = f"evaluation episode {episode.index}: {episode.reason} ({len(episode.frames) - 1} steps)"
        self._strips.append(_titled(strip(images, COLUMNS), title))

    def save(self, path: Path) -> None:
        """Write the sheet as a PNG; without a failure that was filmed there is none."""
        if not self._strips:
            return
        width = max(picture.shape[1] for picture in self._strips)
        rows = [np.pad(s, ((0, 0), (0, width - s.shape[1]), (0, 0))) for s in self._strips]
        save_png(path, np.concatenate(rows))


def _titled(picture: Image, title: str) -> Image:
    """The picture below a line of text."""
    canvas = PilImage.new("RGB", (picture.shape[1], picture.shape[0] + TITLE_HEIGHT))
    canvas.paste(PilImage.fromarray(picture), (0, TITLE_HEIGHT))
    ImageDraw.Draw(canvas).text((4, 3), title, fill="white")
    return np.asarray(canvas)
