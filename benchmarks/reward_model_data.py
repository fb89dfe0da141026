"""Episodes for the reward model's benchmark: successes, and failures that look like them.

Every episode draws who leads it. Near misses follow the demonstrator up to 5-30 mm short of success and stay there, or
drift sideways; they are what a reward model has to tell from the real thing. 5 mm are about one pixel at 64 px.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path

import numpy as np

from rl.build import make_schema
from rl.evaluation import to_observation
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.writer import StoreWriter
from robot.env import RobotEnv
from robot.factory import RobotConfig, make_expert, make_robot_env
from robot.interfaces import RobotFault
from robot.sim.expert import ExpertNoise, ScriptedExpert
from robot.sim.workcell import SimWorkcell
from robot.types import ACTION_DIM, Float32, Label, Transition

FIRST_SEED = 70_000_000  # layouts: FIRST_SEED + 100_000 * seed + episode
# Enough for the demonstrator; failures need not be longer.
MAX_STEPS = {"press": 30, "insert": 45, "pick_place": 60}


class Kind(Enum):
    """Who leads an episode."""

    EXPERT = "expert"
    SHORT = "short"  # stops short of success and stays
    DRIFT = "drift"  # a steady sideways error
    RANDOM = "random"
    NEAR = "near"  # led to within reach of success, then random motion that leans downwards, against whatever is there


Shares = Mapping[Kind, float]  # of all episodes

NEAR_MISSES: Shares = {Kind.EXPERT: 0.5, Kind.SHORT: 0.25, Kind.DRIFT: 0.15, Kind.RANDOM: 0.1}
# A policy that still learns moves like neither demonstrator nor near miss; a world model has to have seen such motion,
# in contact too, where most commands move nothing.
WIDE: Shares = {Kind.EXPERT: 0.25, Kind.SHORT: 0.15, Kind.DRIFT: 0.1, Kind.RANDOM: 0.2, Kind.NEAR: 0.3}


class Leader:
    """Leads one episode of a kind."""

    def __init__(self, kind: Kind, env: RobotEnv, rng: np.random.Generator) -> None:
        cell = env.workcell
        assert isinstance(cell, SimWorkcell)
        self._kind, self._rng, self._cell = kind, rng, cell
        noise = float(rng.uniform(0.1, 0.7 if kind is Kind.EXPERT else 0.4))
        self._expert: ScriptedExpert = make_expert(env, rng, ExpertNoise(noise))
        self._short = float(rng.uniform(0.005, 0.03))  # m before success
        angle = rng.uniform(0.0, 2.0 * np.pi)
        self._drift = rng.uniform(0.3, 0.8) * np.array([np.cos(angle), np.sin(angle)])
        self._arrived = False
        self._walk = np.zeros(ACTION_DIM)
        self._memory, self._deviation, self._lean = 0.8, 0.8, 0.0
        if kind is Kind.NEAR:
            self._short = float(rng.uniform(0.01, 0.1))
            self._memory, self._deviation, self._lean = rng.uniform((0.0, 0.2, 0.0), (0.8, 0.6, 0.5))

    def act(self) -> Float32:
        action = self._expert.act()
        self._arrived |= self._cell.task.progress(self._cell.world) < self._short
        match self._kind:
            case Kind.SHORT if self._arrived:
                action = self._rng.normal(0.0, 0.03, ACTION_DIM).astype(np.float32)
            case Kind.DRIFT:
                action[:2] += self._drift
            case Kind.RANDOM:
                action = self._walked()
            case Kind.NEAR if self._arrived:
                action = self._walked()
                action[2] -= self._lean
        return action.clip(-1.0, 1.0)

    def _walked(self) -> Float32:
        """The next action of a random walk that forgets."""
        fresh = np.sqrt(1.0 - self._memory**2) * self._rng.normal(0.0, self._deviation, ACTION_DIM)
        self._walk = self._memory * self._walk + fresh
        return self._walk.astype(np.float32)


def record(
    store: Path,
    robot: RobotConfig,
    episodes: int,
    seed: int,
    shares: Shares = NEAR_MISSES,
    extra_steps: int = 0,
) -> Path:
    """Record until `store` holds `episodes`; returns it. extra_steps: that an episode may last beyond `MAX_STEPS`."""
    env = make_robot_env(robot, seed=seed)
    env.robot.spec = replace(env.robot.spec, max_steps=MAX_STEPS[robot.task] + extra_steps)
    kinds = list(shares)
    try:
        with StoreWriter(store, make_schema(env)) as writer:
            for index in range(writer.num_episodes, episodes):
                rng = np.random.default_rng([seed, index])
                kind = kinds[rng.choice(len(kinds), p=list(shares.values()))]
                _episode(writer, env, Leader(kind, env, rng), FIRST_SEED + 100_000 * seed + index)
    finally:
        env.close()
    return store


def _episode(writer: StoreWriter, env: RobotEnv, leader: Leader, seed: int) -> None:
    values, info = env.reset(seed=seed)
    observation = to_observation(values, info)
    writer.begin_episode(observation)
    ended = terminated = False
    while not ended:
        try:
            values, reward, terminated, truncated, info = env.step(leader.act())
        except RobotFault as fault:
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
                label=Label.SUCCESS if terminated else Label.UNKNOWN,
            )
        )
        observation, ended = following, terminated or truncated
    writer.end_episode(EpisodeOutcome(EndReason.SUCCESS if terminated else EndReason.TIMEOUT))
