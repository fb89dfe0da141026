"""sort: of four items on the table, put the one that the instruction names into the tray."""

from __future__ import annotations

from enum import Enum

import numpy as np

from robot.kinematics import Kinematics
from robot.safety import ActionScale
from robot.sim.scene import SceneConfig, SceneObjects
from robot.sim.tasks.base import ExpertStyle, Waypoint, start_joints, tool_rotation
from robot.sim.tasks.carrying import Carrier, Goal, Item, Shape, fence
from robot.sim.world import SimWorld
from robot.tasks import GripperMode, TaskSpec
from robot.types import Array, ProprioSpec

TRAY_HALF, TRAY_FLOOR = 0.05, 0.002  # m, inner half width and height of the floor
TRAY_LOWER, TRAY_UPPER = np.array([0.27, -0.10]), np.array([0.29, -0.08])  # m, its places at reset
ITEM_LOWER, ITEM_UPPER = np.array([0.225, 0.015]), np.array([0.335, 0.155])  # m
ITEM_YAW = 0.25  # rad, yaws vary by as much to both sides
SPACING = 0.06  # m at least between items
LANE = np.array([0.048, 0.09])  # m in x and y beside the named item that its graspers need free at reset
START_LOWER, START_UPPER = np.array([0.25, -0.01, 0.12]), np.array([0.31, 0.08, 0.145])  # m, tool point

_WALL = 0.003  # m, half the thickness
_WALL_HEIGHT = 0.01  # m, below the fingertips of a tool that grasps


class Category(Enum):
    """What can be asked for; the value is its name in the instruction."""

    BLOCK = "red block"
    BALL = "blue ball"
    BANANA = "yellow banana"
    CAN = "green can"


ITEMS = {
    Category.BLOCK: Item("block", Shape.BLOCK, rest=0.018, reach=0.025),
    Category.BALL: Item("ball", Shape.ROUND, rest=0.02, reach=0.02),
    Category.BANANA: Item("banana", Shape.BAR, rest=0.015, reach=0.031),
    Category.CAN: Item("can", Shape.BAR, rest=0.02, reach=0.026, axis=2),
}
_GEOMS = {
    Category.BLOCK: 'type="box" size=".018 .018 .018" rgba="1 .1 .08 1"',
    Category.BALL: 'type="sphere" condim="6" size=".02" rgba=".1 .25 1 1"',
    Category.BANANA: 'type="capsule" condim="6" size=".015" fromto="-.016 0 0 .016 0 0" rgba="1 .85 .05 1"',
    Category.CAN: 'type="cylinder" condim="6" size=".017 .02" rgba=".45 1 .15 1"',
}


class SortTask:
    """Done when the named item rests in the tray, no other does, and the open gripper is clear of it."""

    def __init__(self, category: Category = Category.BLOCK) -> None:
        self.spec = TaskSpec(
            name="sort",
            instruction=f"put the {category.value} into the tray",
            max_steps=100,
            hold_steps=3,
            action_scale=ActionScale(position=0.02, rotation=0.12),
            workspace_lower=np.array([0.20, -0.16, 0.017]),
            workspace_upper=np.array([0.35, 0.18, 0.15]),
            reference_rotation=tool_rotation(np.deg2rad(90.0)),
            rotation_limit=np.array([0.12, 0.12, 1.0]),
            reset_joints=np.array([0.0, 1.917, -1.151, 0.806, 0.0, 0.0]),
            gripper_mode=GripperMode.BINARY,
            initial_gripper=1.0,
            goal={"ee_x": (0.08, 0.01), "ee_y": (0.15, 0.01), "ee_rz": (0.5, 0.1)},
            proprio_fine={"lag_x": 0.003, "lag_y": 0.003, "lag_z": 0.003},
        )
        self.scene = SceneConfig(
            timestep=0.005, side_position=(0.42, 0.55, 0.36), side_target=(0.28, 0.02, 0.04), side_fovy=28.0
        )
        self._named = ITEMS[category]
        self._others = tuple(item for other, item in ITEMS.items() if other is not category)
        others = [f"{item.body}_d{axis}" for item in self._others for axis in "xy"]
        self.privileged_spec = ProprioSpec(
            names=(
                *("item_dx", "item_dy", "item_dz", "yaw_error", "tray_dx", "tray_dy", "tray_dz"),
                *others,
            ),
            offset=np.array([0.0, 0.0, -0.05, 0.0, 0.0, -0.08, 0.0, *[0.0] * 6], np.float32),
            scale=np.array([0.1, 0.15, 0.06, 1.0, 0.1, 0.12, 0.06, *[0.1, 0.15] * 3], np.float32),
            fine=np.array([0.003, 0.003, 0.01, 0.06, 0.003, 0.003, 0.01, *[0.0] * 6], np.float32),
        )
        self._kinematics = Kinematics()
        self._carrier = Carrier(self.spec, travel=0.075)

    def objects(self) -> SceneObjects:
        """A tray and four items."""
        items = "".join(
            f'<body name="{item.body}" pos=".28 {0.02 + 0.05 * i} {item.rest}"><freejoint/>'
            f'<geom class="graspable" mass=".05" {_GEOMS[category]}/></body>'
            for i, (category, item) in enumerate(ITEMS.items())
        )
        return SceneObjects(_tray() + items + fence(self.spec))

    def randomise(self, rng: np.random.Generator, world: SimWorld) -> Array:
        """Scatter the items; the arm starts somewhere above with open fingers."""
        world.place_body("tray", np.append(rng.uniform(TRAY_LOWER, TRAY_UPPER), 0.0))
        places = _scatter(rng, 1 + len(self._others))
        for item, place in zip((self._named, *self._others), places, strict=True):
            yaw = float(rng.uniform(-ITEM_YAW, ITEM_YAW))
            world.place_body(item.body, np.append(place, item.rest), yaw)
        return start_joints(self.spec, self._kinematics, rng.uniform(START_LOWER, START_UPPER))

    def success(self, world: SimWorld) -> bool:
        """The named item lies in the tray, alone, and the gripper has let go."""
        lies = self._carrier.lies_in(world, self._named, self._tray(world))
        alone = not any(self._over_tray(world, item) for item in self._others)
        return lies and alone and self._carrier.clear_of(world, self._named)

    def progress(self, world: SimWorld) -> float:
        """What is left of the way [m], and a metre for each item that is in the way of it."""
        item, goal = self._job(world)
        astray = sum(self._astray(world, other) for other in self._others)
        return astray + self._carrier.progress(world, item, goal, self._around(item))

    def failure(self, world: SimWorld) -> str:
        """Whether a wrong item was taken; else where the named one is, if it got as far as gripper or tray."""
        for item in self._others:
            if self._astray(world, item):
                return f"took the {item.body}"
        return self._carrier.failure(world, self._named, self._tray(world))

    def privileged(self, world: SimWorld) -> Array:
        """As in pick_place (7), and the other items relative to the tool point (3 x 2)."""
        tool, place = world.tcp().position, world.body_position(self._named.body)
        goal = self._tray(world).floor + np.array([0.0, 0.0, self._named.rest])
        yaw = self._carrier.yaw_error(world, self._named, self._others)
        others = [world.body_position(item.body)[:2] - tool[:2] for item in self._others]
        return np.concatenate([place - tool, [yaw], goal - place, *others])

    def waypoint(self, world: SimWorld, style: ExpertStyle) -> Waypoint:
        """Bring the named item to the tray; before that, put away what is in the tray or in the hand."""
        item, goal = self._job(world)
        return self._carrier.waypoint(world, item, goal, style, self._around(item))

    def _job(self, world: SimWorld) -> tuple[Item, Goal]:
        for item in self._others:
            if self._astray(world, item):
                return item, self._free_place(world, item)
        return self._named, self._tray(world)

    def _around(self, item: Item) -> list[Item]:
        return [other for other in ITEMS.values() if other is not item]

    def _astray(self, world: SimWorld, item: Item) -> bool:
        return self._over_tray(world, item) or self._carrier.held(world, item)

    def _over_tray(self, world: SimWorld, item: Item) -> bool:
        offset = world.body_position(item.body) - world.body_position("tray")
        return bool(np.abs(offset[:2]).max() <= TRAY_HALF + 2 * _WALL)

    def _free_place(self, world: SimWorld, item: Item) -> Goal:
        """The nearest place on the table with room on all sides; if there is none, that with most room."""
        x, y = np.meshgrid(np.linspace(0.23, 0.33, 5), np.linspace(0.03, 0.15, 5))
        spots = np.stack([x.ravel(), y.ravel()], axis=1)
        others = np.stack([world.body_position(other.body)[:2] for other in self._around(item)])
        room = np.linalg.norm(spots[:, None] - others, axis=2).min(axis=1)
        way = np.linalg.norm(spots - world.body_position(item.body)[:2], axis=1)
        best = int((way + 100.0 * np.maximum(0.0, SPACING - room)).argmin())
        return Goal(np.append(spots[best], 0.0), radius=0.03)

    def _tray(self, world: SimWorld) -> Goal:
        return Goal(world.body_position("tray") + np.array([0.0, 0.0, TRAY_FLOOR]), TRAY_HALF)


def _scatter(rng: np.random.Generator, count: int) -> list[Array]:
    """Places (2,) [m] apart from each other; beside the first the open fingers have room."""
    while True:
        first, *others = rng.uniform(ITEM_LOWER, ITEM_UPPER, (100, 2))
        places = [first]
        for place in np.stack(others)[(np.abs(others - first) > LANE).any(axis=1)]:
            if np.linalg.norm(place - places, axis=1).min() >= SPACING:
                places.append(place)
            if len(places) == count:
                return places


def _tray() -> str:
    middle, outer = TRAY_HALF + _WALL, TRAY_HALF + 2 * _WALL
    walls = "".join(
        f'<geom class="fixture" type="box" size="{size_x} {size_y} {_WALL_HEIGHT / 2}" '
        f'pos="{x} {y} {_WALL_HEIGHT / 2}" rgba=".95 .2 .75 1"/>'
        for x, y, size_x, size_y in (
            (middle, 0.0, _WALL, outer),
            (-middle, 0.0, _WALL, outer),
            (0.0, middle, TRAY_HALF, _WALL),
            (0.0, -middle, TRAY_HALF, _WALL),
        )
    )
    floor = (
        f'<geom class="fixture" type="box" size="{TRAY_HALF} {TRAY_HALF} {TRAY_FLOOR / 2}" '
        f'pos="0 0 {TRAY_FLOOR / 2}" rgba=".97 .97 .95 1"/>'
    )
    return f'<body name="tray" mocap="true" pos=".28 -.09 0">{walls}{floor}</body>'
