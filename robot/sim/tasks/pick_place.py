"""pick_place: grasp an aubergine that lies on the table and put it on a plate."""

from __future__ import annotations

import numpy as np

from robot.kinematics import Kinematics
from robot.safety import ActionScale
from robot.sim.scene import SceneConfig, SceneObjects
from robot.sim.tasks.base import ExpertStyle, Waypoint, start_joints, tool_rotation
from robot.sim.tasks.carrying import Carrier, Goal, Item, Shape, fence
from robot.sim.world import SimWorld
from robot.tasks import GripperMode, TaskSpec
from robot.types import Array, ProprioSpec

RADIUS = 0.018  # m, of the aubergine
PLATE_RADIUS, PLATE_HEIGHT = 0.055, 0.01  # m; low enough for the fingers to pass
ON_PLATE = 0.035  # m from the plate's centre to that of an aubergine which lies on it
ITEM_LOWER, ITEM_UPPER = np.array([0.24, 0.035]), np.array([0.32, 0.12])  # m, its places at reset
ITEM_YAW = 0.6  # rad, its yaw varies by as much to both sides
PLATE_LOWER, PLATE_UPPER = np.array([0.26, -0.11]), np.array([0.30, -0.08])  # m
START_LOWER, START_UPPER = np.array([0.25, -0.04, 0.11]), np.array([0.31, 0.06, 0.14])  # m, tool point

_AUBERGINE = Item("aubergine", Shape.BAR, rest=RADIUS, reach=0.038)
_OBJECTS = f"""
<body name="plate" mocap="true" pos=".28 -.09 0">
  <geom class="fixture" type="cylinder" size="{PLATE_RADIUS} {PLATE_HEIGHT / 2}" pos="0 0 {PLATE_HEIGHT / 2}"
    rgba=".15 .3 .95 1"/>
  <geom class="paint" type="cylinder" size="{PLATE_RADIUS - 0.01} .001" pos="0 0 {PLATE_HEIGHT}"
    rgba=".98 .97 .93 1"/>
</body>
<body name="aubergine" pos=".28 .06 {RADIUS}">
  <freejoint/>
  <geom class="graspable" type="capsule" size="{RADIUS}" fromto="-.02 0 0 .02 0 0" mass=".06" condim="6"
    rgba=".5 .08 .6 1"/>
  <geom class="paint" type="capsule" size=".009" fromto=".032 0 0 .042 0 0" rgba=".3 .85 .1 1"/>
</body>"""


class PickPlaceTask:
    """Done when the aubergine rests on the plate and the open gripper is clear of it."""

    def __init__(self) -> None:
        self.spec = TaskSpec(
            name="pick_place",
            instruction="put the aubergine on the plate",
            max_steps=100,
            hold_steps=3,
            action_scale=ActionScale(position=0.02, rotation=0.12),
            workspace_lower=np.array([0.20, -0.16, 0.017]),
            workspace_upper=np.array([0.35, 0.16, 0.15]),
            reference_rotation=tool_rotation(np.deg2rad(90.0)),
            rotation_limit=np.array([0.12, 0.12, 1.0]),
            reset_joints=np.array([0.0, 1.917, -1.151, 0.806, 0.0, 0.0]),
            gripper_mode=GripperMode.BINARY,
            initial_gripper=1.0,
            goal={"ee_x": (0.08, 0.01), "ee_y": (0.15, 0.01), "ee_rz": (0.5, 0.1)},
            proprio_fine={"lag_x": 0.003, "lag_y": 0.003, "lag_z": 0.003},
        )
        self.scene = SceneConfig(
            timestep=0.0025, side_position=(0.42, 0.55, 0.36), side_target=(0.28, 0.0, 0.05), side_fovy=26.0
        )
        self.privileged_spec = ProprioSpec(
            names=("item_dx", "item_dy", "item_dz", "yaw_error", "plate_dx", "plate_dy", "plate_dz"),
            offset=np.array([0.0, 0.0, -0.05, 0.0, 0.0, -0.08, 0.0], np.float32),
            scale=np.array([0.1, 0.15, 0.06, 1.0, 0.1, 0.12, 0.06], np.float32),
            fine=np.array([0.003, 0.003, 0.01, 0.06, 0.003, 0.003, 0.01], np.float32),
        )
        self._kinematics = Kinematics()
        self._carrier = Carrier(self.spec, travel=0.06)

    def objects(self) -> SceneObjects:
        """An aubergine and a plate."""
        return SceneObjects(_OBJECTS + fence(self.spec))

    def randomise(self, rng: np.random.Generator, world: SimWorld) -> Array:
        """Place both; the arm starts somewhere above with open fingers."""
        world.place_body("plate", np.append(rng.uniform(PLATE_LOWER, PLATE_UPPER), 0.0))
        place = np.append(rng.uniform(ITEM_LOWER, ITEM_UPPER), RADIUS)
        world.place_body(_AUBERGINE.body, place, float(rng.uniform(-ITEM_YAW, ITEM_YAW)))
        return start_joints(self.spec, self._kinematics, rng.uniform(START_LOWER, START_UPPER))

    def success(self, world: SimWorld) -> bool:
        """The aubergine lies on the plate and the gripper has let go."""
        lies = self._carrier.lies_in(world, _AUBERGINE, self._plate(world))
        return lies and self._carrier.clear_of(world, _AUBERGINE)

    def progress(self, world: SimWorld) -> float:
        """What is left of the way [m]."""
        return self._carrier.progress(world, _AUBERGINE, self._plate(world))

    def failure(self, world: SimWorld) -> str:
        """Where the aubergine is, if it got as far as the gripper or the plate."""
        return self._carrier.failure(world, _AUBERGINE, self._plate(world))

    def privileged(self, world: SimWorld) -> Array:
        """Aubergine relative to the tool point (3), turn to grasp it (1), where it shall lie from there (3)."""
        place = world.body_position(_AUBERGINE.body)
        goal = self._plate(world).floor + np.array([0.0, 0.0, RADIUS])
        yaw = self._carrier.yaw_error(world, _AUBERGINE)
        return np.concatenate([place - world.tcp().position, [yaw], goal - place])

    def waypoint(self, world: SimWorld, style: ExpertStyle) -> Waypoint:
        """Above the aubergine, down, close, up, across, down, open, up."""
        return self._carrier.waypoint(world, _AUBERGINE, self._plate(world), style)

    def _plate(self, world: SimWorld) -> Goal:
        return Goal(world.body_position("plate") + np.array([0.0, 0.0, PLATE_HEIGHT]), ON_PLATE)
