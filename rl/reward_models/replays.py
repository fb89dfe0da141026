"""Replays: real actions once more in the world model; generated clips whose outcome is known, for the reward model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from reward_model.dataset import KnownClip, Origin
from reward_model.interface import by_name
from rl.replay.sampler import gather_clips
from rl.reward_models.data import KnownEpisode
from robot.types import Array, Label
from worldmodel.clips import split
from worldmodel.interface import WorldModel
from worldmodel.metrics import psnr

BATCH = 32  # clips imagined at once


@dataclass(frozen=True)
class ReplayConfig:
    """world_model: a trained one; none: no generated clips. horizon: control steps of each, at most the model's.

    per_episode: replays of each episode; one ends with it, the others start anywhere before.
    min_psnr: dB; from the first frame that is less like the real one in some view, a replay's labels are unknown:
    there the model has lost the thread, and the real outcome says nothing about what it shows.
    """

    world_model: str | None = None
    horizon: int = 12
    per_episode: int = 2
    min_psnr: float = 12.0

    def __post_init__(self) -> None:
        if self.horizon < 1 or self.per_episode < 1 or self.min_psnr < 0.0:
            raise ValueError(
                "replay: expected horizon and per_episode >= 1 and min_psnr >= 0, got "
                f"{self.horizon}, {self.per_episode}, {self.min_psnr}"
            )


def replays(
    model: WorldModel, episodes: Sequence[KnownEpisode], config: ReplayConfig, rng: np.random.Generator
) -> list[KnownClip]:
    """Generated clips of n frames, frame t with label and readings of the real one that followed the same action."""
    horizon = min(config.horizon, model.spec.max_horizon)
    pending = []
    for episode in episodes:
        last = max(0, episode.info.num_transitions - horizon)
        others = rng.integers(last + 1, size=config.per_episode - 1).tolist()
        pending += [(episode, start) for start in (last, *others)]
    clips: list[KnownClip] = []
    for _, mine in groupby(pending, key=lambda item: id(item[0].reader)):
        chosen = list(mine)
        for first in range(0, len(chosen), BATCH):
            seed = int(rng.integers(2**31))
            clips += _imagined(model, chosen[first : first + BATCH], horizon, config.min_psnr, seed)
    return clips


def _imagined(
    model: WorldModel, chosen: Sequence[tuple[KnownEpisode, int]], horizon: int, min_psnr: float, seed: int
) -> list[KnownClip]:
    """Replays from a step of each episode, all of one store."""
    rows = np.array([episode.info.first_row + start for episode, start in chosen], np.int64)
    reader = chosen[0][0].reader
    real = gather_clips(reader, rows, horizon, model.spec.context_frames - 1)
    context, future = split(real, model.spec)
    imagined = model.rollout(context, future.action, seed)
    follows = future.valid & _alike(imagined.images, future.images, min_psnr)
    clips = []
    for index, (episode, start) in enumerate(chosen):
        label = np.full(horizon, Label.UNKNOWN, np.int8)
        known = episode.label[start + 1 : start + 1 + horizon]
        label[: len(known)] = known
        label[~follows[index]] = Label.UNKNOWN
        images = {view: frames[index] for view, frames in imagined.images.items()}
        readings = by_name(real.proprio[index, real.history + 1 :], reader.schema.proprio.names)
        clips.append(KnownClip(images, label, episode.task, episode.name, Origin.GENERATED, readings))
    return clips


def _alike(
    imagined: Mapping[str, NDArray[np.uint8]], real: Mapping[str, NDArray[np.uint8]], min_psnr: float
) -> NDArray[np.bool_]:
    """(B, n): every view of this frame and of all before it reaches `min_psnr`."""
    worst: Array = np.min([psnr(imagined[view], real[view]) for view in imagined], axis=0)
    alike: NDArray[np.bool_] = np.logical_and.accumulate(worst >= min_psnr, axis=1)
    return alike
