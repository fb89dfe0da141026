"""Imagination: real states -> clips of what would have happened, by actions near the real ones or of the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rl.imagination.clip import Futures, ImaginedClip, Imaginer, Start
from rl.imagination.starts import StartConfig, StartPool
from robot.types import ACTION_DIM, Clip, Float32, Label, Observation
from worldmodel.counterfactual import BranchKind, CounterfactualConfig, Motion, perturb_near


class ImaginingPolicy(Protocol):
    """Acts in imagination as on the robot."""

    def act_batch(self, observations: Sequence[Observation], *, noise: Float32 | None = None) -> Float32: ...


@dataclass(frozen=True)
class ImaginationConfig:
    """What is imagined.

    replay_share: of the branches, how many repeat what was really done; their outcome is known, so they tell what
    imagined labels are worth, and are not learned from. policy_share: of the others, how many follow the current
    policy; the rest perturb what was really done (0 is the paper's choice, 1 the default). clip_length: control steps.
    parallel: branches imagined side by side.
    """

    replay_share: float = 0.0
    policy_share: float = 1.0
    clip_length: int = 8
    parallel: int = 16
    starts: StartConfig = field(default_factory=StartConfig)
    local: CounterfactualConfig = field(default_factory=CounterfactualConfig)

    def __post_init__(self) -> None:
        if not (0.0 <= self.policy_share <= 1.0 and 0.0 <= self.replay_share < 1.0):
            raise ValueError(
                "imagination: expected policy_share in 0..1 and replay_share in [0, 1), got "
                f"{self.policy_share}, {self.replay_share}"
            )
        if self.clip_length < 1 or self.parallel < 1:
            raise ValueError(
                f"imagination: expected clip_length and parallel >= 1, got {self.clip_length}, {self.parallel}"
            )


class Imagination:
    """Imagines clips side by side. Each of them stops where it ends, where nothing real is left to perturb, where it is
    lost, or after `clip_length` steps; one that is lost at once, or finds no perturbation near the real path, is none.
    """

    def __init__(
        self,
        pool: StartPool,
        imaginer: Imaginer,
        motion: Motion,
        config: ImaginationConfig,
        rng: np.random.Generator,
    ) -> None:
        self._pool, self._imaginer, self._motion, self._config, self._rng = (
            pool,
            imaginer,
            motion,
            config,
            rng,
        )

    @property
    def version(self) -> int:
        """Of the world model."""
        return self._imaginer.version

    @property
    def num_episodes(self) -> int:
        """Real episodes that could be replayed."""
        return self._pool.num_episodes

    def replay(self, policy: ImaginingPolicy) -> list[ImaginedClip]:
        """At most `parallel` replays, to tell what imagined labels are worth; `policy` does not act in them."""
        starts = self._pool.draw_replays(self._config.parallel, self._rng)
        return self._imagine(starts, [BranchKind.REPLAY] * len(starts), policy)

    def imagine(self, policy: ImaginingPolicy) -> list[ImaginedClip]:
        """At most `parallel` clips. Raises EmptyShareError where there is no real state to start from."""
        starts = self._pool.draw(self._config.parallel, self._rng)
        return self._imagine(starts, [self._kind() for _ in starts], policy)

    def _imagine(
        self, starts: Sequence[Start], kinds: Sequence[BranchKind], policy: ImaginingPolicy
    ) -> list[ImaginedClip]:
        config = self._config
        seeds = self._rng.integers(2**31, size=len(starts)).tolist()
        sources = [
            None if kind is BranchKind.POLICY else self._pool.clip(start, config.clip_length)
            for start, kind in zip(starts, kinds, strict=True)
        ]
        session = self._imaginer.begin(starts, seeds[0])
        plans = [
            (None, seed) if source is None else self._planned(source, kind, seed)
            for source, kind, seed in zip(sources, kinds, seeds, strict=True)
        ]
        planned, seeds = [actions for actions, _ in plans], [seed for _, seed in plans]
        branches = [_Branch(observation) for observation in session.observations]
        for t in range(config.clip_length):
            for branch, plan in zip(branches, planned, strict=True):
                branch.over = branch.over or (plan is not None and t >= len(plan))
            if all(branch.over for branch in branches):
                break
            futures = session.step(_actions(branches, planned, t, policy))
            for index, branch in enumerate(branches):
                branch.take(futures, index)
        for branch, kind, source in zip(branches, kinds, sources, strict=True):
            if kind is BranchKind.REPLAY and source is not None:
                branch.learn_outcome(source)
        return [
            branch.clip(start, kind, seed, self._imaginer.version)
            for branch, start, kind, seed in zip(branches, starts, kinds, seeds, strict=True)
            if branch.actions
        ]

    def _kind(self) -> BranchKind:
        config = self._config
        # A share of 0 draws nothing, so that switching replays off leaves all else as it was.
        if config.replay_share and self._rng.random() < config.replay_share:
            return BranchKind.REPLAY
        return BranchKind.POLICY if self._rng.random() < config.policy_share else BranchKind.LOCAL

    def _planned(self, real: Clip, kind: BranchKind, seed: int) -> tuple[Float32, int]:
        """The real actions, as many as there were, or those actions perturbed inside the workspace; and the seed that
        gives the perturbation again.
        """
        actions = real.action[0, : int(real.valid[0].sum())]
        if kind is BranchKind.REPLAY:
            return actions, seed
        pose = self._motion.commanded_poses(real.proprio[:, 0])[0]
        rng = np.random.default_rng(seed)
        near = perturb_near(actions, rng, self._config.local, self._motion, pose)
        return (actions[:0], seed) if near is None else (near.actions, near.seed)


class _Branch:
    """A clip that grows."""

    def __init__(self, first: Observation) -> None:
        self.observations = [first]
        self.actions: list[Float32] = []
        self.over = False
        self._others: list[Float32] = []
        self._risk: list[float] = []
        self._truth: list[Label] = []

    def take(self, futures: Futures, index: int) -> None:
        self.over = self.over or bool(futures.lost[index])
        if self.over:
            return
        self.observations.append(futures.observations[index])
        self.actions.append(futures.executed[index])
        if futures.others is not None:
            self._others.append(futures.others[index])
        self._risk.append(float(futures.risk[index]))
        self._truth.append(futures.truth[index])
        self.over = bool(futures.over[index])

    def learn_outcome(self, source: Clip) -> None:
        """These were the real actions, so each step's real outcome is known."""
        steps = len(self.actions)
        succeeded = source.terminated[0, :steps] & (source.reward[0, :steps] > 0)
        self._truth = [Label.SUCCESS if ended else Label.FAILURE for ended in succeeded]

    def clip(self, start: Start, kind: BranchKind, seed: int, version: int) -> ImaginedClip:
        return ImaginedClip(
            start=start,
            kind=kind,
            seed=seed,
            observations=self.observations,
            action=np.stack(self.actions),
            risk=np.array(self._risk, np.float32),
            truth=self._truth,
            world_model_version=version,
            others=self._paths(),
        )

    def _paths(self) -> Float32 | None:
        """(K, T + 1, P): all begin in the first observation."""
        if not self._others:
            return None
        first = np.broadcast_to(self.observations[0].proprio, self._others[0].shape)
        return np.stack([first, *self._others], axis=1).astype(np.float32)


def _actions(
    branches: Sequence[_Branch], plans: Sequence[Float32 | None], t: int, policy: ImaginingPolicy
) -> Float32:
    """What each branch does next, (B, A); zeros for one that is over, whose future is not looked at."""
    actions = np.zeros((len(branches), ACTION_DIM), np.float32)
    free = []
    for index, (branch, plan) in enumerate(zip(branches, plans, strict=True)):
        if not branch.over and plan is None:
            free.append(index)
        elif not branch.over and plan is not None:
            actions[index] = plan[t]
    if free:
        actions[free] = policy.act_batch([branches[i].observations[-1] for i in free])
    return actions


def source_kind(kind: BranchKind) -> int:
    """The number by which a synthetic transition's provenance names the kind of its actions."""
    return list(BranchKind).index(kind)
