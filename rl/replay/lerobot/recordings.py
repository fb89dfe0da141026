"""A dataset's episodes as they are, without a mapping: for looking at them and for checking them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rl.replay.lerobot.columns import ACTION, INTERVENTION, OURS, REWARD
from rl.replay.lerobot.decode import episode_images
from rl.replay.lerobot.errors import EpisodeError
from rl.replay.lerobot.layout import DatasetLayout
from rl.replay.lerobot.mapping import View
from rl.replay.lerobot.rows import EpisodeRows, RowFiles
from rl.replay.quality import Finding, Recording
from robot.types import Array

_SHOWN_PX = 128  # frames are looked at in this size
TOLERANCE_S = 1e-3


@dataclass(frozen=True, eq=False)
class DatasetEpisode:
    """One episode for a table: its recording, and what its rows tell of its outcome; None where they do not."""

    recording: Recording
    success: bool | None
    corrections: int | None
    tasks: tuple[str, ...]


def read_episodes(layout: DatasetLayout) -> tuple[list[DatasetEpisode], list[Finding]]:
    """Every episode whose rows can be read, and why the others cannot."""
    files, episodes, torn = RowFiles(layout), [], []
    for entry in layout.episodes:
        try:
            episodes.append(_episode(files.episode(entry), layout))
        except EpisodeError as error:
            torn.append(Finding(entry.index, str(error)))
    return episodes, torn


def _episode(rows: EpisodeRows, layout: DatasetLayout) -> DatasetEpisode:
    success = None
    if rows.has(REWARD):
        success = bool(rows.values(REWARD).reshape(len(rows))[-1] > 0)
    corrections = None
    if rows.has(INTERVENTION):
        corrections = int((rows.values(INTERVENTION).reshape(len(rows)) > 0.5).sum())
    capture = {}
    for key in (key for key, feature in layout.features.items() if feature.is_image):
        column = f"{OURS}image_timestamp.{key.rpartition('.')[2]}"
        if rows.has(column):
            capture[key] = rows.values(column)
    return DatasetEpisode(
        recording=Recording(
            number=rows.entry.index,
            state=_observed(rows),
            action=rows.values(ACTION).reshape(len(rows), -1)[:-1] if rows.has(ACTION) else np.empty((0, 0)),
            timestamp=rows.values(OURS + "timestamp") if rows.has(OURS + "timestamp") else rows.timestamps(),
            capture=capture,
            period=1.0 / layout.fps,
            views=[
                key for key, feature in layout.features.items() if feature.is_image and not feature.is_depth
            ],
            frames=partial(_frames, rows),
        ),
        success=success,
        corrections=corrections,
        tasks=rows.entry.tasks,
    )


def _observed(rows: EpisodeRows) -> Array:
    """All numbers that describe the robot, (N, P)."""
    parts = [
        rows.values(name).reshape(len(rows), -1)
        for name, feature in rows.features.items()
        if name.startswith("observation.") and feature.dtype.startswith("float") and len(feature.shape) == 1
    ]
    return np.concatenate(parts, axis=1) if parts else np.empty((len(rows), 0))


def _frames(rows: EpisodeRows, key: str) -> NDArray[np.uint8]:
    return episode_images(rows, View(key, _SHOWN_PX, _SHOWN_PX), TOLERANCE_S)
