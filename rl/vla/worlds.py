"""World models of the VLA path: they imagine groups for the policy, and relive what the robot executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from rl.imagination.clip import Start
from rl.imagination.starts import StartPool
from rl.imagination.video import VideoImaginer
from rl.vla.execution import distance_left
from rl.vla.trajectory import Recording, Sampler, Trajectory
from robot.env import RobotEnv
from robot.sim.branch import Moment, capture, restore
from robot.types import Float32, Image, Label, Observation
from worldmodel.interface import Context, WorldModel


@dataclass(frozen=True)
class GroupStart:
    """What the members of a group share. layout: seed of the scene, for who can set it up."""

    task: str
    layout: int


class World(Protocol):
    """Says what would happen."""

    def version(self, task: str) -> int:
        """Of the model behind a task; a new one makes scores incomparable."""

    def imagine(self, starts: Sequence[GroupStart], size: int, sampler: Sampler) -> list[list[Trajectory]]:
        """One group of `size` trajectories per start, each with one common first observation."""

    def relive(self, executed: Sequence[Trajectory]) -> list[Trajectory]:
        """What this world shows for actions that were executed, for the calibration of its judge."""

    def state(self) -> dict[str, Any]:
        """JSON-able."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`."""


class SimulatorWorld:
    """The simulator itself: a perfect world model, so that what is lost must be lost by the judge or the trainer.

    envs: environments of its own, by task. Members of a group are branches of one moment.
    """

    def __init__(self, envs: Mapping[str, RobotEnv]) -> None:
        self._envs = envs

    def version(self, task: str) -> int:
        """Physics does not change."""
        return 0

    def imagine(self, starts: Sequence[GroupStart], size: int, sampler: Sampler) -> list[list[Trajectory]]:
        """See World; all branches of all groups decide side by side."""
        branches = [
            [_Branch(start.task, moment) for _ in range(size)] for start, moment in self._begin(starts)
        ]
        everyone = [branch for group in branches for branch in group]
        while live := [branch for branch in everyone if not branch.recording.over]:
            sampler.decide([branch.recording for branch in live])
            for branch in live:
                branch.run_chunk(self._envs[branch.recording.task])
        return [[branch.finish() for branch in group] for group in branches]

    def relive(self, executed: Sequence[Trajectory]) -> list[Trajectory]:
        """The simulator repeats what happened."""
        return list(executed)

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None: ...

    def _begin(self, starts: Sequence[GroupStart]) -> list[tuple[GroupStart, Moment]]:
        begun = []
        for start in starts:
            env = self._envs[start.task]
            env.reset(seed=start.layout)
            begun.append((start, capture(env)))
        return begun


class _Branch:
    """A trajectory and the moment it has come to."""

    def __init__(self, task: str, moment: Moment) -> None:
        self.recording = Recording(task, moment.observation)
        self._moment = moment
        self._outcome, self._distance = Label.UNKNOWN, float("nan")

    def run_chunk(self, env: RobotEnv) -> None:
        restore(env, self._moment)
        while not (self.recording.over or self.recording.undecided):
            _, _, terminated, truncated, info = env.step(self.recording.next_action())
            self.recording.took(info["action"], env.memory().observation)
            if terminated or truncated:
                self.recording.over = True
                self._outcome = Label.SUCCESS if info["success"] else Label.FAILURE
                self._distance = distance_left(env)
        self._moment = capture(env)

    def finish(self) -> Trajectory:
        return self.recording.finish(self._outcome, executed=False, distance=self._distance)


class VideoWorld:
    """A video world model per task. Groups start at stored real states and go on for at most `horizon` steps.

    imaginers, pools: by task, over the same stores. The newest frames stay the model's context from step to step.
    max_risk: of the model, beyond which what it shows is not judged. rng: draws the starts.
    """

    def __init__(
        self,
        imaginers: Mapping[str, VideoImaginer],
        pools: Mapping[str, StartPool],
        *,
        horizon: int,
        max_risk: float,
        rng: np.random.Generator,
    ) -> None:
        self._imaginers, self._pools, self._rng = imaginers, pools, rng
        self._horizon, self._max_risk = horizon, max_risk

    def version(self, task: str) -> int:
        return self._imaginers[task].version

    def imagine(self, starts: Sequence[GroupStart], size: int, sampler: Sampler) -> list[list[Trajectory]]:
        """See World; `layout` says nothing here, a camera has seen the start."""
        return [self._group(start.task, size, sampler) for start in starts]

    def _group(self, task: str, size: int, sampler: Sampler) -> list[Trajectory]:
        pool = self._pools[task]
        pool.refresh()
        start: Start = pool.draw(1, self._rng)[0]
        session = self._imaginers[task].begin([start] * size, int(self._rng.integers(2**31)))
        members = [Recording(task, observation) for observation in session.observations]
        rest = np.zeros(self._imaginers[task].model.spec.action_dim, np.float32)
        for _ in range(self._horizon):
            if waiting := [member for member in members if member.undecided]:
                sampler.decide(waiting)
            if all(member.over for member in members):
                break
            wishes = [rest if member.over else member.next_action() for member in members]
            futures = session.step(np.stack(wishes))
            for index, member in enumerate(members):
                if member.over:
                    continue
                member.lost = bool(futures.lost[index])
                if not member.lost:
                    member.took(futures.executed[index], futures.observations[index])
                member.over = member.lost or bool(futures.over[index])
        return [member.finish(Label.UNKNOWN, executed=False) for member in members]

    def relive(self, executed: Sequence[Trajectory]) -> list[Trajectory]:
        """The last `horizon` steps of each, imagined from the real frames before them, readings as in groups."""
        return [self._relived(one) for one in executed]

    def _relived(self, real: Trajectory) -> Trajectory:
        if not len(real):
            return replace(real, lost=True)
        imaginer = self._imaginers[real.task]
        model = imaginer.model
        begin = max(0, len(real) - min(self._horizon, model.spec.max_horizon))
        seed = int(self._rng.integers(2**31))
        readings = imaginer.readings(real.observations[begin].proprio, real.action[begin:], seed)
        imagined = model.rollout(_context(model, real, begin), real.action[None, begin:], seed)
        trusted = bool((imagined.risk[0] <= self._max_risk).all())
        frames = [
            Observation(
                {view: images[0, t] for view, images in imagined.images.items()},
                readings[t + 1],
                seen.timestamp,
            )
            for t, seen in enumerate(real.observations[begin + 1 :])
        ]
        return replace(real, observations=[real.observations[begin], *frames], lost=not trusted)

    def state(self) -> dict[str, Any]:
        return {"rng": self._rng.bit_generator.state}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]


def _context(model: WorldModel, real: Trajectory, step: int) -> Context:
    """The frames up to observation `step`; before the first it is repeated, and the arm rested."""
    steps = range(step - model.spec.context_frames + 1, step + 1)

    def frames(view: str) -> list[Image]:
        return [real.observations[max(0, t)].images[view] for t in steps]

    still = np.zeros_like(real.action[0])
    past: list[Float32] = [real.action[t] if t >= 0 else still for t in steps[:-1]]
    return Context(
        {view: np.stack(frames(view))[None] for view in model.spec.views},
        np.array(past, np.float32).reshape(1, len(past), model.spec.action_dim),
    )
