"""ArmEnv: what a learner needs of an environment beyond the Gymnasium API, whoever made the arm in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from robot.interfaces import Clock
from robot.tasks import GripperMode
from robot.types import ACTION_DIM, Array, Float32, ProprioSpec

ALL_MOTIONS = tuple(range(ACTION_DIM - 1))


@dataclass(frozen=True, kw_only=True, eq=False)
class EnvFacts:
    """What an environment does, for the agent and for the store of its data.

    active: entries of the action's six motions that move something. goal: as in TaskSpec, by names of the proprio.
    metadata: whatever else gives the numbers their meaning (frames, action scale), as JSON.
    """

    task: str
    instruction: str
    gripper_mode: GripperMode
    active: tuple[int, ...] = ALL_MOTIONS
    goal: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    metadata: Mapping[str, object] = field(default_factory=dict)


class ArmEnv(gym.Env[dict[str, Any], Float32], ABC):
    """An arm at a fixed control rate, with actions (7,) in [-1, 1]: translation, rotation, gripper (+1 opens).

    Observes `proprio` (P,) float32 and, where there are cameras, `images` (view -> (H, W, 3) uint8). `info` of reset
    and step: `timestamp` [s], `image_timestamps`. Of step also: `action` (7,) as executed, `requested_action`,
    `intervened`, `gripper_changed`, `success`, `clipped`, `period` [s], `overrun`; at a time limit `failure`, why in a
    few words. A step raises RobotFault where the arm cannot go on: the episode is over, the next reset begins anew.
    """

    @property
    @abstractmethod
    def facts(self) -> EnvFacts:
        """Task, gripper, and what gives the numbers their meaning."""

    @property
    @abstractmethod
    def proprio_spec(self) -> ProprioSpec:
        """Names and scales of the proprio vector."""

    @property
    @abstractmethod
    def clock(self) -> Clock:
        """The clock of the time stamps."""

    @property
    @abstractmethod
    def gripper_command(self) -> float:
        """The held gripper command: +1 open, -1 closed; 0 where there is none."""

    @abstractmethod
    def hold(self) -> None:
        """Stay where the arm is, at any moment, also twice."""

    @contextmanager
    def stopped_by(self, asked: Callable[[], bool]) -> Iterator[None]:
        """Within, `asked` is called all along the way to the start of an episode, if there is one.

        Where it is true the arm holds, and the reset raises RobotFault `operator_stop`.
        """
        yield

    @abstractmethod
    def end_episode(self) -> None:
        """The episode is over by the word of somebody outside: the arm holds, and `step` needs a `reset` first."""

    @abstractmethod
    def along_action_axes(self, delta: Array) -> Array:
        """A motion (6,) in [-1, 1] along base axes, as a person steers, as the action (6,) that moves so."""
