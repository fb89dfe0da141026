"""VLATrainer: one step of group-relative post-training; few groups are executed, the others imagined."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reward_model.calibration.correction import CorrectionLoop
from rl.vla.execution import Robot
from rl.vla.grpo import GRPO, GRPOConfig, informative, make_batch
from rl.vla.inputs import InputBuilder
from rl.vla.judges import Judge
from rl.vla.policy import PolicyError, VLAPolicy
from rl.vla.trajectory import Sampler, Trajectory
from rl.vla.worlds import GroupStart, World
from robot.types import Label

_log = logging.getLogger(__name__)

TRAIN_SEED = 300_000_000  # layouts of groups: TRAIN_SEED + 100_000 * (seed % 1000) + group


@dataclass(frozen=True)
class LoopConfig:
    """steps: of the trainer, each with `groups` groups of `group_size` trajectories of one task and start.

    executed_first: steps at the start whose groups are all executed, so that there is something to calibrate on.
    eval_every: steps between evaluations, 0 = before and after training only. eval_episodes, final_eval_episodes: per
    task; 0 at first = none but the final one. save_every: steps between checkpoints.
    """

    steps: int = 30
    groups: int = 8
    group_size: int = 8
    executed_first: int = 0
    eval_every: int = 0
    eval_episodes: int = 50
    final_eval_episodes: int = 100
    save_every: int = 1

    def __post_init__(self) -> None:
        if self.steps < 0 or self.groups < 1 or self.group_size < 2:
            raise ValueError(
                "loop: expected steps >= 0, groups >= 1 and group_size >= 2, since an advantage compares, got "
                f"{self.steps}, {self.groups}, {self.group_size}"
            )
        if min(self.executed_first, self.eval_every, self.eval_episodes) < 0:
            raise ValueError("loop: expected executed_first, eval_every and eval_episodes >= 0")
        if self.final_eval_episodes < 1 or self.save_every < 1:
            raise ValueError("loop: expected final_eval_episodes and save_every >= 1")


@dataclass(frozen=True)
class Parts:
    """What a trainer is made of. judge: the one inside `correction`, whose state is saved with the rest.

    scored_by: JSON-able, who imagines and who judges; what calibration knows is of them and of no others.
    """

    policy: VLAPolicy
    grpo: GRPO
    builder: InputBuilder
    robot: Robot
    world: World
    judge: Judge
    correction: CorrectionLoop[Trajectory]
    scored_by: Mapping[str, Any] = field(default_factory=dict)


class VLATrainer:
    """Draws starts, lets the robot or the world model continue them, corrects the scores, updates the policy."""

    def __init__(
        self, parts: Parts, tasks: Sequence[str], config: LoopConfig, grpo: GRPOConfig, seed: int
    ) -> None:
        self._parts, self._tasks, self._config, self._grpo = parts, list(tasks), config, grpo
        self._rng = np.random.default_rng([seed, 11])
        self._generator = torch.Generator().manual_seed(seed)
        self._sampler = Sampler(parts.policy, parts.builder, self._generator, grpo.temperature)
        self._first_layout = TRAIN_SEED + 100_000 * (seed % 1000)
        self._groups = 0
        self.steps = 0

    def step(self) -> dict[str, float]:
        """Draw, choose anchors before anything is scored, act, score and correct, filter, update."""
        starts = self._draw()
        chosen = self._choose(len(starts))
        kept = [i for i in range(len(starts)) if i in chosen or self._trusted(starts[i].task)]
        groups = self._act(starts, kept, chosen)
        anchored = [place for place, i in enumerate(kept) if i in chosen]
        corrected = self._parts.correction.step(groups, [starts[i].task for i in kept], anchored=anchored)
        teaching = informative(corrected.rewards, corrected.advantages, self._grpo.min_spread)
        batch = make_batch(groups, corrected.advantages, teaching)
        learned = {} if batch is None else self._parts.grpo.update(batch, self._rng)
        self.steps += 1
        return {
            **learned,
            **_summary([groups[i] for i in anchored], corrected.rewards, anchored),
            "vla/step": float(self.steps),
            "vla/groups_executed": float(len(anchored)),
            "vla/groups_imagined": float(len(kept) - len(anchored)),
            "vla/groups_shut": float(len(starts) - len(kept)),
            "vla/groups_teaching": float(len(teaching)),
            "vla/decisions": 0.0 if batch is None else float(len(batch)),
            "vla/robot_executions": float(self._parts.robot.executions),
            "vla/robot_seconds": self._parts.robot.seconds,
            "vla/robot_faults": float(self._parts.robot.faults),
            **self._calibration(),
        }

    def _draw(self) -> list[GroupStart]:
        first = self._first_layout + self._groups
        self._groups += self._config.groups
        tasks = self._rng.integers(len(self._tasks), size=self._config.groups).tolist()
        return [GroupStart(self._tasks[task], first + i) for i, task in enumerate(tasks)]

    def _choose(self, groups: int) -> set[int]:
        """The groups that will be executed."""
        if self.steps < self._config.executed_first:
            return set(range(groups))
        return set(self._parts.correction.choose(groups))

    def _trusted(self, task: str) -> bool:
        """Behind a closed gate nothing is imagined: nothing could be learned from it."""
        correction = self._parts.correction
        return not correction.calibrator.obeys_gate or correction.gate(task).value > 0.0

    def _act(
        self, starts: Sequence[GroupStart], kept: Sequence[int], chosen: set[int]
    ) -> list[list[Trajectory]]:
        """One group per kept start: first those of the robot, then the imagined ones side by side."""
        size, robot, world = self._config.group_size, self._parts.robot, self._parts.world
        executed = {
            i: robot.execute(starts[i].task, starts[i].layout, size, self._sampler)
            for i in kept
            if i in chosen
        }
        rest = [i for i in kept if i not in chosen]
        imagined = world.imagine([starts[i] for i in rest], size, self._sampler)
        of = executed | dict(zip(rest, imagined, strict=True))
        return [of[i] for i in kept]

    def _calibration(self) -> dict[str, float]:
        return {
            name.replace("calibration/", f"calibration/{task}/"): value
            for task in self._tasks
            for name, value in self._parts.correction.metrics(task).items()
        }

    @property
    def updates(self) -> int:
        """Optimiser steps so far."""
        return self._parts.grpo.updates

    @property
    def robot(self) -> Robot:
        """Counts what was executed."""
        return self._parts.robot

    def tensors(self) -> dict[str, Tensor]:
        """Policy, optimiser and the generator of its samples."""
        parts = {"policy": self._parts.policy.tensors(), "adam": self._parts.grpo.tensors()}
        named = {f"{part}.{name}": t for part, tensors in parts.items() for name, t in tensors.items()}
        return named | {"generator": self._generator.get_state()}

    def state(self) -> dict[str, Any]:
        """JSON-able: all else that a continued run needs to go on as if it had never stopped."""
        return {
            "steps": self.steps,
            "updates": self.updates,
            "groups": self._groups,
            "rng": self._rng.bit_generator.state,
            "robot": self._parts.robot.state(),
            "world": self._parts.world.state(),
            "judge": self._parts.judge.state(),
            "correction": self._parts.correction.state_dict(),
            "scored_by": dict(self._parts.scored_by),
        }

    def load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue from `tensors()` and `state()`; raises PolicyError where the policy is another one.

        Where others imagine or judge now, calibration begins anew.
        """
        if "generator" not in tensors:
            raise PolicyError("checkpoint: it holds no sampling generator; is it one of post-train-vla?")
        self._parts.policy.load_tensors(_part(tensors, "policy"))
        self._parts.grpo.load(_part(tensors, "adam"), int(state["updates"]))
        self._generator.set_state(tensors["generator"])
        self.steps, self._groups = int(state["steps"]), int(state["groups"])
        self._rng.bit_generator.state = state["rng"]
        self._parts.robot.load_state(state["robot"])
        self._parts.world.load_state(state["world"])
        self._parts.judge.load_state(state["judge"])
        correction = state["correction"]
        if state.get("scored_by") != self._parts.scored_by:
            _log.warning(
                "calibration begins anew: the checkpoint's is not known to be of these world models and judges; the "
                "gate opens when executed groups have spoken again"
            )
            correction = correction | {"calibrator": self._parts.correction.calibrator.state_dict()}
        self._parts.correction.load_state_dict(correction)


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}


def _summary(
    executed: Sequence[Sequence[Trajectory]], rewards: Sequence[np.ndarray], anchored: Sequence[int]
) -> dict[str, float]:
    """Success on the robot and mean calibrated score in imagination, of this step; NaN without any."""
    outcomes = [float(one.outcome) for group in executed for one in group if one.outcome is not Label.UNKNOWN]
    scores = [rewards[i][np.isfinite(rewards[i])] for i in range(len(rewards)) if i not in set(anchored)]
    known = np.concatenate(scores) if scores else np.empty(0)
    return {
        "vla/real_success": float(np.mean(outcomes)) if outcomes else float("nan"),
        "vla/imagined_score": float(known.mean()) if len(known) else float("nan"),
    }
