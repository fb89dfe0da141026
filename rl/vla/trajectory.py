"""Trajectory: what a policy decided, step by step, and what came of it; executed, simulated and imagined ones alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rl.vla.inputs import InputBuilder
from rl.vla.policy import Decisions, PolicyInputs, VLAPolicy, concatenate
from robot.types import Float32, Label, Observation


@dataclass(frozen=True)
class Trajectory:
    """T steps behind D decisions of C actions each.

    observations: T + 1. action: (T, A) as executed. inputs: D. tokens: (D, C, ...). log_prob: (D, C, K) when drawn.
    valid: (D, C) False for actions that were never taken. outcome: in the word of the robot or the simulator, UNKNOWN
    where nobody said. lost: the world model did not trust itself to the end. distance: left at the end [m], NaN where
    nobody measured. seconds: of robot time, 0 for what no robot did.
    """

    task: str
    observations: Sequence[Observation]
    action: Float32
    inputs: PolicyInputs
    tokens: Tensor
    log_prob: Tensor
    valid: Tensor
    outcome: Label
    executed: bool
    lost: bool = False
    distance: float = float("nan")
    seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.action)


class Sampler:
    """Draws chunks from a policy; all randomness comes from `generator`."""

    def __init__(
        self, policy: VLAPolicy, builder: InputBuilder, generator: torch.Generator, temperature: float
    ) -> None:
        self._policy, self._builder = policy, builder
        self._generator, self._temperature = generator, temperature

    def decide(self, recordings: Sequence[Recording]) -> None:
        """The next chunk of each recording, in one pass through the policy."""
        parts = [self._builder.build(one.task, [one.observation]) for one in recordings]
        inputs = concatenate(parts)
        decisions = self._policy.sample(inputs, self._generator, self._temperature)
        for index, (one, part) in enumerate(zip(recordings, parts, strict=True)):
            one.decided(part, decisions, index)


class Recording:
    """A trajectory that grows."""

    def __init__(self, task: str, first: Observation) -> None:
        self.task = task
        self.over = self.lost = False
        self._observations = [first]
        self._actions: list[Float32] = []
        self._inputs: list[PolicyInputs] = []
        self._tokens: list[Tensor] = []
        self._log_prob: list[Tensor] = []
        self._taken: list[int] = []
        self._chunk: Float32 = np.zeros((0, 0), np.float32)

    @property
    def observation(self) -> Observation:
        """The newest."""
        return self._observations[-1]

    @property
    def undecided(self) -> bool:
        """It goes on and needs a new chunk."""
        return not self.over and (not self._taken or self._taken[-1] == len(self._chunk))

    def decided(self, inputs: PolicyInputs, decisions: Decisions, index: int) -> None:
        """Begin chunk `index` of `decisions`, made from `inputs` (one decision)."""
        self._inputs.append(inputs)
        self._tokens.append(decisions.tokens[index].cpu())
        self._log_prob.append(decisions.log_prob[index].float().cpu())
        self._chunk = decisions.actions[index].float().cpu().numpy()
        self._taken.append(0)

    def next_action(self) -> Float32:
        """The chunk's next action (A,)."""
        action: Float32 = self._chunk[self._taken[-1]]
        return action

    def took(self, executed: Float32, observation: Observation) -> None:
        """That action was taken, as `executed`, and this is what followed."""
        self._taken[-1] += 1
        self._actions.append(executed)
        self._observations.append(observation)

    def finish(
        self,
        outcome: Label,
        *,
        executed: bool,
        distance: float = float("nan"),
        seconds: float = 0.0,
    ) -> Trajectory:
        """The trajectory; at least one decision was made. seconds: of robot time."""
        valid = torch.zeros(len(self._taken), len(self._chunk), dtype=torch.bool)
        for decision, taken in enumerate(self._taken):
            valid[decision, :taken] = True
        return Trajectory(
            task=self.task,
            observations=self._observations,
            action=np.array(self._actions, np.float32).reshape(len(self._actions), self._chunk.shape[1]),
            inputs=concatenate(self._inputs),
            tokens=torch.stack(self._tokens),
            log_prob=torch.stack(self._log_prob),
            valid=valid,
            outcome=outcome,
            executed=executed,
            lost=self.lost,
            distance=distance,
            seconds=seconds,
        )
