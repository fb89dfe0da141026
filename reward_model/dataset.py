"""Frames of known outcome: what the classifier learns from, by whole episodes; from clips to batches."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from reward_model.interface import Readings, RewardModelError, check_known
from reward_model.labels import Labels
from robot.types import Float32, Label


class Origin(Enum):
    """Whether a camera or a world model made the frames."""

    REAL = "real"
    GENERATED = "generated"


@dataclass(frozen=True)
class KnownClip:
    """T frames in a row with what is known of each.

    images: view -> (T, H, W, 3) uint8. label (T,) int8, values of `Label`: the task is done at this instant.
    episode: name of the real episode behind it, also of a generated clip; the unit of hold-outs and intervals.
    readings: name -> (T,) float32, what the arm read at each frame; of a generated clip, in the real episode.
    """

    images: Mapping[str, NDArray[np.uint8]]
    label: Labels
    task: str
    episode: str
    origin: Origin = Origin.REAL
    readings: Readings = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {len(frames) for frames in self.images.values()} | {len(self.label)}
        lengths |= {len(values) for values in self.readings.values()}
        if len(lengths) != 1 or not self.images:
            raise RewardModelError(
                f"KnownClip {self.episode}: expected one length for label, views and readings, got {sorted(lengths)}"
            )


def label_frames(outcome: Label, frames: int, hold_steps: int, margin: int = 0) -> Labels:
    """(frames,) labels of an episode that ended in `outcome`; success is declared once it has held `hold_steps`.

    Success: the last hold_steps frames show it, those before do not; the `margin` frames just before are unknown, as
    where a person's key and the picture do not agree to a frame. Failure: the last hold_steps - 1 frames are unknown
    (success may have begun), all before are failures. Unknown outcome: all are unknown.
    """
    if frames < 1 or hold_steps < 1 or margin < 0:
        raise RewardModelError(
            f"label_frames: expected frames and hold_steps >= 1 and margin >= 0, got {frames}, {hold_steps}, {margin}"
        )
    label = np.full(frames, Label.UNKNOWN, np.int8)
    if outcome is Label.SUCCESS:
        first = max(0, frames - hold_steps)
        label[first:] = Label.SUCCESS
        label[: max(0, first - margin)] = Label.FAILURE
    elif outcome is Label.FAILURE:
        label[: max(0, frames - hold_steps + 1)] = Label.FAILURE
    return label


def hold_out(clips: Sequence[KnownClip], every: int) -> tuple[list[KnownClip], list[KnownClip]]:
    """(learned from, held out): about one of `every` episodes is held out whole, with all that was made of it.

    By a checksum of its name, so that an episode keeps its side as more are recorded.
    """
    if every < 2:
        raise RewardModelError(
            f"hold_out: expected every >= 2, so that something is learned from, got {every}"
        )
    sides: tuple[list[KnownClip], list[KnownClip]] = ([], [])
    for clip in clips:
        sides[zlib.crc32(clip.episode.encode()) % every == 0].append(clip)
    return sides


class FrameSampler:
    """Draws batches in which half of the frames show success; frames of unknown label are never drawn.

    generated_share: share of each half that comes from generated clips, where there are any of that label.
    Raises RewardModelError where one of the two labels is missing.
    """

    def __init__(self, clips: Sequence[KnownClip], generated_share: float) -> None:
        if not 0.0 <= generated_share <= 1.0:
            raise ValueError(f"generated_share: expected [0, 1], got {generated_share}")
        self._clips = list(clips)
        self._generated_share = generated_share
        self._places = {
            (label, origin): self._find(label, origin)
            for label in (Label.SUCCESS, Label.FAILURE)
            for origin in Origin
        }
        for label in (Label.SUCCESS, Label.FAILURE):
            if not self.count(label):
                raise RewardModelError(
                    f"reward model data: no frame of {label.name.lower()} among {len(clips)} clips; "
                    "record episodes that end so, or take in another store"
                )

    def count(self, label: Label, origin: Origin | None = None) -> int:
        """Frames of this label, of both origins by default."""
        kinds = Origin if origin is None else (origin,)
        return sum(len(self._places[label, kind]) for kind in kinds)

    def known(self, names: Sequence[str]) -> tuple[Float32, NDArray[np.bool_]]:
        """Readings `names` (N, R) of all frames of known label, and whether each shows success (N,).

        Raises RewardModelError where a clip lacks one of them.
        """
        for clip in self._clips:
            check_known(names, clip.readings)
        labels = np.concatenate([clip.label for clip in self._clips])
        table = np.stack(
            [np.concatenate([clip.readings[name] for clip in self._clips]) for name in names], axis=1
        )
        known = labels != Label.UNKNOWN
        return table[known], labels[known] == Label.SUCCESS

    def draw(
        self, n: int, rng: np.random.Generator, readings: Sequence[str] = ()
    ) -> tuple[dict[str, NDArray[np.uint8]], Float32, Float32]:
        """`n` frames, view -> (n, H, W, 3), their `readings` (n, R), and targets (n,): 1 success, 0 failure.

        The first half succeeds.
        """
        half = n // 2
        picks = np.concatenate(
            [self._pick(Label.SUCCESS, half, rng), self._pick(Label.FAILURE, n - half, rng)]
        )
        images = {
            view: np.stack([self._clips[clip].images[view][t] for clip, t in picks])
            for view in self._clips[0].images
        }
        table = np.array(
            [[self._clips[clip].readings[name][t] for name in readings] for clip, t in picks], np.float32
        )
        target = np.zeros(n, np.float32)
        target[:half] = 1.0
        return images, table, target

    def _pick(self, label: Label, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        real, generated = (self._places[label, origin] for origin in (Origin.REAL, Origin.GENERATED))
        share = self._generated_share if len(real) else 1.0
        imagined = round(share * n) if len(generated) else 0
        drawn = [
            places[rng.integers(len(places), size=count)]
            for places, count in ((real, n - imagined), (generated, imagined))
            if count
        ]
        return np.concatenate(drawn) if drawn else np.empty((0, 2), np.int64)

    def _find(self, label: Label, origin: Origin) -> NDArray[np.int64]:
        """(N, 2) clip and frame."""
        found = [
            np.stack([np.full(len(at), index), at], axis=1)
            for index, clip in enumerate(self._clips)
            if clip.origin is origin and len(at := np.flatnonzero(clip.label == label))
        ]
        return np.concatenate(found) if found else np.empty((0, 2), np.int64)
