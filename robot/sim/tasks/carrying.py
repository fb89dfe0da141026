"""Carrying: take one item from wherever it lies to a goal and let go. Shared by pick_place, sort and assemble.

All is a function of the present state of the world, so that a corrector can take over from any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from robot.geometry import Pose, rotvec_to_matrix
from robot.kinematics import FINGER_STROKE
from robot.sim.scene import FINGER_JOINTS
from robot.sim.tasks.base import ExpertStyle, Waypoint
from robot.sim.world import SimWorld
from robot.tasks import TaskSpec
from robot.types import Array

OPEN = 0.85  # opening from which the fingers pass an item on both sides
CLEAR = 0.05  # m from an item's centre up to the tool point when the fingers are clear of it
MIDDLE_HEIGHT = 0.035  # m, the middle of ExpertStyle.approach_height
FINGERTIPS = np.array([-0.056, 0.056])  # m along the jaw axis, centres of the opened fingertips
FINGERTIP = 0.015  # m, how far a fingertip and its inaccuracy reach
DROP = 0.005  # m that an item may fall when it is let go
LOOSE = 0.012  # m sideways at which a tool that is already down at the item still closes
TURN_WORTH = 0.05  # m of progress per rad


class Shape(IntEnum):
    """How often the outline of a lying item repeats in one turn about the vertical; 0: it has no heading."""

    ROUND = 0
    BAR = 2
    BLOCK = 4


@dataclass(frozen=True)
class Item:
    """A free body. rest: m from the floor up to its centre; reach: m from there to its furthest point.

    axis: the body axis along which a bar is long.
    """

    body: str
    shape: Shape
    rest: float
    reach: float = 0.025
    axis: int = 0

    def heading(self, world: SimWorld) -> float | None:
        """Yaw [rad] of a tool whose jaws close squarely on the item; None if any will do."""
        axes = world.body_pose(self.body).rotation
        match self.shape:
            case Shape.ROUND:
                return None
            case Shape.BAR:
                axis = axes[:, self.axis]
                return None if abs(axis[2]) > 0.7 else float(np.arctan2(axis[1], axis[0]))
            case Shape.BLOCK:
                axis = axes[:, int(np.abs(axes[2]).argmin())]
                return float(np.arctan2(axis[1], axis[0]))


@dataclass(frozen=True)
class Goal:
    """Where an item shall lie: centre of the place and its floor (3,) [m], and how far off it may be [m]."""

    floor: Array
    radius: float


class Carrier:
    """Moves items in one workspace; `travel` is the tool's height [m] on its way over the table."""

    def __init__(self, spec: TaskSpec, travel: float) -> None:
        self._spec = spec
        self._travel = travel

    def held(self, world: SimWorld, item: Item) -> bool:
        """The fingers are told to close, have come to rest, and the item lies between them."""
        tcp = world.tcp()
        along, jaw, across = np.abs(tcp.rotation.T @ (world.body_position(item.body) - tcp.position))
        speed = abs(float(world.data.joint(FINGER_JOINTS[0]).qvel[0]))
        told = float(world.data.ctrl[6]) < FINGER_STROKE / 2
        between = along < 0.025 and jaw < 0.015 and across < 0.03
        return bool(told and speed < 0.005 and 0.15 < world.gripper_opening < 0.8 and between)

    def lies_in(self, world: SimWorld, item: Item, goal: Goal, slack: float = 0.003) -> bool:
        """Whether the item's centre is over the goal and at most `slack` [m] higher than it would rest."""
        offset = world.body_position(item.body) - goal.floor
        return bool(np.linalg.norm(offset[:2]) <= goal.radius and offset[2] <= item.rest + slack)

    def clear_of(self, world: SimWorld, item: Item) -> bool:
        """The gripper is open and above the item."""
        height = world.tcp().position[2] - world.body_position(item.body)[2]
        return bool(world.gripper_opening >= OPEN and height >= CLEAR)

    def yaw_error(self, world: SimWorld, item: Item, obstacles: Sequence[Item] = ()) -> float:
        """How far [rad] the tool must turn about the vertical to grasp the item."""
        return self._grasp_yaw(world, item, obstacles) - _yaw(world)

    def failure(self, world: SimWorld, item: Item, goal: Goal) -> str:
        """How far the job has come, in words; "" while the item lies about."""
        if self.held(world, item):
            return "held, not brought to the goal"
        if self.lies_in(world, item, goal):
            return "not let go" if not self.clear_of(world, item) else ""
        offset = world.body_position(item.body) - goal.floor
        return "put down beside the goal" if np.linalg.norm(offset[:2]) <= goal.radius + item.reach else ""

    def waypoint(
        self, world: SimWorld, item: Item, goal: Goal, style: ExpertStyle, obstacles: Sequence[Item] = ()
    ) -> Waypoint:
        """The next step of bringing the item to the goal, without touching the obstacles."""
        travel = self._travel + style.approach_height - MIDDLE_HEIGHT
        if self.held(world, item):
            return self._carry(world, item, goal, travel, style.tolerance)
        if self.lies_in(world, item, goal):
            return self._leave(world, item)
        return self._grasp(world, item, travel, style.tolerance, obstacles)

    def progress(self, world: SimWorld, item: Item, goal: Goal, obstacles: Sequence[Item] = ()) -> float:
        """What is left of the way [m]: to the item, up, across, down and away; closing and opening count."""
        tcp, place = world.tcp().position, world.body_position(item.body)
        if self.lies_in(world, item, goal) and not self.held(world, item):
            rise = max(0.0, float(place[2] - tcp[2]) + CLEAR)
            return rise + CLEAR * (1.0 - world.gripper_opening)
        sideways = float(np.linalg.norm(place[:2] - goal.floor[:2]))
        height = float(place[2] - goal.floor[2]) - item.rest
        left = 2 * CLEAR + sideways
        if self.held(world, item):
            over = sideways <= goal.radius / 2
            return left + (height if over else self._travel + max(0.0, self._travel - float(tcp[2])))
        turn = TURN_WORTH * abs(self.yaw_error(world, item, obstacles))
        reach = float(np.linalg.norm(tcp - self._grasp_point(world, item)))
        closing = CLEAR * (world.gripper_opening if reach < 0.015 else 1.0)
        return left + 2 * self._travel + reach + turn + closing

    def _leave(self, world: SimWorld, item: Item) -> Waypoint:
        position = world.tcp().position
        if world.gripper_opening >= OPEN:
            position[2] = world.body_position(item.body)[2] + CLEAR + 0.02
        return Waypoint(self._pose(position, _yaw(world)), gripper=1.0)

    def _carry(self, world: SimWorld, item: Item, goal: Goal, travel: float, tolerance: float) -> Waypoint:
        position = world.tcp().position
        offset = goal.floor - world.body_position(item.body)
        if np.abs(offset[:2]).max() <= max(tolerance, 0.008):
            lowest = position[2] < self._spec.workspace_lower[2] + 0.002  # it is held by its lower end
            if lowest or -offset[2] <= item.rest + DROP:
                return Waypoint(self._pose(position, _yaw(world)), gripper=1.0)
            # Pressed down a little, so that an item askew in the jaws comes to lie flat.
            position += offset + np.array([0.0, 0.0, item.rest - 0.004])
        else:
            if position[2] > travel - 0.02:
                position[:2] += offset[:2]
            position[2] = travel
        return Waypoint(self._pose(position, _yaw(world)), gripper=-1.0)

    def _grasp(
        self, world: SimWorld, item: Item, travel: float, tolerance: float, obstacles: Sequence[Item]
    ) -> Waypoint:
        position, grasp = world.tcp().position, self._grasp_point(world, item)
        yaw = self._grasp_yaw(world, item, obstacles)
        sideways = float(np.abs(grasp[:2] - position[:2]).max())
        turned = abs(yaw - _yaw(world))
        above = position[2] - grasp[2]
        down = above < 0.008 and sideways <= LOOSE and turned < 0.3
        if down and world.gripper_opening > 0.1:
            return Waypoint(self._pose(grasp, yaw), gripper=-1.0)
        close = above < 0.02 and sideways <= LOOSE
        if (close or (sideways <= tolerance and turned < 0.15)) and world.gripper_opening >= OPEN:
            return Waypoint(self._pose(grasp, yaw), gripper=1.0)
        if sideways > tolerance and position[2] < travel - 0.015:  # low beside the item: rise first
            grasp[:2] = position[:2]
        grasp[2] = max(grasp[2], travel)
        return Waypoint(self._pose(grasp, yaw), gripper=1.0)

    def _grasp_point(self, world: SimWorld, item: Item) -> Array:
        lower, upper = self._spec.workspace_lower, self._spec.workspace_upper
        point: Array = np.clip(world.body_position(item.body), lower, upper)
        return point

    def _grasp_yaw(self, world: SimWorld, item: Item, obstacles: Sequence[Item]) -> float:
        """The yaw [rad] at which the jaws close squarely, the fingers meet no obstacle, and the turn is short."""
        limit = 0.95 * float(self._spec.rotation_limit[2])
        candidates = np.linspace(-limit, limit, 13)
        skew = np.zeros(len(candidates))
        heading = item.heading(world)
        if heading is not None:
            fold = 2 * np.pi / item.shape
            square = (
                heading + limit
            ) % fold - limit  # the least from -limit on; beyond +limit there may be none
            candidates = np.append(candidates, np.arange(square, limit, fold))
            skew = np.abs((candidates - heading + fold / 2) % fold - fold / 2)
        # Rather no turn than one, and rather that in progress than its like to the other side.
        cost = skew + 0.1 * np.abs(candidates) + 0.05 * np.abs(candidates - _yaw(world))
        cost += 100.0 * self._overlap(world, item, candidates, obstacles)
        return float(candidates[cost.argmin()])

    def _overlap(self, world: SimWorld, item: Item, yaws: Array, obstacles: Sequence[Item]) -> Array:
        """(N,) m by which the opened fingertips would come too close to obstacles at each yaw (N,)."""
        jaw = np.stack([-np.sin(yaws), np.cos(yaws)], axis=-1)  # (N, 2)
        tips = world.body_position(item.body)[:2] + FINGERTIPS[:, None, None] * jaw  # (2, N, 2)
        total = np.zeros(len(yaws))
        for obstacle in obstacles:
            distance = np.linalg.norm(tips - world.body_position(obstacle.body)[:2], axis=-1)
            total += np.maximum(0.0, obstacle.reach + FINGERTIP - distance).sum(axis=0)
        return total

    def _pose(self, position: Array, yaw: float) -> Pose:
        turn = rotvec_to_matrix(np.array([0.0, 0.0, yaw]))
        return Pose(position, turn @ self._spec.reference_rotation)


def fence(spec: TaskSpec) -> str:
    """MJCF of walls that nobody sees and the arm does not touch: no item leaves the reach of the tool."""
    lower, upper = spec.workspace_lower - 0.01, spec.workspace_upper + 0.01
    middle, half = (lower + upper) / 2, (upper - lower) / 2
    wall = '<geom type="box" group="3" contype="0" conaffinity="1" solref=".01 1"'
    return "".join(
        f'{wall} pos="{x} {middle[1]} .15" size=".02 {half[1] + 0.04} .15"/>'
        for x in (lower[0] - 0.02, upper[0] + 0.02)
    ) + "".join(
        f'{wall} pos="{middle[0]} {y} .15" size="{half[0] + 0.04} .02 .15"/>'
        for y in (lower[1] - 0.02, upper[1] + 0.02)
    )


def _yaw(world: SimWorld) -> float:
    jaw = world.tcp().rotation[:, 1]
    return float(np.arctan2(-jaw[0], jaw[1]))
