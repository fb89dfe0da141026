"""Staging: a Batch from the mixer -> augmented tensors on the learner's device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl.agent import gripper
from rl.agent.augment import random_shift
from rl.agent.spec import GRIPPER_INDEX, AgentSpec
from rl.batch import Batch
from robot.types import Source

EXPERTS = (Source.DEMO, Source.CORRECTION)


@dataclass(frozen=True, slots=True)
class StagedObservation:
    """stacks: per view group (V * B, H, W, 3) uint8, view by view; proprio: (B, P) float32."""

    stacks: tuple[Tensor, ...]
    proprio: Tensor


@dataclass(frozen=True, slots=True)
class StagedStep:
    """What a loss needs besides observations: action (B, policy_dim), gripper command index and rest (B,).

    steps: control steps until the next observation. expert: 1 where a demonstration or a correction acted, or what was
    imagined is to be imitated.
    """

    action: Tensor
    gripper: Tensor
    steps: Tensor
    reward: Tensor
    not_terminated: Tensor
    gripper_changed: Tensor
    weight: Tensor
    expert: Tensor

    def first(self, rows: int) -> StagedStep:
        """The first `rows` of them."""
        return StagedStep(**{entry.name: getattr(self, entry.name)[:rows] for entry in fields(self)})


@dataclass(frozen=True, slots=True)
class StagedGoal:
    """proprio: (B, P) at the success of the row's episode; known: (B,) bool, False where there is none."""

    proprio: Tensor
    known: Tensor


class Staging:
    """Augments by random shifts of `pad` pixels, each view of each observation on its own, and uploads.

    experts: the sources whose actions are imitated; corrections always are.
    Image buffers are reused: a staged observation is valid until its slot ("now" or "next") is staged again.
    """

    def __init__(
        self, spec: AgentSpec, pad: int, device: torch.device, experts: Sequence[Source] = EXPERTS
    ) -> None:
        self._groups = spec.view_groups()
        self._indices = list(spec.policy_indices)
        self._pad = pad
        self._device, self._experts = device, list(experts)
        self._buffers: dict[tuple[bool, int], NDArray[np.uint8]] = {}

    def observation(self, batch: Batch, rng: np.random.Generator | None) -> StagedObservation:
        """The batch's observations; rng None leaves the images unshifted."""
        return self._stage(batch.images, batch.proprio, False, rng)

    def next_observation(self, batch: Batch, rng: np.random.Generator) -> StagedObservation:
        """The batch's next observations."""
        return self._stage(batch.next_images, batch.next_proprio, True, rng)

    def step(self, batch: Batch) -> StagedStep:
        """Actions, rewards, ends and weights. Truncation is left out on purpose: it never ends a return."""
        expert = batch.intervened | np.isin(batch.source, self._experts)
        action = torch.from_numpy(batch.action)
        return StagedStep(
            action=action[:, self._indices].to(self._device),
            gripper=gripper.command_index(action[:, GRIPPER_INDEX]).to(self._device),
            steps=self._column(batch.steps),
            reward=self._column(batch.reward),
            not_terminated=self._column(~batch.terminated),
            gripper_changed=self._column(batch.gripper_changed),
            weight=self._column(batch.weight),
            expert=self._column(expert),
        )

    def goal(self, batch: Batch) -> StagedGoal:
        """Where the batch's episodes ended in success."""
        proprio, known = torch.from_numpy(batch.goal_proprio), torch.from_numpy(batch.goal_known)
        return StagedGoal(proprio.to(self._device), known.to(self._device))

    def _column(self, values: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(values.astype(np.float32)).to(self._device)

    def _stage(
        self,
        images: Mapping[str, NDArray[np.uint8]],
        proprio: NDArray[np.float32],
        is_next: bool,
        rng: np.random.Generator | None,
    ) -> StagedObservation:
        rows = len(proprio)
        stacks = []
        for number, group in enumerate(self._groups):
            shape = (len(group) * rows, *images[group[0]].shape[1:])
            buffer = self._buffers.get((is_next, number))
            if buffer is None or buffer.shape != shape:
                buffer = self._buffers[is_next, number] = np.empty(shape, np.uint8)
            for index, view in enumerate(group):
                target = buffer[index * rows : (index + 1) * rows]
                if rng is None:
                    np.copyto(target, images[view])
                else:
                    random_shift(images[view], self._pad, rng, target)
            stacks.append(torch.from_numpy(buffer).to(self._device))
        return StagedObservation(tuple(stacks), torch.from_numpy(proprio).to(self._device))
