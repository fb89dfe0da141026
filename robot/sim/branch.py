"""Branching: a simulated episode continues from a moment of its past, as often as one likes.

The same actions then bring the same future bit by bit, on one machine and its version of MuJoCo: the state of the
physics, images and proprio, executed actions, rewards and ends. Numbers that are worked out anew on the way agree to
rounding only: the times of images, and the task's distances, which name a failure.
"""

from __future__ import annotations

from dataclasses import dataclass

from robot.clock import VirtualClock
from robot.env import EpisodeMemory, RobotEnv
from robot.sim.workcell import SimWorkcell
from robot.sim.world import SimWorld, WorldState
from robot.types import Observation


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """A moment of a simulated episode: world, arm, governor, counters and clock."""

    time: float
    world: WorldState
    distances: tuple[float, ...]
    episode: EpisodeMemory

    @property
    def observation(self) -> Observation:
        """What was seen then."""
        return self.episode.observation


def capture(env: RobotEnv) -> Moment:
    """The present moment of `env`, for `restore` on it or on another environment of the same configuration.

    Raises ValueError unless the environment is simulated on a virtual clock.
    """
    clock, cell = _simulated(env)
    return Moment(clock.now(), cell.world.get_state(), tuple(cell.distances), env.memory())


def restore(env: RobotEnv, moment: Moment) -> Observation:
    """Put `env` into `moment` and return what was seen then; the next step is as it would have been.

    The safety governor goes back too and stays in front of the arm. Raises ValueError as `capture` does.
    """
    clock, cell = _simulated(env)
    clock.rewind(moment.time)
    cell.world.set_state(moment.world)
    cell.distances[:] = moment.distances
    env.recall(moment.episode)
    return moment.observation


def _simulated(env: RobotEnv) -> tuple[VirtualClock, SimWorkcell]:
    clock, cell = env.robot.clock, env.workcell
    if not (isinstance(clock, VirtualClock) and isinstance(cell, SimWorkcell)):
        raise ValueError(
            "branching: expected a simulated environment with robot.clock=virtual; a real one has one past"
        )
    assert isinstance(cell.world, SimWorld)
    return clock, cell
