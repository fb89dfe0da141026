"""press: push down the spring lever of a toaster with closed fingers."""

from __future__ import annotations

import numpy as np

from robot.geometry import Pose
from robot.kinematics import Kinematics
from robot.safety import ActionScale
from robot.sim.scene import SceneConfig, SceneObjects
from robot.sim.tasks.base import ExpertStyle, Waypoint, start_joints, tool_rotation
from robot.sim.world import SimWorld
from robot.tasks import GripperMode, TaskSpec
from robot.types import Array, ProprioSpec

TOASTER = np.array([0.40, 0.0, 0.0])  # m, nominal place; the lever stands 75 mm nearer to the robot
SPREAD = np.array([0.04, 0.05])  # m, the toaster's place varies by as much in x and y
LEVER_X, LEVER_TOP, TRAVEL = -0.075, 0.105, 0.05  # m, relative to the toaster; the lever moves TRAVEL down
PRESSED = 0.035  # m of travel that count as pressed
CONTACT = 0.019  # m from the lever's centre up to the tool point when the fingertips touch it
START_LOWER, START_UPPER = np.array([0.25, -0.06, 0.16]), np.array([0.29, 0.06, 0.22])  # m

_OBJECTS = f"""
<body name="toaster" mocap="true" pos="{TOASTER[0]} {TOASTER[1]} {TOASTER[2]}">
  <geom class="fixture" type="box" size=".05 .085 .06" pos="0 0 .065" rgba=".93 .92 .88 1"/>
  <geom class="paint" type="box" size=".035 .06 .002" pos=".005 0 .125" rgba=".2 .2 .2 1"/>
  <geom class="paint" type="box" size=".001 .026 .03" pos="-.05 0 .081" rgba=".05 .25 .95 1"/>
  <body name="lever" pos="{LEVER_X} 0 {LEVER_TOP}" gravcomp="1">
    <joint name="lever" type="slide" axis="0 0 -1" range="0 {TRAVEL}" stiffness="40" damping="3"
      frictionloss="1" armature=".05" solreflimit=".01 1" solimplimit=".99 .999 .001"/>
    <geom class="fixture" type="box" size=".024 .03 .006" mass=".05" rgba="1 .35 .02 1"/>
  </body>
</body>"""


class PressTask:
    """The blue track on the toaster's front shows above the lever once it is down."""

    def __init__(self) -> None:
        self.spec = TaskSpec(
            name="press",
            instruction="press down the lever of the toaster",
            max_steps=50,
            hold_steps=2,
            action_scale=ActionScale(position=0.02, rotation=0.08),
            workspace_lower=np.array([0.24, -0.13, 0.04]),
            workspace_upper=np.array([0.42, 0.13, 0.25]),
            reference_rotation=tool_rotation(np.deg2rad(45.0)),
            rotation_limit=np.full(3, 0.25),
            reset_joints=np.array([0.0, 1.367, -0.685, 0.103, 0.0, 0.0]),
            gripper_mode=GripperMode.FIXED,
            initial_gripper=0.0,
            proprio_fine={"lag_x": 0.003, "lag_y": 0.003, "lag_z": 0.003},
            goal={"ee_x": (0.1, 0.01), "ee_y": (0.1, 0.01), "ee_z": (0.1, 0.01)},
        )
        self.scene = SceneConfig()
        self.privileged_spec = ProprioSpec(
            names=("lever_dx", "lever_dy", "lever_dz", "toaster_x", "toaster_y", "lever_depth"),
            offset=np.array([0.0, 0.0, 0.0, TOASTER[0], TOASTER[1], 0.0], np.float32),
            scale=np.array([0.1, 0.1, 0.1, SPREAD[0], SPREAD[1], TRAVEL], np.float32),
            fine=np.array([0.01, 0.01, 0.01, 0.0, 0.0, 0.0], np.float32),
        )
        self._kinematics = Kinematics()

    def objects(self) -> SceneObjects:
        """A toaster and its lever."""
        return SceneObjects(_OBJECTS, exclude=(("toaster", "lever"),))

    def randomise(self, rng: np.random.Generator, world: SimWorld) -> Array:
        """Place the toaster and release its lever; the arm starts somewhere above."""
        place = TOASTER.copy()
        place[:2] += rng.uniform(-SPREAD, SPREAD)
        world.place_body("toaster", place)
        world.set_joint("lever", 0.0)
        return start_joints(self.spec, self._kinematics, rng.uniform(START_LOWER, START_UPPER))

    def success(self, world: SimWorld) -> bool:
        """The lever is down."""
        return world.joint("lever") >= PRESSED

    def progress(self, world: SimWorld) -> float:
        """Distance from the tool point to where it would have the lever down [m]."""
        goal = self._above_lever(world, CONTACT + world.joint("lever") - PRESSED)
        return float(np.linalg.norm(goal - world.tcp().position))

    def failure(self, world: SimWorld) -> str:
        """On the lever without having it down, or lower than its top, close beside it."""
        if world.joint("lever") > 0.005:
            return "not pressed through"
        missed = self._above_lever(world, CONTACT) - world.tcp().position
        beside = missed[2] > 0.005 and float(np.linalg.norm(missed[:2])) < 0.06
        return "beside the lever" if beside else ""

    def privileged(self, world: SimWorld) -> Array:
        """Lever relative to the tool point (3), place of the toaster (2), depth of the lever (1), metres."""
        lever = world.body_position("lever")
        return np.concatenate(
            [lever - world.tcp().position, world.body_position("toaster")[:2], [world.joint("lever")]]
        )

    def waypoint(self, world: SimWorld, style: ExpertStyle) -> Waypoint:
        """Above the lever first, then straight down."""
        position = world.tcp().position
        contact = self._above_lever(world, CONTACT)
        sideways = float(np.abs(contact[:2] - position[:2]).max())
        height = position[2] - contact[2]
        # Once down at the lever, a slip of a few millimetres is no reason to rise again.
        near = height < style.approach_height / 2
        if sideways <= (max(style.tolerance, 0.012) if near else style.tolerance):
            goal = self._above_lever(world, CONTACT + world.joint("lever") - TRAVEL)
        elif height < 0.005:  # beside the lever: rise before moving over it
            goal = np.array([position[0], position[1], contact[2] + style.approach_height])
        else:
            goal = contact + np.array([0.0, 0.0, style.approach_height])
        return Waypoint(Pose(goal, self.spec.reference_rotation))

    def _above_lever(self, world: SimWorld, height: float) -> Array:
        # 4 mm short of the lever's middle: the fingertips lean beyond the tool point, towards the toaster.
        above: Array = world.body_position("lever") + np.array([-0.004, 0.0, height])
        return above
