"""Behaviour cloning of the policy from stored episodes alone, and how near it comes to held-out ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl.agent.acting import MODE, ActingPolicy
from rl.agent.gripper import COMMANDS
from rl.agent.sac import SACAgent, SACConfig
from rl.agent.spec import GRIPPER_INDEX, AgentSpec, GripperControl
from rl.diagnostics.agreement import agreement
from rl.replay.arrays import empty_batch
from rl.replay.lerobot.importer import import_dataset
from rl.replay.lerobot.layout import is_dataset
from rl.replay.lerobot.mapping import MappingConfig
from rl.replay.reader import StoreReader
from rl.replay.sampler import Filter, Holdout, PartConfig, Split, TransitionSampler
from rl.replay.schema import StoreSchema
from rl.world_models.data import real_stores
from robot.types import ACTION_DIM, BadDataError, Episode, Float32

STILL = 1e-6  # entries of the action that are never larger are not controlled
ROWS = 256  # observations judged at once


@dataclass(frozen=True)
class ClonePolicyConfig:
    """Everything that `groundhog clone-policy` needs.

    data: a replay store, a run directory (its demonstrations and corrections), or a LeRobot dataset (mapping=...).
    out: default <data>/cloned, beside a dataset <data>_cloned. cpu_minutes: processor time; steps: optimiser steps; one
    of the two, the other stays null. views: default all. holdout: episodes that judge and are never trained on.
    judge_every: updates from one look at these episodes to the next; the weights that came nearest are kept, with 0 the
    last ones.
    """

    data: str = "???"
    out: str | None = None
    cpu_minutes: float | None = 10.0
    steps: int | None = None
    seed: int = 0
    device: str = "cpu"
    batch_size: int = 64
    judge_every: int = 100
    views: list[str] = field(default_factory=list)
    holdout: Holdout = field(default_factory=Holdout)
    agent: SACConfig = field(default_factory=SACConfig)
    mapping: MappingConfig = field(default_factory=MappingConfig)

    def __post_init__(self) -> None:
        if (self.cpu_minutes is None) == (self.steps is None):
            raise ValueError(
                "clone-policy: expected one of cpu_minutes and steps, write steps=<n> cpu_minutes=null"
            )
        if (self.cpu_minutes or 1.0) <= 0 or (1 if self.steps is None else self.steps) < 1:
            raise ValueError("clone-policy: expected cpu_minutes > 0 and steps >= 1")
        if self.batch_size < 2 or self.seed < 0:
            raise ValueError("clone-policy: expected batch_size >= 2 and seed >= 0")
        if self.judge_every < 0:
            raise ValueError(f"clone-policy: expected judge_every >= 0, got {self.judge_every}")


@contextmanager
def opened(config: ClonePolicyConfig, say: Callable[[str], None]) -> Iterator[list[PartConfig]]:
    """The stores behind `config.data` with the steps to clone; a dataset is imported for as long as this lasts."""
    data = Path(config.data)
    with TemporaryDirectory() as scratch:
        stores = [Path(scratch) / "store"] if is_dataset(data) else real_stores(data)
        if is_dataset(data):
            for line in import_dataset(data, stores[0], config.mapping).describe():
                say(line)
        # What a run's own policy did on the way is no example to follow; what a person corrected is.
        yield [
            PartConfig(
                StoreReader(store),
                filter=Filter.INTERVENED_ONLY if store == data / "real" else Filter.ALL,
                holdout=config.holdout,
            )
            for store in stores
        ]


def recorded_spec(schema: StoreSchema, actions: Float32, views: Sequence[str]) -> AgentSpec:
    """What a policy of this store sees and controls, by the actions (N, 7) that it is to clone.

    Entries that are always 0 stay 0; a gripper of whole commands is discrete. Raises BadDataError.
    """
    if schema.action_dim != ACTION_DIM:
        raise BadDataError(f"actions: expected {ACTION_DIM} entries, the store has {schema.action_dim}")
    if not schema.views:
        raise BadDataError("this store holds no images, so a policy would act blind; record or map a camera")
    unknown = [view for view in views if view not in schema.views]
    if unknown:
        raise BadDataError(f"views: {unknown[0]} was not recorded; choose among {', '.join(schema.views)}")
    used = np.abs(actions).max(axis=0) > STILL
    if not used[:GRIPPER_INDEX].any():
        raise BadDataError("actions: no entry of the motion ever differs from 0; check mapping.action")
    gripper = GripperControl.FIXED
    if used[GRIPPER_INDEX]:
        whole = bool(np.isin(actions[:, GRIPPER_INDEX], COMMANDS).all())
        gripper = GripperControl.DISCRETE if whole else GripperControl.CONTINUOUS
    return AgentSpec(
        views={view: schema.views[view] for view in views or schema.views},
        proprio=schema.proprio,
        gripper=gripper,
        active=tuple(np.flatnonzero(used[:GRIPPER_INDEX]).tolist()),
    )


@dataclass(frozen=True, eq=False)
class KeptPolicy:
    """Weights that are kept. update: after how many. distance: from the held-out actions, see `Cloning.distance`."""

    update: int
    distance: float
    tensors: dict[str, Tensor]


class Cloning:
    """One cloning. cpu_clock: processor seconds of this process. Raises BadDataError where the data do not suffice."""

    def __init__(
        self, config: ClonePolicyConfig, parts: Sequence[PartConfig], cpu_clock: Callable[[], float]
    ) -> None:
        self._config, self._parts, self._clock = config, parts, cpu_clock
        self.updates = 0
        self._kept: KeptPolicy | None = None
        self._sampler = TransitionSampler([replace(part, split=Split.TRAIN) for part in parts])
        self._check_split()
        trained = np.concatenate([_actions(part) for part in parts])
        self.schema = self._sampler.schema
        self.spec = recorded_spec(self.schema, trained, config.views)
        self._usual = _usual_action(trained, self.spec)
        self._executed = np.concatenate([episode.action[steps] for episode, steps in self._held_out()])
        self.agent = SACAgent(config.agent, self.spec, device=torch.device(config.device), seed=config.seed)

    def train(self) -> Iterator[tuple[float, dict[str, float]]]:
        """Cloning steps until the budget is spent: its share so far, and the metrics of the step."""
        config, begun = self._config, self._clock()
        rng = np.random.default_rng([config.seed, 1])
        drawn = empty_batch(self._sampler.schema, config.batch_size)
        seen = replace(
            drawn,
            images={view: drawn.images[view] for view in self.spec.views},
            next_images={view: drawn.next_images[view] for view in self.spec.views},
        )
        spent = 0.0
        while spent < 1.0:
            self._sampler.sample(config.batch_size, rng, out=drawn)
            metrics = self.agent.behaviour_cloning(seen)
            self.updates += 1
            if config.judge_every and self.updates % config.judge_every == 0:
                self.keep()
            if config.cpu_minutes is None:
                spent = self.updates / (config.steps or 1)
            else:
                spent = (self._clock() - begun) / (60.0 * config.cpu_minutes)
            yield min(1.0, spent), metrics

    def keep(self) -> KeptPolicy:
        """The nearest weights so far, or the present ones where they are, or where the last ones are asked for."""
        distance = self.distance(self.agent.robot_policy)
        if self._kept is None or not self._config.judge_every or distance < self._kept.distance:
            self._kept = KeptPolicy(self.updates, distance, self.agent.policy_tensors())
        return self._kept

    def judge(self, kept: KeptPolicy) -> list[dict[str, Any]]:
        """Agreement with the held-out steps: of the kept policy, and of two baselines that see no image.

        `mean`: the mean action of the training steps, with their most frequent gripper command. `previous`: the action
        executed one step before, at the first step of an episode the mean.
        """
        policy = ActingPolicy(self._config.agent, self.spec, device=self.agent.device, seed=self._config.seed)
        policy.load_tensors(kept.tensors)
        before = [
            np.concatenate([self._usual[None], episode.action[:-1]])[steps]
            for episode, steps in self._held_out()
        ]
        judged = {
            "policy": self._chosen(policy),
            "mean": np.tile(self._usual, (len(self._executed), 1)),
            "previous": np.concatenate(before),
        }
        return [
            {"by": name, **agreement(self.spec, action, self._executed)} for name, action in judged.items()
        ]

    def distance(self, policy: ActingPolicy) -> float:
        """Mean absolute error of the policy's held-out actions over all entries that it controls, the gripper's too."""
        error = np.abs(self._chosen(policy) - self._executed)
        controlled = set(self.spec.policy_indices)
        if self.spec.gripper is not GripperControl.FIXED:
            controlled.add(GRIPPER_INDEX)
        return float(error[:, sorted(controlled)].mean())

    def _held_out(self) -> Iterator[tuple[Episode, NDArray[np.int64]]]:
        """Held-out episodes, and the steps of each that count."""
        for part in self._parts:
            for number in _episodes(part, held_out=True):
                episode = part.reader.episode(number)
                everything = part.filter is Filter.ALL
                yield episode, np.arange(len(episode)) if everything else np.flatnonzero(episode.intervened)

    def _chosen(self, policy: ActingPolicy) -> Float32:
        """What the policy does (N, 7) in the held-out steps."""
        chosen: list[Float32] = []
        for episode, steps in self._held_out():
            for start in range(0, len(steps), ROWS):
                seen = [episode.observation(int(step)) for step in steps[start : start + ROWS]]
                narrowed = [
                    replace(one, images={view: one.images[view] for view in self.spec.views}) for one in seen
                ]
                chosen.append(policy.act_batch(narrowed, noise=MODE))
        return np.concatenate(chosen)

    def _check_split(self) -> None:
        kept = sum(len(_episodes(part, held_out=held)) for part in self._parts for held in (False, True))
        if kept < 2:
            raise BadDataError(
                f"{kept} usable episodes: expected at least 2, one to learn from and one to judge on; record more"
            )
        held_out = TransitionSampler([replace(part, split=Split.HELD_OUT) for part in self._parts])
        for size, what, remedy in (
            (self._sampler.size, "to learn from", "hold out fewer"),
            (held_out.size, "held out to judge on", "hold out one that is there, or record more"),
        ):
            if not size:
                raise BadDataError(
                    f"holdout: of {kept} episodes none is {what}; {remedy} (holdout.episodes=[...], holdout.every)"
                )


def _episodes(part: PartConfig, *, held_out: bool) -> list[int]:
    """The usable episodes of one side of the hold-out."""
    numbers = np.array([info.episode for info in part.reader.episodes() if not info.discarded], np.int64)
    chosen: list[int] = numbers[part.holdout.contains(numbers) == held_out].tolist()
    return chosen


def _actions(part: PartConfig) -> Float32:
    """The actions (N, A) of the part's training steps."""
    records = part.reader.records(part.reader.valid_starts)
    kept = ~part.holdout.contains(records["observation"]["episode"])
    if part.filter is Filter.INTERVENED_ONLY:
        kept &= records["transition"]["intervened"]
    actions: Float32 = records["transition"]["action"][kept]
    return actions


def _usual_action(actions: Float32, spec: AgentSpec) -> Float32:
    """The mean (7,) of actions (N, 7), where the gripper's entry is the most frequent command."""
    usual = actions.mean(axis=0)
    if spec.gripper is not GripperControl.FIXED:
        commands, counts = np.unique(np.round(actions[:, GRIPPER_INDEX]), return_counts=True)
        usual[GRIPPER_INDEX] = commands[counts.argmax()]
    result: Float32 = usual
    return result


def describe(row: dict[str, Any]) -> str:
    """A row of `Cloning.judge` as a line."""
    axes = ", ".join(f"{axis} {error:.3f}" for axis, error in row["per_axis"].items())
    gripper = "" if row["gripper_accuracy"] is None else f"; gripper right in {row['gripper_accuracy']:.0%}"
    return f"{row['by']:<9} mean absolute error {row['error']:.3f} ({axes}){gripper}"
