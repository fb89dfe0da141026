"""Imitation: the warm start of a policy, from demonstrations of one or more tasks with their instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rl.agent.adam import AdamGroup
from rl.replay.reader import StoreReader
from rl.vla.inputs import InputBuilder
from rl.vla.policy import PolicyError, PolicyInputs, PolicySpec, VLAPolicy, concatenate
from robot.types import Episode, Float32

HELD_COMMAND = "gripper_command"  # in the proprio: -1 closed, +1 open


@dataclass(frozen=True)
class ImitationConfig:
    """Demonstrations and how long they are imitated.

    path: a directory with one store per task, named after it; None lets the scripted demonstrator record `episodes`
    of each task with `noise` (0 = always the same clean motion, 1 = barely competent). steps: optimiser steps.
    """

    path: str | None = None
    episodes: int = 20
    noise: float = 0.25
    steps: int = 1000
    batch_size: int = 128
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        if self.episodes < 1 or self.steps < 0 or self.batch_size < 1 or self.learning_rate <= 0.0:
            raise ValueError(
                "imitation: expected episodes and batch_size >= 1, steps >= 0 and learning_rate > 0, got "
                f"{self.episodes}, {self.batch_size}, {self.steps}, {self.learning_rate}"
            )
        if not 0.0 <= self.noise <= 1.0:
            raise ValueError(f"imitation.noise: expected 0..1, got {self.noise}")


@dataclass(frozen=True)
class Lessons:
    """N decisions with the chunks that followed: actions (N, C, A), valid (N, C) False behind the episode's end."""

    inputs: PolicyInputs
    actions: torch.Tensor
    valid: torch.Tensor

    def __len__(self) -> int:
        return len(self.actions)


def read_lessons(readers: Mapping[str, StoreReader], spec: PolicySpec, builder: InputBuilder) -> Lessons:
    """Every step of every successful demonstration as a decision; readers by task. Raises PolicyError without any."""
    parts: list[tuple[PolicyInputs, Float32, np.ndarray]] = []
    for task, reader in readers.items():
        kept = [info.episode for info in reader.episodes() if info.success and not info.discarded]
        if not kept:
            raise PolicyError(
                f"imitation: no successful demonstration of {task}; record some with `groundhog record`"
            )
        for number in kept:
            episode = reader.episode(number)
            steps = len(episode)
            images = np.array([[episode.images[view][t] for view in spec.views] for t in range(steps)])
            inputs = builder.pack(task, images.astype(np.uint8, copy=False), episode.proprio[:steps])
            names = reader.schema.proprio.names
            actions, valid = chunks(held_gripper(episode, names), spec.chunk)
            parts.append((inputs, actions, valid))
    return Lessons(
        concatenate([inputs for inputs, _, _ in parts]),
        torch.from_numpy(np.concatenate([actions for _, actions, _ in parts])),
        torch.from_numpy(np.concatenate([valid for _, _, valid in parts])),
    )


def held_gripper(episode: Episode, proprio_names: Sequence[str]) -> Float32:
    """The actions (T, A) with the command that the gripper held after each step, where the robot tells it.

    A demonstrator commands a change once and then 0, "as it is"; what is to be imitated is the command that holds.
    """
    actions = episode.action.copy()
    if HELD_COMMAND in proprio_names:
        actions[:, -1] = np.sign(episode.proprio[1:, list(proprio_names).index(HELD_COMMAND)])
    return actions


def chunks(actions: Float32, length: int) -> tuple[Float32, np.ndarray]:
    """(T, A) to the chunk that begins at each step (T, C, A), and (T, C) where it is real; behind the end it is 0."""
    steps, width = actions.shape
    index = np.arange(steps)[:, None] + np.arange(length)
    valid = index < steps
    padded = np.concatenate((actions, np.zeros((length, width), np.float32)))
    return padded[np.minimum(index, steps)].astype(np.float32), valid


def imitate(
    policy: VLAPolicy, lessons: Lessons, config: ImitationConfig, rng: np.random.Generator
) -> Iterator[dict[str, float]]:
    """`steps` optimiser steps; yields the mean loss about every twentieth of them."""
    adam = AdamGroup(policy.trainable_parameters(), config.learning_rate, grad_clip=1.0)
    every, total = max(1, config.steps // 20), 0.0
    for step in range(1, config.steps + 1):
        rows = torch.from_numpy(rng.integers(len(lessons), size=config.batch_size))
        loss = policy.imitation_loss(lessons.inputs.rows(rows), lessons.actions[rows], lessons.valid[rows])
        if not bool(torch.isfinite(loss)):
            raise FloatingPointError(
                f"imitation: loss {float(loss.detach())} at step {step}; lower imitation.learning_rate"
            )
        adam.zero_grad()
        torch.autograd.backward(loss)
        adam.clip()
        adam.step()
        total += float(loss.detach())
        if step % every == 0:
            yield {"imitation/step": float(step), "imitation/loss": total / every}
            total = 0.0
