"""Evaluation: a policy on fixed layouts, one environment step at a time, by one code for all users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from rl.statistics import wilson_interval
from robot.feedback import Reason
from robot.interfaces import RobotFault
from robot.types import ACTION_DIM, Float32, Image, Label, Observation, Source, Transition

EVAL_SEED = 1_000_000  # layouts of evaluation episodes: EVAL_SEED + index, never used in training


class Actor(Protocol):
    """Anything that acts. noise: (7,), in standard deviations of a stochastic policy; all zero is its mode."""

    def act(self, observation: Observation, *, noise: Float32) -> Float32: ...


def to_observation(values: dict[str, Any], info: dict[str, Any]) -> Observation:
    """The Observation behind a Gymnasium observation and its info."""
    return Observation(
        images=values.get("images", {}),
        proprio=values["proprio"],
        timestamp=float(info["timestamp"]),
        image_timestamps=info["image_timestamps"],
    )


def to_transition(
    before: Observation,
    following: Observation,
    reward: float,
    terminated: bool,
    truncated: bool,
    info: dict[str, Any],
    source: Source = Source.REAL,
) -> Transition:
    """The Transition behind a Gymnasium step from `before` to `following`: the executed action is what is stored.

    Its label is success where the step ended in one, otherwise unknown.
    """
    return Transition(
        observation=before,
        action=info["action"],
        requested_action=info["requested_action"],
        reward=float(reward),
        next_observation=following,
        terminated=bool(terminated),
        truncated=bool(truncated),
        source=source,
        intervened=bool(info["intervened"]),
        gripper_changed=bool(info["gripper_changed"]),
        label=Label.SUCCESS if info["success"] else Label.UNKNOWN,
    )


@dataclass(frozen=True)
class FailedEpisode:
    """Episode `index` of an evaluation. reason: a few words. frames: the images at reset and after each step."""

    index: int
    reason: str
    frames: Sequence[Mapping[str, Image]]


@dataclass(frozen=True)
class EvaluationResult:
    """Outcome of an evaluation. cycle_steps: mean length of the successful episodes, in control steps.

    failures: how many episodes failed in each way, by the words of `FailedEpisode.reason`.
    """

    successes: int
    episodes: int
    cycle_steps: float
    mean_steps: float
    correction_rate: float
    failures: Mapping[str, int] = field(default_factory=dict)

    @property
    def success(self) -> float:
        return self.successes / max(1, self.episodes)

    def as_metrics(self, prefix: str = "eval") -> dict[str, float]:
        low, high = wilson_interval(self.successes, self.episodes)
        return {
            f"{prefix}/success": self.success,
            f"{prefix}/wilson_low": low,
            f"{prefix}/wilson_high": high,
            f"{prefix}/episodes": self.episodes,
            f"{prefix}/cycle_steps": self.cycle_steps,
            f"{prefix}/mean_steps": self.mean_steps,
            f"{prefix}/correction_rate": self.correction_rate,
            **{f"{prefix}/failures/{reason}": count for reason, count in self.failures.items()},
        }


@dataclass
class Evaluation:
    """Runs `episodes` episodes; `step()` takes one environment step, so that a worker stays responsive.

    Pass an environment without corrections to measure the policy alone; with a HumanIntervention wrapper the
    result counts corrected steps. An episode that a person discards is done again; STOP ends the evaluation with the
    episodes that are complete. noise: share of the policy's own spread that acts, 0 for its mode; the draws of an
    episode follow from its layout, and nothing else depends on them. `on_frame` receives the images of the first
    episode, for a film; `on_failure` each failed episode as it ends; `on_step` every observation with its info.
    """

    env: gym.Env[Any, Any]
    actor: Actor
    episodes: int
    noise: float = 0.0
    on_frame: Callable[[dict[str, Image]], None] | None = None
    on_failure: Callable[[FailedEpisode], None] | None = None
    on_step: Callable[[Observation, dict[str, Any]], None] | None = None
    seed: int = EVAL_SEED
    stopped: bool = False
    _draws: np.random.Generator = field(init=False, repr=False, compare=False)  # of the open episode
    _lengths: list[int] = field(default_factory=list)
    _succeeded: list[bool] = field(default_factory=list)
    _failures: Counter[str] = field(default_factory=Counter)
    _frames: list[Mapping[str, Image]] = field(default_factory=list)
    _corrected: int = 0
    _observation: Observation | None = None
    _length: int = 0
    _led: int = 0  # steps of the open episode that a person led

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ValueError(f"episodes: expected at least 1, got {self.episodes}")
        if not 0.0 <= self.noise <= 1.0:
            raise ValueError(f"noise: expected a share in [0, 1], got {self.noise}")

    @property
    def completed(self) -> int:
        """Episodes that have ended."""
        return len(self._lengths)

    @property
    def finished(self) -> bool:
        return self.stopped or len(self._lengths) >= self.episodes

    @property
    def under_way(self) -> bool:
        """An episode has begun and not ended."""
        return self._observation is not None

    def step(self) -> None:
        """One reset or one control step."""
        ended = terminated = False
        if self._observation is None:
            self._length = self._led = 0
            self._frames.clear()
            layout = self.seed + len(self._lengths)
            self._draws = np.random.default_rng([layout, 7])
            try:
                values, info = self.env.reset(seed=layout)
            except RobotFault as fault:
                if fault.name != Reason.OPERATOR_STOP:
                    raise
                self.stopped = True
                return
        else:
            noise = (self.noise * self._draws.standard_normal(ACTION_DIM)).astype(np.float32)
            action = self.actor.act(self._observation, noise=noise)
            values, _, terminated, truncated, info = self.env.step(action)
            self._length += 1
            self._led += bool(info["intervened"])
            ended = bool(terminated or truncated)
        observation = to_observation(values, info)
        if self.on_frame is not None and not self._lengths:
            self.on_frame(dict(observation.images))
        if self.on_failure is not None:
            self._frames.append(observation.images)
        if self.on_step is not None:
            self.on_step(observation, info)
        self._observation = observation
        if info.get("stop") or info.get("discard"):
            self.stopped = bool(info.get("stop"))
            self._observation = None
        elif ended:
            said = info.get("failure") or ("failure" if terminated else "timeout")
            self._close_episode("" if info["success"] else said)

    def interrupt(self) -> None:
        """Somebody outside stopped the arm: the open episode does not count, its layout comes again from a reset."""
        self._observation = None

    def fault(self) -> None:
        """The robot stopped with a named fault: the open episode counts as failed, it is not tried again."""
        self._close_episode("fault")

    def _close_episode(self, failure: str) -> None:
        """failure: why it failed, "" for a success."""
        if failure:
            self._failures[failure] += 1
            if self.on_failure is not None:
                self.on_failure(FailedEpisode(self.completed, failure, tuple(self._frames)))
        self._lengths.append(self._length)
        self._corrected += self._led
        self._succeeded.append(not failure)
        self._observation = None

    def result(self) -> EvaluationResult:
        """Statistics of the finished episodes."""
        cycles = [n for n, ok in zip(self._lengths, self._succeeded, strict=True) if ok]
        return EvaluationResult(
            successes=sum(self._succeeded),
            episodes=len(self._lengths),
            cycle_steps=float(np.mean(cycles)) if cycles else float("nan"),
            mean_steps=float(np.mean(self._lengths)) if self._lengths else float("nan"),
            correction_rate=self._corrected / max(1, sum(self._lengths)),
            failures=dict(self._failures),
        )
