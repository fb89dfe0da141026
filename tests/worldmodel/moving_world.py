"""A world without physics: two cameras over textured pictures, which an action (7,) shifts; models that know it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
from scipy import ndimage

from robot.types import Clip, Float32
from worldmodel.interface import ActionNormalisation, Context, Imagined, WorldModelSpec, check_rollout

PIXELS = 32
STEP = 1.5  # px that an action of 1 moves the picture
SPEC = WorldModelSpec(
    {"wrist": (PIXELS, PIXELS), "side": (PIXELS, PIXELS)}, ActionNormalisation.identity(7), context_frames=2
)


def texture(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rough = ndimage.gaussian_filter(rng.normal(size=(96, 96, 3)), (2.0, 2.0, 0), mode="wrap")
    return np.clip(128 + 60 * rough / rough.std(), 0, 255)


TEXTURES = {"wrist": texture(0), "side": texture(1)}


def look(view: str, place: np.ndarray) -> np.ndarray:
    """What `view` sees at `place` (2,) px; the side view moves half as far."""
    return _sample(TEXTURES[view], place, view, "wrap")


def _sample(image: np.ndarray, place: np.ndarray, view: str, beyond: str) -> np.ndarray:
    """`image` moved by `place` px, bilinear; beyond its border it is wrapped or its edge repeated ("clip")."""
    shift = place * (1.0 if view == "wrist" else 0.5)
    whole = np.floor(shift).astype(int)
    y, x = shift - whole
    rows, columns = ((np.arange(-1, PIXELS) - w) for w in whole)
    near = image.take(rows, 0, mode=beyond).take(columns, 1, mode=beyond).astype(float)
    near = y * near[:-1] + (1 - y) * near[1:]
    near = x * near[:, :-1] + (1 - x) * near[:, 1:]
    return np.rint(near).clip(0, 255).astype(np.uint8)


def clips(count: int, length: int, seed: int, history: int = 1) -> Clip:
    """`count` clips, one from each of `count` episodes, with unhurried random actions; only two entries act."""
    rng = np.random.default_rng(seed)
    steps = history + length
    actions = np.zeros((count, steps, 7), np.float32)
    actions[..., :2] = np.clip(
        rng.normal(0, 0.5, (count, 1, 2)) + rng.normal(0, 0.3, (count, steps, 2)), -1, 1
    )
    start = rng.uniform(0, 96, (count, 1, 2))
    places = np.concatenate([start, start + STEP * np.cumsum(actions[..., :2], axis=1)], axis=1)
    images = {
        view: np.stack([[look(view, place) for place in path] for path in places]) for view in SPEC.views
    }
    proprio = np.zeros((count, steps + 1, 20), np.float32)
    proprio[..., :2] = places
    return Clip(
        images=images,
        proprio=proprio,
        action=actions,
        reward=np.zeros((count, steps), np.float32),
        terminated=np.zeros((count, steps), np.bool_),
        valid=np.ones((count, steps), np.bool_),
        episode=np.arange(count),
        step=np.full(count, history),
        history=history,
    )


class ShiftModel:
    """Shifts the last frame as the actions say; edges that come into view are smeared. blind: to its actions."""

    version = 7
    stochastic = False

    def __init__(self, *, blind: bool = False) -> None:
        self.spec = SPEC
        self.blind = blind
        self.rollouts: list[int] = []

    def adapt(self, clips: object, steps: int, rng: np.random.Generator) -> dict[str, float]:
        return {}

    def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
        check_rollout(self.spec, context, actions)
        self.rollouts.append(len(context))
        used = np.repeat(context.past_action, actions.shape[1], axis=1) if self.blind else actions
        paths = STEP * np.cumsum(used[..., :2], axis=1)
        images = {
            view: np.stack([_shifted(f[-1], path, view) for f, path in zip(frames, paths, strict=True)])
            for view, frames in context.images.items()
        }
        risk = np.repeat(np.arange(1.0, actions.shape[1] + 1, dtype=np.float32)[None], len(actions), axis=0)
        return Imagined(images, risk, self.version)

    def save(
        self, path: Path, scores: Mapping[str, float] | None = None, learned: Collection[str] | None = None
    ) -> None:
        raise NotImplementedError


def _shifted(frame: np.ndarray, path: np.ndarray, view: str) -> np.ndarray:
    return np.stack([_sample(frame, place, view, "clip") for place in path])
