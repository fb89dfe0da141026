"""The nouns of imagination: where a clip starts, how its actions are chosen, and the clip itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol

from robot.types import Float32, Label, Observation
from worldmodel.counterfactual import BranchKind


class Origin(IntEnum):
    """Which store a start lies in."""

    DEMO = 0
    ONLINE = 1
    ANCHOR = 2  # recordings that nothing is learned from: their replays say what imagined labels are worth


@dataclass(frozen=True, slots=True)
class Start:
    """The observation before step `step` of episode `episode` in the store of `origin`."""

    origin: Origin
    episode: int
    step: int


@dataclass(frozen=True)
class ImaginedClip:
    """What would have happened: T + 1 observations, of which the first is real, and the T actions between them.

    action: (T, A) as executed. risk: (T,) of the world model, ordinal. truth: (T,) what a simulator knows of each
    step, UNKNOWN where nobody does. others: (K, T + 1, P) readings that may as well have come, None where they are
    known.
    """

    start: Start
    kind: BranchKind
    seed: int
    observations: Sequence[Observation]
    action: Float32
    risk: Float32
    truth: Sequence[Label]
    world_model_version: int
    others: Float32 | None = None

    def __len__(self) -> int:
        return len(self.action)

    def reading(self, proprio: Float32) -> ImaginedClip:
        """The same with the readings (T + 1, P) in the observations."""
        seen = [
            replace(observation, proprio=readings)
            for observation, readings in zip(self.observations, proprio, strict=True)
        ]
        return replace(self, observations=seen)


@dataclass(frozen=True)
class Futures:
    """One imagined step of B branches. executed: (B, A). risk: (B,). truth: (B,) labels of this step.

    over: (B,) whether a branch ended with this step; what follows it means nothing. lost: (B,) whether it ended before
    this step, which itself means nothing. others: (B, K, P) further draws of the readings, each of a path of its own;
    None where they are known.
    """

    observations: Sequence[Observation]
    executed: Float32
    risk: Float32
    truth: Sequence[Label]
    over: Sequence[bool]
    lost: Sequence[bool]
    others: Float32 | None = None


class Session(Protocol):
    """B branches that are imagined side by side, step by step."""

    @property
    def observations(self) -> Sequence[Observation]:
        """Where the branches begin, B of them."""

    def step(self, actions: Float32) -> Futures:
        """The futures of actions (B, A)."""


class Imaginer(Protocol):
    """Something that knows what would have happened: a video model, or the simulator itself."""

    @property
    def version(self) -> int:
        """Names what is imagined with; grows when it changes."""

    def begin(self, starts: Sequence[Start], seed: int) -> Session:
        """Branches from real states."""
