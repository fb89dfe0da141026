"""A toy arm whose episodes take one chunk: move left or right, as the instruction says. Milliseconds per episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from reward_model.calibration.anchors import AnchorConfig
from reward_model.calibration.calibrator import CalibrationConfig, Calibrator
from reward_model.calibration.correction import CorrectionConfig, CorrectionLoop
from reward_model.calibration.debias import DebiasConfig
from reward_model.calibration.scorers import ScorerPair
from rl.build import make_schema
from rl.replay.writer import StoreWriter
from rl.vla.execution import Robot
from rl.vla.grpo import GRPO, GRPOConfig
from rl.vla.inputs import InputBuilder
from rl.vla.judges import CheapScorer, Judge, RobotScorer
from rl.vla.policy import PolicySpec
from rl.vla.small import SmallConfig, SmallPolicy
from rl.vla.trainer import LoopConfig, Parts, VLATrainer
from rl.vla.trajectory import Recording, Sampler, Trajectory
from rl.vla.worlds import GroupStart
from robot.arm_env import ArmEnv, EnvFacts
from robot.clock import VirtualClock
from robot.interfaces import Clock, RobotFault
from robot.tasks import GripperMode
from robot.types import ACTION_DIM, Array, Float32, Label, Observation, ProprioSpec

PROPRIO = ProprioSpec(
    ("place", "noise"), np.zeros(2, np.float32), np.ones(2, np.float32), np.array([0.1, 0.0], np.float32)
)
CHUNK = 2
INSTRUCTIONS = {"left": "move to the left", "right": "move to the right"}


class ToyEnv(ArmEnv):
    """Success where the first entry of the first action goes the right way, far enough."""

    def __init__(self, task: str) -> None:
        self._task, self._clock = task, VirtualClock()
        self._first: float | None = None
        self._proprio = np.zeros(2, np.float32)
        self.fault_at: set[int] = set()  # numbers of episodes in which the arm stops
        self.episodes = 0
        self.observation_space = gym.spaces.Dict(
            {"proprio": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)}
        )
        self.action_space = gym.spaces.Box(-1.0, 1.0, (ACTION_DIM,), np.float32)

    @property
    def facts(self) -> EnvFacts:
        return EnvFacts(task=self._task, instruction=INSTRUCTIONS[self._task], gripper_mode=GripperMode.FIXED)

    @property
    def proprio_spec(self) -> ProprioSpec:
        return PROPRIO

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def gripper_command(self) -> float:
        return 0.0

    def hold(self) -> None: ...

    def end_episode(self) -> None: ...

    def along_action_axes(self, delta: Array) -> Array:
        return delta

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._proprio = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        self._first = None
        self.episodes += 1
        return {"proprio": self._proprio}, self._stamps()

    def step(self, action: Float32) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        if self.episodes - 1 in self.fault_at:
            raise RobotFault("stale_frame", "for the test")
        self._clock.sleep_until(self._clock.now() + 0.1)
        over = self._first is not None
        self._first = float(action[0]) if self._first is None else self._first
        way = self._first if self._task == "right" else -self._first
        success = over and way > 0.3
        info = {
            **self._stamps(),
            "action": action.astype(np.float32),
            "requested_action": action.astype(np.float32),
            "intervened": False,
            "gripper_changed": False,
            "success": success,
        }
        return {"proprio": self._proprio}, float(success), success, over and not success, info

    def _stamps(self) -> dict[str, Any]:
        return {"timestamp": self._clock.now(), "image_timestamps": {}}


class ToyWorld:
    """The toy itself as world model; `number` names its version."""

    def __init__(self) -> None:
        self.number = 0
        self.imagined = 0
        self._envs = {task: ToyEnv(task) for task in INSTRUCTIONS}

    def version(self, task: str) -> int:
        return self.number

    def imagine(self, starts: Sequence[GroupStart], size: int, sampler: Sampler) -> list[list[Trajectory]]:
        self.imagined += size * len(starts)
        return [[self._one(start, sampler) for _ in range(size)] for start in starts]

    def _one(self, start: GroupStart, sampler: Sampler) -> Trajectory:
        env = self._envs[start.task]
        values, _ = env.reset(seed=start.layout)
        recording = Recording(start.task, Observation({}, values["proprio"], 0.0))
        sampler.decide([recording])
        success = False
        while not recording.undecided:
            values, _, success, _, info = env.step(recording.next_action())
            recording.took(info["action"], Observation({}, values["proprio"], 0.0))
        return recording.finish(Label.SUCCESS if success else Label.FAILURE, executed=False)

    def relive(self, executed: Sequence[Trajectory]) -> list[Trajectory]:
        return list(executed)

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: Any) -> None: ...


def toy_policy(seed: int = 0) -> SmallPolicy:
    spec = PolicySpec((), (1, 1), PROPRIO, chunk=CHUNK, tokens=ACTION_DIM)
    config = SmallConfig(chunk=CHUNK, bins=5, text_dim=8, hidden=32)
    return SmallPolicy(config, spec, device=torch.device("cpu"), seed=seed)


def toy_builder(policy: SmallPolicy) -> InputBuilder:
    return InputBuilder(policy.spec, INSTRUCTIONS, dict.fromkeys(INSTRUCTIONS, PROPRIO))


def correction_config(fraction: float, min_pairs: int = 24) -> CorrectionConfig:
    return CorrectionConfig(
        anchors=AnchorConfig(fraction=fraction, min_per_step=int(fraction > 0.0)),
        calibration=CalibrationConfig(debias=DebiasConfig(min_pairs=min_pairs, refit_every=16)),
    )


class Toy:
    """A trainer of the toy with all its parts in reach."""

    def __init__(
        self,
        root: Path,
        judge: Judge,
        correction: CorrectionConfig,
        *,
        loop: LoopConfig | None = None,
        tasks: Sequence[str] = ("left", "right"),
        calibrator: Calibrator | None = None,
        on_close: Callable[[StoreWriter], object] = lambda writer: None,
        scored_by: Mapping[str, Any] | None = None,
    ) -> None:
        self.policy = toy_policy()
        self.envs = {task: ToyEnv(task) for task in tasks}
        self.writers = {
            task: StoreWriter(root / task, make_schema(env), durable=False) for task, env in self.envs.items()
        }
        self.robot, self.world = Robot(self.envs, self.writers, max_faults=3), ToyWorld()
        grpo = GRPOConfig(learning_rate=6e-3, minibatch=64)
        self.grpo = GRPO(self.policy, self.policy.reference(), grpo)
        self.builder = toy_builder(self.policy)
        scorers = ScorerPair(CheapScorer(judge, self.world, tasks), RobotScorer(1.0))
        self.correction = CorrectionLoop(scorers, correction, calibrator)
        parts = Parts(
            self.policy,
            self.grpo,
            self.builder,
            self.robot,
            self.world,
            judge,
            self.correction,
            scored_by or {},
        )
        self.trainer = VLATrainer(parts, tasks, loop or LoopConfig(groups=4), grpo, seed=0)

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()
