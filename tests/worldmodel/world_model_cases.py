"""A tiny world for world models: a bright square on a plain ground that goes where the action says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot.types import Clip, Float32
from worldmodel.clips import split
from worldmodel.flow_warp import NetworkConfig
from worldmodel.interface import ActionNormalisation, Context, WorldModelSpec
from worldmodel.trainer import OptimiserConfig
from worldmodel.warp_model import FlowWarpConfig

ACTION_DIM = 2
STEP = 3.0  # pixels of a 16-pixel picture that an action of 1 moves the square
EPISODE_STEPS = 20

TINY = FlowWarpConfig(
    network=NetworkConfig(pixels=16, stride=2, unshuffle=2, channels=[16, 32], embedding=16),
    optimiser=OptimiserConfig(learning_rate=6e-3, fit_steps=120, warmup_steps=10, ema=0.95),
    single_batch=32,
    unroll_batch=8,
    unroll=2,
    bfloat16=False,
)


def spec(views: dict[str, tuple[int, int]] | None = None, context_frames: int = 2) -> WorldModelSpec:
    return WorldModelSpec(
        views or {"top": (16, 16)}, ActionNormalisation.identity(ACTION_DIM), context_frames, max_horizon=6
    )


@dataclass(frozen=True)
class SquareWorld:
    """A ClipSource: `episodes` random walks, seen by every view at its own size."""

    views: dict[str, tuple[int, int]]
    episodes: int = 8
    seed: int = 0

    @property
    def size(self) -> int:
        return self.episodes * EPISODE_STEPS

    def sample(self, n: int, length: int, rng: np.random.Generator, history: int = 0) -> Clip:
        episode = rng.integers(self.episodes, size=n)
        return self.clip(episode, rng.integers(EPISODE_STEPS, size=n), length, history)

    def clip(
        self, episode: NDArray[np.int64], start: NDArray[np.int64], length: int, history: int = 0
    ) -> Clip:
        index = start[:, None] + np.arange(-history, length + 1)
        inside = np.clip(index, 0, EPISODE_STEPS)
        valid = np.diff(inside, axis=1) > 0
        action = np.stack(
            [
                self._walk(e)[1][np.minimum(i[:-1], EPISODE_STEPS - 1)]
                for e, i in zip(episode, inside, strict=True)
            ]
        )
        places = np.stack([self._walk(e)[0][i] for e, i in zip(episode, inside, strict=True)])
        return Clip(
            images={view: draw(places, size) for view, size in self.views.items()},
            proprio=places.astype(np.float32),
            action=np.where(valid[..., None], action, 0.0).astype(np.float32),
            reward=np.zeros(valid.shape, np.float32),
            terminated=np.zeros(valid.shape, np.bool_),
            valid=valid,
            episode=episode,
            step=start,
            history=history,
        )

    def _walk(self, episode: int) -> tuple[Float32, Float32]:
        """(T+1, 2) places in [0, 16) and (T, 2) actions of an episode."""
        rng = np.random.default_rng([self.seed, int(episode)])
        place, places, actions = rng.uniform(4, 12, 2), [], []
        for _ in range(EPISODE_STEPS):
            action = rng.uniform(-1, 1, 2)
            after = np.clip(place + STEP * action, 2, 14)
            places.append(place)
            actions.append((after - place) / STEP)
            place = after
        return np.array([*places, place], np.float32), np.array(actions, np.float32)


def draw(places: Float32, size: tuple[int, int]) -> NDArray[np.uint8]:
    """(..., H, W, 3) pictures of squares centred at `places` (..., 2)."""
    height, width = size
    y, x = (np.arange(height) + 0.5) * 16 / height, (np.arange(width) + 0.5) * 16 / width
    inside = (np.abs(y - places[..., 1:2])[..., :, None] < 3) & (
        np.abs(x - places[..., :1])[..., None, :] < 3
    )
    return np.where(inside[..., None], np.array([230, 120, 40]), np.array([60, 70, 80])).astype(np.uint8)


def held_out(
    model_spec: WorldModelSpec, n: int = 24, horizon: int = 4
) -> tuple[Context, Float32, dict[str, NDArray[np.uint8]]]:
    """Contexts, actions and true futures of walks that no training clip shows."""
    world = SquareWorld(dict(model_spec.views), seed=1)
    start = np.arange(n) % (EPISODE_STEPS - horizon - 1) + 1
    clip = world.clip(np.arange(n) % world.episodes, start, horizon, model_spec.context_frames - 1)
    context, future = split(clip, model_spec)
    return context, future.action, dict(future.images)


def mean_error(images: dict[str, NDArray[np.uint8]], truth: dict[str, NDArray[np.uint8]]) -> float:
    """Mean squared error over views, in levels squared."""
    return float(np.mean([np.square(images[v].astype(float) - truth[v]).mean() for v in truth]))
