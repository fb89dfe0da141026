"""assemble: lift a ring off one peg and put it over another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from robot.geometry import Pose
from robot.kinematics import Kinematics
from robot.safety import ActionScale
from robot.sim.scene import SceneConfig, SceneObjects
from robot.sim.tasks.base import ExpertStyle, Waypoint, start_joints, tool_rotation
from robot.sim.tasks.carrying import MIDDLE_HEIGHT, Carrier, Goal, Item, Shape, fence
from robot.sim.world import SimWorld
from robot.tasks import GripperMode, TaskSpec
from robot.types import Array, ProprioSpec

RING_RADIUS, TUBE_RADIUS = 0.022, 0.009  # m, from the ring's axis to the middle of its tube, and of the tube
RING_MASS, SEGMENTS = 0.03, 8  # kg, and capsules that make the ring: contacts cost most
PEGS = ("start_peg", "goal_peg")
FLAT = 0.85  # cosine of the tilt up to which the ring passes over a peg
PEG_RADIUS, PEG_HEIGHT = 0.006, 0.045  # m
PLAY = RING_RADIUS - TUBE_RADIUS - PEG_RADIUS  # m, between a peg and a ring centred on it
# Far enough apart sideways for the open fingers around one peg to miss the other.
START_PEG_LOWER, START_PEG_UPPER = np.array([0.26, 0.045]), np.array([0.31, 0.09])  # m
GOAL_PEG_LOWER, GOAL_PEG_UPPER = np.array([0.26, -0.09]), np.array([0.31, -0.045])  # m
START_LOWER, START_UPPER = np.array([0.25, -0.04, 0.11]), np.array([0.31, 0.06, 0.14])  # m, tool point

_RING = Item("ring", Shape.ROUND, TUBE_RADIUS)


class AssembleTask:
    """Done when the magenta ring lies around the yellow peg and the open gripper is clear of it."""

    def __init__(self) -> None:
        self.spec = TaskSpec(
            name="assemble",
            instruction="move the ring from the white peg to the yellow peg",
            max_steps=120,
            hold_steps=3,
            action_scale=ActionScale(position=0.02, rotation=0.08),
            workspace_lower=np.array([0.20, -0.15, 0.013]),
            workspace_upper=np.array([0.36, 0.15, 0.15]),
            reference_rotation=tool_rotation(np.pi / 2),
            rotation_limit=np.array([0.12, 0.12, 1.0]),
            reset_joints=np.array([0.0, 1.917, -1.151, 0.806, 0.0, 0.0]),
            gripper_mode=GripperMode.BINARY,
            initial_gripper=1.0,
            proprio_fine={"lag_x": 0.003, "lag_y": 0.003, "lag_z": 0.003},
            goal={"ee_x": (0.05, 0.005), "ee_y": (0.1, 0.005)},
        )
        self.scene = SceneConfig(
            timestep=0.0025, side_target=(0.28, 0.0, 0.04), side_position=(0.42, 0.55, 0.36)
        )
        self.privileged_spec = ProprioSpec(
            names=(
                *("ring_dx", "ring_dy", "ring_dz"),
                *("goal_dx", "goal_dy", "goal_dz"),
                *("ring_axis_x", "ring_axis_y"),
            ),
            offset=np.array([0.0, 0.0, -0.05, 0.0, -0.07, 0.0, 0.0, 0.0], np.float32),
            scale=np.array([0.08, 0.12, 0.06, 0.08, 0.1, 0.08, 0.5, 0.5], np.float32),
            fine=np.array([0.003, 0.003, 0.01, 0.003, 0.003, 0.01, 0.06, 0.06], np.float32),
        )
        self._kinematics = Kinematics()
        self._carrier = Carrier(self.spec, travel=0.095)

    def objects(self) -> SceneObjects:
        """Two pegs, and a ring of capsules."""
        pegs = _peg(PEGS[0], START_PEG_LOWER, ".95 .95 .95 1") + _peg(PEGS[1], GOAL_PEG_LOWER, "1 .85 .05 1")
        return SceneObjects(pegs + _ring() + fence(self.spec))

    def randomise(self, rng: np.random.Generator, world: SimWorld) -> Array:
        """Place the pegs, the ring somewhere around its own; the arm starts above with open fingers."""
        start = rng.uniform(START_PEG_LOWER, START_PEG_UPPER)
        world.place_body(PEGS[0], np.append(start, 0.0))
        world.place_body(PEGS[1], np.append(rng.uniform(GOAL_PEG_LOWER, GOAL_PEG_UPPER), 0.0))
        ring = start + rng.uniform(-0.5, 0.5, 2) * PLAY
        world.place_body(_RING.body, np.append(ring, _RING.rest), float(rng.uniform(-np.pi, np.pi)))
        return start_joints(self.spec, self._kinematics, rng.uniform(START_LOWER, START_UPPER))

    def success(self, world: SimWorld) -> bool:
        """The ring lies around the goal peg and the gripper has let go."""
        lies = self._carrier.lies_in(world, _RING, _goal(world), slack=0.003)
        return lies and self._carrier.clear_of(world, _RING)

    def progress(self, world: SimWorld) -> float:
        """What is left of the way [m]."""
        return self._carrier.progress(world, _RING, _goal(world), _obstacles(world))

    def failure(self, world: SimWorld) -> str:
        """Where the ring ended, if it left its peg."""
        place = world.body_position(_RING.body)
        on_start, on_goal = (_sideways(place, world.body_position(peg)) < RING_RADIUS for peg in PEGS)
        if self._carrier.lies_in(world, _RING, _goal(world), slack=0.005):
            return "not let go"
        if on_goal:
            return "askew on the goal peg" if _askew(world) else "not down on the goal peg"
        if self._carrier.held(world, _RING):
            return "still on the start peg" if on_start else "not brought to the goal peg"
        return "" if on_start and not _askew(world) else "dropped"

    def privileged(self, world: SimWorld) -> Array:
        """Ring relative to the tool point (3), its place on the goal peg from there (3) [m]; tilt of its axis (2)."""
        pose = world.body_pose(_RING.body)
        place = _goal(world).floor + np.array([0.0, 0.0, _RING.rest])
        axis = pose.rotation[:2, 2]
        return np.concatenate([pose.position - world.tcp().position, place - pose.position, axis])

    def waypoint(self, world: SimWorld, style: ExpertStyle) -> Waypoint:
        """Above the ring, down, close, up off the peg, across, down over the other, open, up.

        A ring askew in the jaws is dropped between the pegs, where it comes to lie flat.
        """
        # Nobody travels lower than the pegs are high.
        careful = replace(style, approach_height=max(style.approach_height, MIDDLE_HEIGHT))
        place, pegs = world.body_position(_RING.body), [world.body_position(peg) for peg in PEGS]
        askew = self._carrier.held(world, _RING) and _askew(world)
        between = Goal((pegs[0] + pegs[1]) / 2, PLAY)
        goal = between if askew else _goal(world)
        waypoint = self._carrier.waypoint(world, _RING, goal, careful, _obstacles(world))
        if askew and _sideways(place, between.floor) < 0.02:
            return replace(waypoint, gripper=1.0)
        if (
            waypoint.gripper < 0.0
            and self._carrier.held(world, _RING)
            and place[2] < PEG_HEIGHT + TUBE_RADIUS
        ):
            for peg in pegs:
                if _sideways(place, peg) < RING_RADIUS:  # along the peg, not across it
                    position = world.tcp().position + peg - place
                    position[2] = waypoint.pose.position[2]
                    return replace(waypoint, pose=Pose(position, waypoint.pose.rotation), pace=0.6)
        return waypoint


def _goal(world: SimWorld) -> Goal:
    return Goal(world.body_position(PEGS[1]), PLAY + 0.001)


def _obstacles(world: SimWorld) -> list[Item]:
    """The pegs that the ring does not lie around: they must not come between ring and fingers."""
    place = world.body_position(_RING.body)
    return [
        Item(peg, Shape.ROUND, 0.0) for peg in PEGS if _sideways(place, world.body_position(peg)) > 2.0 * PLAY
    ]


def _sideways(first: Array, second: Array) -> float:
    return float(np.linalg.norm((first - second)[:2]))


def _askew(world: SimWorld) -> bool:
    return bool(abs(world.body_pose(_RING.body).rotation[2, 2]) < FLAT)


def _peg(name: str, place: Array, rgba: str) -> str:
    """A peg with a rounded top, on a disc that shows where it stands."""
    return f"""
<body name="{name}" mocap="true" pos="{place[0]} {place[1]} 0">
  <geom class="fixture" type="capsule" size="{PEG_RADIUS}" fromto="0 0 0 0 0 {PEG_HEIGHT - PEG_RADIUS}"
    rgba="{rgba}"/>
  <geom class="paint" type="cylinder" size="{RING_RADIUS + TUBE_RADIUS + 0.006} .0004" rgba="{rgba}"/>
</body>"""


def _ring() -> str:
    half = RING_RADIUS * np.tan(np.pi / SEGMENTS)
    tube = ""
    for angle in 2 * np.pi / SEGMENTS * np.arange(SEGMENTS):
        x, y = RING_RADIUS * np.cos(angle), RING_RADIUS * np.sin(angle)
        tube += (
            f'<geom class="graspable" type="capsule" size="{TUBE_RADIUS} {half:.5f}" condim="3" '
            f'mass="{RING_MASS / SEGMENTS}" pos="{x:.5f} {y:.5f} 0" zaxis="{-y:.5f} {x:.5f} 0" '
            'rgba="1 .1 .95 1"/>'
        )
    x, y = START_PEG_LOWER
    return f'<body name="{_RING.body}" pos="{x} {y} {_RING.rest}"><freejoint/>{tube}</body>'
