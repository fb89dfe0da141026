"""A Gymnasium environment that owes nothing to this project: images (3, H, W) of floats, 4 actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from robot.factory import ObsKind, RobotConfig
from robot.foreign import ForeignTask
from robot.types import Float32, ProprioSpec

PX = 32


class Gantry(gym.Env[Any, Any]):
    """A jaw that slides to a mark and closes there: `is_grasped`. Actions: 3 motions in centimetres, jaw force."""

    def __init__(self, *, pixels: bool) -> None:
        unbounded = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        spaces: dict[str, gym.Space[Any]] = {
            "jaw": unbounded,
            "mark": unbounded,
            "gap": gym.spaces.Box(0, 1, (1,), np.float64),
        }
        if pixels:
            spaces["top"] = gym.spaces.Box(0.0, 1.0, (3, PX, PX), np.float64)
        self.observation_space = gym.spaces.Dict(spaces)
        self.action_space = gym.spaces.Box(-3.0, 3.0, (4,), np.float64)
        self.pixels = pixels
        self.jaw, self.mark, self.gap = np.zeros(3), np.zeros(3), 1.0
        self.actions: list[Any] = []
        self.broken: Callable[[dict[str, Any]], None] = lambda _values: None  # what a test breaks
        self.ends: tuple[bool, bool] = (False, False)  # terminated, truncated of every step
        self.told: dict[str, Any] | None = None  # info instead of the true one

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.jaw, self.mark, self.gap = np.zeros(3), self.np_random.uniform(-0.1, 0.1, 3), 1.0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        self.jaw = self.jaw + 0.01 * action[:3]
        self.gap = float(np.clip(self.gap - 0.5 * action[3], 0.0, 1.0))
        grasped = self.gap == 0.0 and bool(np.abs(self.jaw - self.mark).max() < 0.02)
        info = {"is_grasped": grasped} if self.told is None else self.told
        return self._look(), -1.0, *self.ends, info

    def _look(self) -> dict[str, Any]:
        values: dict[str, Any] = {"jaw": self.jaw, "mark": self.mark, "gap": np.array([self.gap])}
        if self.pixels:
            values["top"] = np.zeros((3, PX, PX))
            for channel, place in ((0, self.jaw), (1, self.mark)):
                x, y = np.clip((place[:2] + 0.1) / 0.2 * (PX - 1), 0, PX - 1).astype(int)
                values["top"][channel, x, y] = 1.0
        self.broken(values)
        return values


@dataclass
class GantryExpert:
    """Slides there, then closes."""

    gantry: Gantry
    rng: np.random.Generator
    noise: float
    episodes: list[int] = field(default_factory=list)

    def reset(self) -> None:
        self.episodes.append(0)

    def act(self) -> Float32:
        way = (self.gantry.mark - self.gantry.jaw) / 0.03
        there = np.abs(way).max() < 0.3
        shake = self.rng.normal(0.0, 0.3 * self.noise, 3)
        return np.array([*np.clip(way + shake, -1, 1), 0, 0, 0, -1.0 if there else 1.0], np.float32)


def make_task(config: RobotConfig) -> ForeignTask:
    """What a user would write."""
    pixels = config.obs is ObsKind.PIXELS
    gantry = Gantry(pixels=pixels)
    names = ("jaw_x", "jaw_y", "jaw_z", "gap", *(() if pixels else ("mark_x", "mark_y", "mark_z")))

    def observe(values: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        images = {"top": (255 * values["top"].transpose(1, 2, 0)).astype(np.uint8)} if pixels else {}
        return images, np.concatenate(
            [values["jaw"], values["gap"], [] if pixels else values["mark"] - values["jaw"]]
        )

    return ForeignTask(
        env=gantry,
        name="gantry",
        instruction="close the jaw at the mark",
        max_steps=20,
        hold_steps=2,
        views={"top": (PX, PX)} if pixels else {},
        proprio=ProprioSpec(
            names,
            np.zeros(len(names), np.float32),
            np.full(len(names), 0.1, np.float32),
            np.zeros(len(names), np.float32),
        ),
        observe=observe,
        act=lambda action: np.append(3.0 * action[:3], -action[6]).astype(np.float64),
        success_key="is_grasped",
        active=(0, 1, 2),
        metadata={"maker": "nobody here"},
        expert=lambda rng, noise: GantryExpert(gantry, rng, noise),
    )


def make_without_expert(config: RobotConfig) -> ForeignTask:
    """The same, with nobody who demonstrates it."""
    task = make_task(config)
    return ForeignTask(
        **{name: getattr(task, name) for name in task.__dataclass_fields__ if name != "expert"}
    )


def make_nothing(config: RobotConfig) -> Gantry:
    """A mistake: the environment alone."""
    return Gantry(pixels=False)
