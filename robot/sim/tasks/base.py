"""SimTask: what a simulated task adds to its TaskSpec. A new task is one file that keeps this interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from robot.geometry import Pose
from robot.kinematics import IKConfig, Kinematics
from robot.sim.scene import SceneConfig, SceneObjects
from robot.sim.world import SimWorld
from robot.tasks import TaskSpec
from robot.types import Array, ProprioSpec


@dataclass(frozen=True)
class ExpertStyle:
    """How one demonstrator works in one episode."""

    approach_height: float  # m above the object before going down
    tolerance: float  # m of sideways error at which it goes down


@dataclass(frozen=True)
class Waypoint:
    """Where the expert wants the tool next: pose in the base frame; gripper -1 close, 0 keep, +1 open.

    pace: share of the usual speed at which a demonstrator moves here, and of the usual shake of the hand.
    """

    pose: Pose
    gripper: float = 0.0
    pace: float = 1.0


class SimTask(Protocol):
    """A task keeps no state of an episode: it all lies in the world; a restored world is a restored task.

    A task that can say how it failed has `failure` as well, see `robot.sim.failure.NamesFailure`.
    """

    spec: TaskSpec
    scene: SceneConfig
    privileged_spec: ProprioSpec  # names and scales of `privileged`

    def objects(self) -> SceneObjects:
        """What stands on the table."""

    def randomise(self, rng: np.random.Generator, world: SimWorld) -> Array:
        """Place the objects for a new episode; returns the arm's start joints (6,) [rad]."""

    def success(self, world: SimWorld) -> bool:
        """The job is done at this instant."""

    def progress(self, world: SimWorld) -> float:
        """A distance [m] that falls as the job proceeds."""

    def privileged(self, world: SimWorld) -> Array:
        """What a camera would show, as numbers in SI units, named in `privileged_spec`."""

    def waypoint(self, world: SimWorld, style: ExpertStyle) -> Waypoint:
        """Where a demonstrator would move the tool from here."""


def tool_rotation(pitch: float) -> Array:
    """Rotation (3, 3) of a tool that points forward, `pitch` [rad] below the horizon; y is the base's y."""
    forward = np.array([np.cos(pitch), 0.0, -np.sin(pitch)])
    up = np.array([np.sin(pitch), 0.0, np.cos(pitch)])
    return np.stack([forward, np.cross(up, forward), up], axis=1)


def start_joints(spec: TaskSpec, kinematics: Kinematics, position: Array) -> Array:
    """Joints (6,) for the tool at `position` (3,), reference rotation; raises ValueError out of reach."""
    target = Pose(position, spec.reference_rotation)
    result = kinematics.inverse(target, spec.reset_joints, IKConfig(max_iterations=60))
    if not result.converged:
        raise ValueError(
            f"task {spec.name}: start position {position} is out of reach from reset_joints "
            f"({result.position_error * 1000:.1f} mm, {result.rotation_error:.3f} rad remain)"
        )
    return result.joint_positions
