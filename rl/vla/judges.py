"""Judges of trajectories: cheap ones that look at what a world showed, and the robot's own word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from reward_model.calibration.scorers import Trust
from reward_model.interface import RewardModel, by_name
from reward_model.labels import Thresholds, label_clips
from rl.imagination.labels import scorer_version
from rl.vla.trajectory import Trajectory
from rl.vla.worlds import World
from robot.types import Label


class Judge(Protocol):
    """Scores what it is shown."""

    @property
    def version(self) -> int: ...

    def score(self, trajectories: Sequence[Trajectory]) -> list[float | None]:
        """One score in [0, 1] each; None where it cannot tell, never 0."""

    def state(self) -> dict[str, Any]:
        """JSON-able."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`."""


class RewardModelJudge:
    """A reward model per task; the score is the largest probability that held for the model's hold.

    proprio_names: by task, of the entries that observations hold.
    """

    def __init__(
        self,
        models: Mapping[str, RewardModel],
        thresholds: Mapping[str, Thresholds],
        proprio_names: Mapping[str, Sequence[str]],
    ) -> None:
        self._models, self._thresholds, self._names = models, thresholds, proprio_names

    @property
    def version(self) -> int:
        return sum(model.version for model in self._models.values())  # grows when any of them does

    def score(self, trajectories: Sequence[Trajectory]) -> list[float | None]:
        return [self._one(trajectory) for trajectory in trajectories]

    def _one(self, trajectory: Trajectory) -> float | None:
        model = self._models[trajectory.task]
        images = {
            view: np.stack([seen.images[view] for seen in trajectory.observations])[None]
            for view in model.views
        }
        proprio = np.stack([seen.proprio for seen in trajectory.observations])[None]
        score = model.score(images, by_name(proprio, self._names[trajectory.task]))
        found = label_clips(score, self._thresholds[trajectory.task])
        return None if np.isnan(found.score[0]) else float(found.score[0])

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class DistortionConfig:
    """How a judge that knows the outcome is made to err, in the ways of a learned one.

    low, high: score of a clear failure and of a success. near_miss: how much of the way to a success's score a failure
    gets that stops at the goal, falling with its distance by `near_m` metres. false_success: share of all failures
    that look like a success, at random. noise: standard deviation of every score. reversed: high means failure.
    """

    low: float = 0.15
    high: float = 0.85
    near_miss: float = 0.0
    near_m: float = 0.02
    false_success: float = 0.0
    noise: float = 0.0
    reversed: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.low < self.high <= 1.0 or self.near_m <= 0.0 or self.noise < 0.0:
            raise ValueError(
                f"distortion: expected 0 <= low < high <= 1, near_m > 0 and noise >= 0, got {self}"
            )
        if not (0.0 <= self.near_miss <= 1.0 and 0.0 <= self.false_success <= 1.0):
            raise ValueError(f"distortion: expected near_miss and false_success in 0..1, got {self}")


class DistortedJudge:
    """Takes the simulator's outcome and distorts it, for measurements in which other links are the truth."""

    version = 0

    def __init__(self, config: DistortionConfig, rng: np.random.Generator) -> None:
        self._config, self._rng = config, rng

    def score(self, trajectories: Sequence[Trajectory]) -> list[float | None]:
        return [self._one(trajectory) for trajectory in trajectories]

    def _one(self, trajectory: Trajectory) -> float | None:
        config = self._config
        draw, noise = self._rng.random(), self._rng.standard_normal()
        match trajectory.outcome:
            case Label.UNKNOWN:
                return None
            case Label.SUCCESS:
                seen = 1.0
            case Label.FAILURE:
                near = config.near_miss * np.exp(
                    -np.nan_to_num(trajectory.distance, nan=np.inf) / config.near_m
                )
                seen = 1.0 if draw < config.false_success else float(near)
        score = config.low + (config.high - config.low) * seen + config.noise * noise
        return float(np.clip(1.0 - score if config.reversed else score, 0.0, 1.0))

    def state(self) -> dict[str, Any]:
        return {"rng": self._rng.bit_generator.state}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]


class CheapScorer:
    """What the judge makes of imagined trajectories, and of the relived ones where they were executed."""

    trust = Trust.CHEAP
    seconds_per_score = 0.0

    def __init__(self, judge: Judge, world: World, tasks: Sequence[str]) -> None:
        self._judge, self._world, self._tasks = judge, world, tuple(tasks)

    @property
    def version(self) -> str:
        """Of judge and world; the same words as on the SAC path, which may share the calibrator."""
        world = sum(self._world.version(task) for task in self._tasks)  # grows when any of them does
        return scorer_version(self._judge.version, world)

    def score(self, trajectories: Sequence[Trajectory]) -> list[float | None]:
        """None also where the world model lost trust in itself: nobody knows how that would have ended."""
        executed = [one for one in trajectories if one.executed]
        relived = iter(self._world.relive(executed))
        shown = [next(relived) if one.executed else one for one in trajectories]
        scores: list[float | None] = [None] * len(shown)
        known = [index for index, one in enumerate(shown) if not one.lost and len(one)]
        for index, score in zip(known, self._judge.score([shown[i] for i in known]), strict=True):
            scores[index] = score
        return scores


class RobotScorer:
    """The outcome of an executed episode; None after a fault."""

    trust = Trust.TRUSTED
    version = "robot"

    def __init__(self, seconds_per_score: float) -> None:
        self.seconds_per_score = seconds_per_score

    def score(self, trajectories: Sequence[Trajectory]) -> list[float | None]:
        return [None if one.outcome is Label.UNKNOWN else float(one.outcome) for one in trajectories]
