"""ChunkActor: the deterministic policy as the one evaluation code knows it, one action at a time."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rl.evaluation import EVAL_SEED, Evaluation, EvaluationResult
from rl.vla.inputs import InputBuilder
from rl.vla.policy import VLAPolicy
from robot.arm_env import ArmEnv
from robot.interfaces import RobotFault
from robot.types import Float32, Observation


class ChunkActor:
    """Takes a chunk from the policy and gives out its actions in turn."""

    def __init__(self, policy: VLAPolicy, builder: InputBuilder, task: str) -> None:
        self._policy, self._builder, self._task = policy, builder, task
        self._chunk: list[Float32] = []

    def forget(self) -> None:
        """An episode begins: the rest of the chunk belonged to another."""
        self._chunk.clear()

    def act(self, observation: Observation, *, noise: Float32) -> Float32:
        """The next action (A,). Raises ValueError for a stochastic one: groups are sampled by `Sampler`."""
        if noise.any():
            raise ValueError("ChunkActor: it only evaluates the mode; expected noise of zeros")
        if not self._chunk:
            actions = self._policy.mode(self._builder.build(self._task, [observation]))
            self._chunk = list(actions[0].float().cpu().numpy())
        return np.asarray(self._chunk.pop(0), np.float32)


class _ForgettingEnv(gym.Wrapper[dict[str, Any], Float32, dict[str, Any], Float32]):
    """Tells the actor when an episode begins."""

    def __init__(self, env: ArmEnv, actor: ChunkActor) -> None:
        super().__init__(env)
        self._actor = actor

    def reset(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        self._actor.forget()
        return super().reset(**options)


def evaluate_policy(
    policy: VLAPolicy, builder: InputBuilder, env: ArmEnv, task: str, episodes: int, seed: int = EVAL_SEED
) -> EvaluationResult:
    """Success over `episodes` fixed layouts, as `groundhog evaluate` has it; an episode with a fault has failed."""
    actor = ChunkActor(policy, builder, task)
    evaluation = Evaluation(_ForgettingEnv(env, actor), actor, episodes, seed=seed)
    while not evaluation.finished:
        try:
            evaluation.step()
        except RobotFault:
            env.hold()
            evaluation.fault()
    return evaluation.result()
