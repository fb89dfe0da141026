"""insert: lower a square block, fixed in the gripper, into a square slot that stands turned on the table."""

from __future__ import annotations

import numpy as np

from robot.geometry import Pose, matrix_to_rotvec, rotvec_to_matrix
from robot.kinematics import TOOL_OFFSET, Kinematics
from robot.safety import ActionScale
from robot.sim.scene import SceneConfig, SceneObjects
from robot.sim.tasks.base import ExpertStyle, Waypoint, start_joints, tool_rotation
from robot.sim.world import SimWorld
from robot.tasks import GripperMode, TaskSpec
from robot.types import Array, ProprioSpec

SLOT = np.array([0.31, 0.0, 0.0])  # m, nominal place
SPREAD, YAW_SPREAD = 0.05, 0.22  # m and rad, the slot's place varies by as much in x, y and yaw
HALF_BLOCK = 0.009  # m
TIP = 0.04  # m, from the tool point to the end of the block
RIM, FLOOR = 0.03, 0.005  # m, heights of the slot's upper edge and of its bottom
INSERTED = 0.018  # m below the rim that count as inserted
START_LOWER, START_UPPER = np.array([0.25, -0.06, 0.10]), np.array([0.30, 0.06, 0.13])  # m, tool point
YAW_REACH = 0.1  # m per rad: what a turn counts in `progress`

_WALL = 0.022  # m, thickness
_BACK = 0.01  # m, how far the block reaches back between the fingers
# The end of the block is magenta as far as it must vanish in the slot. Wood on plastic slides; pads do not.
_BLOCK = f"""
<geom name="block" class="pad" type="box" size="{(TIP + _BACK) / 2} {HALF_BLOCK} {HALF_BLOCK}"
  pos="{TOOL_OFFSET + (TIP - _BACK) / 2} 0 0" friction=".4 .005 .0001" solref=".005 1" rgba="1 .85 .05 1"/>
<geom class="paint" type="box" size="{INSERTED / 2} {HALF_BLOCK + 0.0004} {HALF_BLOCK + 0.0004}"
  pos="{TOOL_OFFSET + TIP - INSERTED / 2} 0 0" rgba="1 .1 .95 1"/>"""


class InsertTask:
    """Two names, one task: `insert` leaves 1.5 mm on each side of the block, `insert_tight` 0.5 mm.

    The slot's walls are blue with a white edge; the magenta end of the block vanishes in it.
    """

    def __init__(self, name: str, clearance: float) -> None:
        """clearance: gap on each side of the centred block [m]."""
        if not 0.0 < clearance <= 0.003:
            raise ValueError(f"InsertTask: expected a clearance in (0, 0.003] m, got {clearance}")
        fine_m, fine_rad = 2.0 * clearance, 40.0 * clearance  # the scales on which it fits or does not
        self.spec = TaskSpec(
            name=name,
            instruction="insert the block into the slot",
            max_steps=100,
            hold_steps=3,
            action_scale=ActionScale(position=0.012, rotation=0.08),
            workspace_lower=np.array([0.235, -0.12, 0.043]),
            workspace_upper=np.array([0.385, 0.12, 0.15]),
            reference_rotation=tool_rotation(np.pi / 2),
            rotation_limit=np.array([0.15, 0.15, 0.35]),
            reset_joints=np.array([0.0, 1.985, -1.477, 1.063, 0.0, 0.0]),
            gripper_mode=GripperMode.FIXED,
            initial_gripper=0.18,  # around the block
            proprio_fine={
                **dict.fromkeys(("lag_x", "lag_y", "lag_z"), 0.003),
                **dict.fromkeys(("ee_rx", "ee_ry", "ee_rz"), fine_rad),
            },
            goal={"ee_x": (0.03, fine_m), "ee_y": (0.03, fine_m), "ee_rz": (0.15, fine_rad)},
        )
        self.scene = SceneConfig(
            timestep=0.0025,  # at 5 ms a shove sinks the block 2 mm into the wall
            side_target=(0.31, 0.0, 0.05),
            side_fovy=20.0,
        )
        self.privileged_spec = ProprioSpec(
            names=("tip_dx", "tip_dy", "tip_height", "yaw_error", "slot_x", "slot_y", "slot_yaw"),
            offset=np.array([0.0, 0.0, 0.0, 0.0, SLOT[0], SLOT[1], 0.0], np.float32),
            scale=np.array([0.05, 0.05, 0.05, 0.25, SPREAD, SPREAD, YAW_SPREAD], np.float32),
            fine=np.array([fine_m, fine_m, 0.01, fine_rad, 0.0, 0.0, 0.0], np.float32),
        )
        self._clearance = clearance
        self._kinematics = Kinematics()

    def objects(self) -> SceneObjects:
        """A slot of four walls, and the block in the gripper."""
        half = HALF_BLOCK + self._clearance
        middle, outer = half + _WALL / 2, half + _WALL
        walls = ""
        for x, y, size_x, size_y in (
            (middle, 0.0, _WALL / 2, outer),
            (-middle, 0.0, _WALL / 2, outer),
            (0.0, middle, half, _WALL / 2),
            (0.0, -middle, half, _WALL / 2),
        ):
            walls += (
                f'<geom class="fixture" type="box" size="{size_x} {size_y} {RIM / 2}" pos="{x} {y} {RIM / 2}" '
                'friction=".4 .005 .0001" solref=".005 1" rgba=".08 .2 .85 1"/>'
            )
        edge = 0.003  # m, width of the white line around the slot
        for x, y, size_x, size_y in (
            (half + edge / 2, 0.0, edge / 2, half + edge),
            (-half - edge / 2, 0.0, edge / 2, half + edge),
            (0.0, half + edge / 2, half, edge / 2),
            (0.0, -half - edge / 2, half, edge / 2),
        ):
            walls += (
                f'<geom class="paint" type="box" size="{size_x} {size_y} .0003" pos="{x} {y} {RIM}" '
                'rgba="1 1 1 1"/>'
            )
        bottom = (
            f'<geom class="fixture" type="box" size="{half} {half} {FLOOR / 2}" pos="0 0 {FLOOR / 2}" '
            'rgba=".02 .02 .05 1"/>'
        )
        body = f'<body name="slot" mocap="true" pos="{SLOT[0]} {SLOT[1]} {SLOT[2]}">{walls}{bottom}</body>'
        return SceneObjects(body, held=_BLOCK)

    def randomise(self, rng: np.random.Generator, world: SimWorld) -> Array:
        """Place and turn the slot; the arm starts somewhere above, the block straight."""
        place = SLOT.copy()
        place[:2] += rng.uniform(-SPREAD, SPREAD, 2)
        world.place_body("slot", place, float(rng.uniform(-YAW_SPREAD, YAW_SPREAD)))
        return start_joints(self.spec, self._kinematics, rng.uniform(START_LOWER, START_UPPER))

    def success(self, world: SimWorld) -> bool:
        """The block is in the slot, most of the way down."""
        offset, height, _ = self._tip(world)
        return height <= -INSERTED and self._within(offset)

    def progress(self, world: SimWorld) -> float:
        """Way of the tip up beside the slot, over it, and down to its bottom, plus the turn that is left [m]."""
        offset, height, yaw_error = self._tip(world)
        sideways = float(np.linalg.norm(offset))
        over = height if self._within(offset) else max(height, min(sideways, 0.02))
        return (over - height) + sideways + (over + RIM - FLOOR) + YAW_REACH * abs(yaw_error)

    def failure(self, world: SimWorld) -> str:
        """Where the tip ended, if it came down at the slot."""
        offset, height, _ = self._tip(world)
        if self._within(offset) and height < -0.003:
            return "not pushed through"
        if height < 0.003 and float(np.abs(offset).max()) < _WALL:
            return "jammed on the rim"
        return "beside the slot" if height < -0.003 else ""

    def privileged(self, world: SimWorld) -> Array:
        """Slot relative to the block's tip: x, y [m], height of the tip above the rim [m], yaw [rad]; the slot."""
        offset, height, yaw_error = self._tip(world)
        return np.array([*offset, height, yaw_error, *world.body_position("slot")[:2], _slot_yaw(world)])

    def waypoint(self, world: SimWorld, style: ExpertStyle) -> Waypoint:
        """Over the slot and turned as it is, then down; a block that stands on the rim is lifted to try again."""
        offset, height, yaw_error = self._tip(world)
        tool = world.tcp()
        tilt = float(np.linalg.norm(matrix_to_rotvec(tool.rotation @ self.spec.reference_rotation.T)[:2]))
        entered = height < -0.002 and self._within(offset)
        ready = (
            float(np.abs(offset).max()) <= self._clearance * style.tolerance / 0.01
            and abs(yaw_error) <= 0.06
            and tilt <= 0.06
        )
        pace = 1.0
        if entered:
            tip = FLOOR
        elif float(np.abs(offset).max()) > 0.01 or height < -0.002:
            tip = RIM + style.approach_height
        else:  # nearly there: line up close above the rim, the finer the slower
            tip = FLOOR if ready else RIM + 0.003
            pace = min(1.0, self._clearance / 0.0025)
        yaw = _slot_yaw(world)
        rotation = rotvec_to_matrix(np.array([0.0, 0.0, yaw])) @ self.spec.reference_rotation
        goal = np.array([*world.body_position("slot")[:2], tip + TIP])
        return Waypoint(Pose(goal, rotation), pace=pace)

    def _tip(self, world: SimWorld) -> tuple[Array, float, float]:
        """Slot minus tip (2,) [m] in base axes, height of the tip above the rim [m], slot minus block yaw [rad]."""
        tool = world.tcp()
        tip = tool.position + tool.rotation[:, 0] * TIP
        yaw = float(matrix_to_rotvec(tool.rotation @ self.spec.reference_rotation.T)[2])
        return world.body_position("slot")[:2] - tip[:2], float(tip[2]) - RIM, _slot_yaw(world) - yaw

    def _within(self, offset: Array) -> bool:
        """The block's axis is where it can only be inside the slot or above it."""
        return float(np.linalg.norm(offset)) <= 2.0 * self._clearance + 0.001


def _slot_yaw(world: SimWorld) -> float:
    return float(matrix_to_rotvec(world.body_pose("slot").rotation)[2])
