"""SimWorkcell: the simulated surroundings of the robot, a world and the task that lives in it."""

from __future__ import annotations

import numpy as np

from robot.sim.failure import NamesFailure, by_progress
from robot.sim.tasks.base import SimTask
from robot.sim.world import SimWorld
from robot.types import Array


class SimWorkcell:
    """Prepares episodes and knows their outcome."""

    def __init__(self, task: SimTask, world: SimWorld) -> None:
        self.task = task
        self.world = world
        self.distances: list[float] = []  # progress at each step of the episode
        world.place_arm(task.spec.reset_joints, task.spec.initial_gripper)

    def reset(self, rng: np.random.Generator, *, place_arm: bool) -> Array:
        """Place the objects; returns the start joints (6,), where the arm is put at once if `place_arm`."""
        self.distances.clear()
        if place_arm:
            self.world.reset()
        start = self.task.randomise(rng, self.world)
        if place_arm:
            self.world.place_arm(start, self.task.spec.initial_gripper)
        return start

    def success(self) -> bool:
        """The job is done at this instant."""
        self.world.advance()
        self.distances.append(self.task.progress(self.world))
        return self.task.success(self.world)

    def failure(self) -> str:
        """Why the job is not done: the task's own words, else by the progress since the reset."""
        self.world.advance()
        said = self.task.failure(self.world) if isinstance(self.task, NamesFailure) else ""
        return said or by_progress(self.distances)

    def privileged(self) -> Array:
        """The task's own knowledge of the world."""
        self.world.advance()
        return self.task.privileged(self.world)
