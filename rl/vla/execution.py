"""Executed groups: whole episodes of the policy on the robot, through its environment and its safety governor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl.evaluation import to_observation, to_transition
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.writer import StoreWriter
from rl.vla.trajectory import Recording, Sampler, Trajectory
from robot.arm_env import ArmEnv
from robot.env import RobotEnv
from robot.interfaces import RobotFault
from robot.sim.workcell import SimWorkcell
from robot.types import Label, Observation

DISTANCE_UNKNOWN = float("nan")


class Robot:
    """One environment per task. What is executed is also written to the task's store, as it happens.

    A named fault ends an episode with an unknown outcome; more than `max_faults` of them in a row end the run.
    """

    def __init__(
        self, envs: Mapping[str, ArmEnv], writers: Mapping[str, StoreWriter], max_faults: int = 20
    ) -> None:
        self.envs, self._writers, self._max_faults = envs, writers, max_faults
        self.executions = self.steps = self.faults = self._in_a_row = 0
        self.seconds = 0.0

    def execute(self, task: str, layout: int, size: int, sampler: Sampler) -> list[Trajectory]:
        """A group: `size` episodes of one task and one layout seed; on a real cell a person restores the layout."""
        return [self._episode(task, layout, sampler) for _ in range(size)]

    def _episode(self, task: str, layout: int, sampler: Sampler) -> Trajectory:
        env, writer = self.envs[task], self._writers[task]
        started = env.clock.now()
        recording = Recording(task, self._reset(env, layout))
        writer.begin_episode(recording.observation)
        outcome = Label.UNKNOWN
        try:
            while not recording.over:
                if recording.undecided:
                    sampler.decide([recording])
                outcome = self._step(env, writer, recording)
        except RobotFault as fault:
            env.hold()
            writer.end_episode(EpisodeOutcome(EndReason.FAULT, str(fault)))
            self._count(fault)
            outcome = Label.UNKNOWN
        except BaseException:
            env.hold()
            writer.end_episode(EpisodeOutcome(EndReason.STOPPED))
            raise
        seconds = round(env.clock.now() - started, 6)  # the same at any time of the clock
        self.executions += 1
        self.seconds += seconds
        return recording.finish(outcome, executed=True, distance=distance_left(env), seconds=seconds)

    def _reset(self, env: ArmEnv, layout: int) -> Observation:
        while True:
            try:
                return to_observation(*env.reset(seed=layout))
            except RobotFault as fault:
                env.hold()
                self._count(fault)

    def _count(self, fault: RobotFault) -> None:
        self.faults += 1
        self._in_a_row += 1
        if self._in_a_row > self._max_faults:
            raise RobotFault(
                fault.name, f"more than {self._max_faults} faults in a row, the last: {fault.detail}"
            ) from fault

    def _step(self, env: ArmEnv, writer: StoreWriter, recording: Recording) -> Label:
        """One control step; the outcome once the episode is over."""
        before = recording.observation
        values, reward, terminated, truncated, info = env.step(recording.next_action())
        following = to_observation(values, info)
        writer.add(to_transition(before, following, float(reward), terminated, truncated, info))
        recording.took(info["action"], following)
        self.steps += 1
        if not (terminated or truncated):
            return Label.UNKNOWN
        recording.over = True
        self._in_a_row = 0
        if info["success"]:
            writer.end_episode(EpisodeOutcome(EndReason.SUCCESS))
            return Label.SUCCESS
        reason = EndReason.FAILURE if terminated else EndReason.TIMEOUT
        writer.end_episode(EpisodeOutcome(reason, str(info.get("failure", ""))))
        return Label.FAILURE

    def state(self) -> dict[str, Any]:
        """JSON-able counts."""
        return {
            "executions": self.executions,
            "steps": self.steps,
            "faults": self.faults,
            "seconds": self.seconds,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`."""
        self.executions, self.steps, self.faults = state["executions"], state["steps"], state["faults"]
        self.seconds = state["seconds"]


def distance_left(env: ArmEnv) -> float:
    """What a simulated task still has to go [m] by its own measure; NaN where nobody knows."""
    if isinstance(env, RobotEnv) and isinstance(env.workcell, SimWorkcell) and env.workcell.distances:
        return env.workcell.distances[-1]
    return DISTANCE_UNKNOWN
