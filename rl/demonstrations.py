"""Demonstrations: episodes led by the scripted expert or by a person, written into a store as they happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rl.build import make_schema
from rl.config import ConfigError
from rl.corrections import OnStep, make_teleop, make_window
from rl.evaluation import to_observation, to_transition
from rl.replay.journal import EndReason, EpisodeInfo, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from rl.schemas import CorrectionConfig, DemosConfig
from robot.arm_env import ArmEnv
from robot.factory import make_demonstrator
from robot.interfaces import Demonstrator, RobotFault, TeleopCommand, TeleopSource
from robot.types import ACTION_DIM, Observation, Source
from robot.wrappers import HumanIntervention

DEMO_SEED = 50_000_000  # layouts of demonstrations: DEMO_SEED + 1000 * seed + attempt
MAX_ATTEMPTS_PER_DEMO = 5


class ExpertTeleop:
    """The scripted expert as a correction device that is always engaged."""

    def __init__(self, expert: Demonstrator) -> None:
        self._expert = expert

    def reset(self) -> None:
        self._expert.reset()

    def read(self) -> TeleopCommand:
        action = self._expert.act().astype(np.float64)
        return TeleopCommand(delta=action[:6], gripper=float(action[6]), engaged=True)

    def stop_asked(self) -> bool:
        return False

    def close(self) -> None: ...


@dataclass(frozen=True)
class Attempt:
    """One recorded attempt and how many demonstrations there are now."""

    info: EpisodeInfo
    demonstrations: int
    wanted: int

    def describe(self) -> str:
        outcome = self.info.outcome
        why = f" ({outcome.detail}; kept on disk, not learned from)" if not self.info.success else ""
        return (
            f"demonstration {self.demonstrations}/{self.wanted}: {self.info.num_transitions} steps, "
            f"{outcome.reason.value}{why}"
        )


def record_demonstrations(
    path: Path,
    env: ArmEnv,
    config: DemosConfig,
    correction: CorrectionConfig,
    *,
    seed: int,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Attempt]:
    """Record until the store in `path` holds `config.episodes` successes, or the person says STOP; yields each attempt.

    An attempt that failed, or that a fault or an error ended, is journalled as discarded, with the reason: it stays on
    disk and is never sampled. Resumes a store that holds some already. Raises ConfigError where too many attempts fail.
    The device is closed at the end; `env` is the caller's.
    """
    with ExitStack() as end:
        teleop = _leader(env, correction, config.noise, seed)
        end.callback(teleop.close)
        led, show = HumanIntervention(env, teleop), make_window(correction.kind)
        writer = end.enter_context(StoreWriter(path, make_schema(env)))
        have = sum(1 for info in StoreReader(path).episodes() if info.success and not info.discarded)
        limit = writer.num_episodes + MAX_ATTEMPTS_PER_DEMO * config.episodes
        while have < config.episodes and not stop():
            if writer.num_episodes >= limit:
                raise ConfigError(
                    f"demos: only {have} of {config.episodes} demonstrations succeeded in {limit} attempts; "
                    "lower demos.noise, or record by hand"
                )
            layout = DEMO_SEED + 1000 * seed + writer.num_episodes
            info, stopped = _attempt(writer, led, env, layout, stop, show)
            have += info.success and not info.discarded
            yield Attempt(info, have, config.episodes)
            if stopped:
                return


def _leader(env: ArmEnv, correction: CorrectionConfig, noise: float, seed: int) -> TeleopSource:
    """Whoever leads: the person who holds the dead-man, or else the expert."""
    rng = np.random.default_rng([seed, 1])
    if not correction.kind.by_hand:
        return ExpertTeleop(make_demonstrator(env, rng, noise))
    teleop = make_teleop(correction, env, rng)
    assert teleop is not None
    return teleop


def _attempt(
    writer: StoreWriter,
    led: gym.Env[Any, Any],
    env: ArmEnv,
    seed: int,
    stop: Callable[[], bool],
    show: OnStep,
) -> tuple[EpisodeInfo, bool]:
    """One attempt in `led`, which is `env` with whoever leads; and whether the person ended the recording with it."""
    values, info = led.reset(seed=seed)
    observation = to_observation(values, info)
    show(observation, info)
    writer.begin_episode(observation)
    try:
        outcome, stopped = _lead(writer, led, observation, stop, show)
    except RobotFault as fault:  # such as a silent camera; the next reset waits, or asks the operator
        outcome, stopped = EpisodeOutcome(EndReason.DISCARDED, str(fault)), False
    except BaseException as error:
        with ExitStack() as end:  # last in, first out: the arm holds, whatever becomes of the recording
            end.callback(writer.discard_episode, f"{type(error).__name__}: {error}")
            end.callback(env.end_episode)
        raise
    try:
        env.end_episode()  # storing takes a while
    finally:
        recorded = writer.end_episode(outcome)
    return recorded, stopped


def _lead(
    writer: StoreWriter,
    led: gym.Env[Any, Any],
    observation: Observation,
    stop: Callable[[], bool],
    show: OnStep,
) -> tuple[EpisodeOutcome, bool]:
    """From the first observation to the end; returns the outcome, and whether the recording ends with it."""
    while not stop():
        values, reward, terminated, truncated, info = led.step(np.zeros(ACTION_DIM, np.float32))
        following = to_observation(values, info)
        step = to_transition(observation, following, float(reward), terminated, truncated, info, Source.DEMO)
        writer.add(replace(step, requested_action=step.action))  # a demonstration asks for what it does
        observation = following
        show(observation, info)
        if terminated or truncated:
            stopped = bool(info.get("stop"))
            if info["success"] and not info.get("discard"):
                return EpisodeOutcome(EndReason.SUCCESS), stopped
            why = "recording stopped" if stopped else "failed attempt"
            return EpisodeOutcome(EndReason.DISCARDED, why), stopped
    return EpisodeOutcome(EndReason.DISCARDED, "recording stopped"), True
