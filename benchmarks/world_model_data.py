"""Episodes for the world model's benchmark: demonstrations, and what a learning policy does on the simulated arm.

An online episode is led by a blend of the noisy scripted expert and a slow random walk of the action, one blend for
each episode: near-success, failure and wandering are all in it. Whole episodes are held out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rl.build import make_schema
from rl.demonstrations import record_demonstrations
from rl.evaluation import to_observation
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.replay.sampler import Holdout
from rl.replay.writer import StoreWriter
from rl.schemas import CorrectionConfig, DemosConfig
from robot.env import RobotEnv
from robot.factory import RobotConfig, make_expert, make_robot_env
from robot.interfaces import RobotFault
from robot.sim.expert import ExpertNoise, ScriptedExpert
from robot.types import ACTION_DIM, Float32, Transition

ONLINE_SEED = 60_000_000  # layouts of online episodes: ONLINE_SEED + attempt
BLENDS = (0.0, 0.25, 0.5, 0.75, 1.0)  # share of the random walk in an online episode's actions


@dataclass(frozen=True)
class DataConfig:
    """How many episodes are trained on, and how many more are held out of each kind."""

    demos: int = 20
    online: int = 60
    held_out_demos: int = 4
    held_out_online: int = 12


@dataclass(frozen=True)
class Data:
    """Two stores and which of their episodes are held out."""

    demo: Path
    online: Path
    demo_holdout: Holdout
    online_holdout: Holdout


def ensure_data(directory: Path, robot: RobotConfig, config: DataConfig, seed: int = 0) -> Data:
    """Record what `directory` lacks."""
    demo, online = directory / "demo", directory / "online"
    env = make_robot_env(robot, seed=seed)
    try:
        wanted = DemosConfig(episodes=config.demos + config.held_out_demos)
        for _ in record_demonstrations(demo, env, wanted, CorrectionConfig(), seed=seed):
            pass
        with StoreWriter(online, make_schema(env)) as writer:
            for index in range(writer.num_episodes, config.online + config.held_out_online):
                rng = np.random.default_rng([seed, 9, index])
                expert = make_expert(env, rng, ExpertNoise(float(rng.uniform(0.3, 1.0))))
                blend = Blend(expert, BLENDS[index % len(BLENDS)], rng)
                _record(writer, env, blend, ONLINE_SEED + index)
    finally:
        env.close()
    return Data(
        demo,
        online,
        _last(demo, config.held_out_demos),
        _last(online, config.held_out_online),
    )


class Blend:
    """(1 - share) x the expert's action + share x a slow random walk, clipped to [-1, 1]."""

    def __init__(self, expert: ScriptedExpert, share: float, rng: np.random.Generator) -> None:
        self._expert, self._share, self._rng = expert, share, rng
        self._walk = np.zeros(ACTION_DIM)

    def reset(self) -> None:
        self._expert.reset()

    def act(self) -> Float32:
        self._walk = 0.8 * self._walk + 0.6 * self._rng.normal(0.0, 0.8, ACTION_DIM)
        action = (1.0 - self._share) * self._expert.act() + self._share * self._walk
        return np.clip(action, -1.0, 1.0).astype(np.float32)


def _record(writer: StoreWriter, env: RobotEnv, policy: Blend, seed: int) -> None:
    """One episode of `policy`, written step by step."""
    values, info = env.reset(seed=seed)
    policy.reset()
    observation = to_observation(values, info)
    writer.begin_episode(observation)
    ended = terminated = False
    while not ended:
        try:
            values, reward, terminated, truncated, info = env.step(policy.act())
        except RobotFault as fault:  # a wild push against the stop is part of what a learning policy does
            writer.end_episode(EpisodeOutcome(EndReason.FAULT, str(fault)))
            return
        following = to_observation(values, info)
        writer.add(
            Transition(
                observation=observation,
                action=info["action"],
                requested_action=info["requested_action"],
                reward=float(reward),
                next_observation=following,
                terminated=terminated,
                truncated=truncated,
                gripper_changed=info["gripper_changed"],
            )
        )
        observation, ended = following, terminated or truncated
    writer.end_episode(EpisodeOutcome(EndReason.SUCCESS if terminated else EndReason.TIMEOUT))


def _last(store: Path, count: int) -> Holdout:
    """Hold out the newest `count` episodes that may be sampled."""
    numbers = [info.episode for info in StoreReader(store).episodes() if not info.discarded]
    return Holdout(episodes=tuple(numbers[-count:]))
