"""Builds the MJCF of the simulated cell: an A1X-like arm of primitives, cameras, table, objects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robot.kinematics import (
    FINGER_MASS,
    FINGER_STROKE,
    GRIPPER_MASS,
    GRIPPER_OFFSET,
    JOINTS,
    TOOL_OFFSET,
)
from robot.types import Array

SIDE_VIEW, WRIST_VIEW, WRIST_ZOOM_VIEW = "side", "wrist", "wrist_zoom"
SITE_TCP = "tcp"
FINGER_JOINTS = ("finger_left", "finger_right")


@dataclass(frozen=True)
class _Link:
    """Inertia (vendor URDF, link frame) and looks of the link behind a joint; servo gains of that joint."""

    center: str  # m
    inertia: str  # kg m^2, principal
    geoms: str
    kp: float  # Nm/rad
    kv: float  # Nm s/rad


# Gains: stiff enough that the tool trails its target by 2 to 3 mm at 0.2 m/s and by less than 0.05 mm at rest
# (tests/robot/test_sim.py). Softer servos let a descending tool drift sideways, which costs insertions: at
# 0.12 m/s straight down these let the tip of a held block drift by 0.4 mm, a quarter of them by 1.0 mm. A push
# of 10 N against the tool, pointing down, moves it by 3 mm sideways and by 1 mm upwards.
_LINKS = (
    _Link(
        "0 -0.002 0.0469", "2.24e-4 2.70e-4 2.19e-4",
        '<geom type="cylinder" size=".035 .045" pos="0 0 .03"/>',
        800, 13,
    ),
    _Link(
        "-0.1227 -0.0295 0.0037", "3.9e-4 2.75e-3 2.78e-3",
        '<geom type="capsule" size=".028" fromto="0 -.03 0 -.3 -.03 0"/>'
        '<geom type="cylinder" size=".036 .035" pos="0 -.03 0" zaxis="0 1 0"/>'
        '<geom type="cylinder" size=".034 .035" pos="-.3 -.03 0" zaxis="0 1 0"/>',
        1600, 27,
    ),
    _Link(
        "0.0567 -0.0291 0.0568", "2.6e-4 6.7e-4 5.5e-4",
        '<geom type="capsule" size=".026" fromto="0 -.03 0 .08 -.03 .075"/>'
        '<geom type="capsule" size=".026" fromto=".08 -.03 .075 .1747 -.03 .0755"/>',
        1000, 16,
    ),
    _Link(
        "0.07 -0.02875 0.0542", "6.6e-5 6.8e-5 6.7e-5",
        '<geom type="box" size=".045 .026 .028" pos=".045 -.03 .03"/>',
        320, 4,
    ),
    _Link(
        "-0.0008 0 -0.0403", "5.8e-5 5.8e-5 5.7e-5",
        '<geom type="cylinder" size=".024 .02" pos="0 0 -.04"/>',
        160, 2,
    ),
    _Link(
        "0.0071 0 -0.0383", "5e-6 3e-6 3e-6",
        '<geom type="cylinder" size=".028 .02" pos=".03 0 0" zaxis="1 0 0"/>',
        160, 2,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class SceneObjects:
    """What a task puts on the table: bodies (MJCF in worldbody) and pairs of bodies that must not collide.

    Geom classes: `graspable` for free bodies, `fixture` for fixed ones, `paint` for looks alone. A fixed body
    that is placed anew in each episode is a mocap body, so that its pose is part of the physics state. MuJoCo
    does not filter contacts between such a body and its children: name those pairs in `exclude`.
    held: geoms (MJCF, gripper frame) welded to the gripper, of class `pad`: a workpiece that is never let go.
    """

    bodies: str
    exclude: tuple[tuple[str, str], ...] = ()
    held: str = ""


@dataclass(frozen=True)
class SceneConfig:
    """Physics and cameras of the cell."""

    # A lever pressed at 5 ms differs from one at 1 ms by 0.6 mm; thin or light parts in contact want 2.5 ms.
    timestep: float = 0.005  # s
    side_position: tuple[float, float, float] = (0.43, 0.62, 0.30)  # m
    side_target: tuple[float, float, float] = (0.33, 0.0, 0.10)  # m
    side_fovy: float = 29.0  # degrees
    wrist_position: tuple[float, float, float] = (-0.03, 0.0, 0.09)  # m, gripper frame: on its bracket
    wrist_target: tuple[float, float, float] = (0.17, 0.0, 0.0)  # m, gripper frame: beyond the fingertips
    wrist_fovy: float = 72.0  # degrees
    # What a crop of a large wrist image gives: at 64 px about 1.3 mm per pixel around the fingertips.
    wrist_zoom_target: tuple[float, float, float] = (0.10, 0.0, 0.0)  # m, gripper frame
    wrist_zoom_fovy: float = 28.0  # degrees

    def __post_init__(self) -> None:
        if not 0.0005 <= self.timestep <= 0.01:
            raise ValueError(f"SceneConfig.timestep: expected 0.0005 to 0.01 s, got {self.timestep}")


def build_scene(objects: SceneObjects, config: SceneConfig) -> str:
    """The MJCF of the whole cell, with no shadows, no multisampling and coarse meshes: vertices cost most."""
    side = _camera(
        SIDE_VIEW, config.side_position, config.side_target, np.array([0.0, 0.0, 1.0]), config.side_fovy
    )
    exclude = "".join(f'<exclude body1="{a}" body2="{b}"/>' for a, b in objects.exclude)
    return f"""
<mujoco model="groundhog">
  <compiler angle="radian" autolimits="true"/>
  <option timestep="{config.timestep}" integrator="implicitfast" cone="elliptic" impratio="10"/>
  <visual>
    <quality shadowsize="0" offsamples="0" numslices="12" numstacks="6" numquads="1"/>
    <headlight ambient=".42 .42 .42" diffuse=".3 .3 .3" specular="0 0 0"/>
    <map znear=".02" zfar="5"/>
  </visual>
  <statistic center=".3 0 .1" extent="1"/>
  <default>
    <joint damping=".6" armature=".02" frictionloss=".05"/>
    <default class="arm"><geom rgba=".09 .09 .10 1" contype="2" conaffinity="1" mass="0"/></default>
    <default class="pad"><geom contype="2" conaffinity="1" friction="1.2 .02 .001" condim="4" solref=".01 1"
      solimp=".95 .99 .001" mass="0"/></default>
    <default class="paint"><geom contype="0" conaffinity="0" mass="0"/></default>
    <default class="graspable"><geom contype="1" conaffinity="3" friction="1 .01 .001" condim="4"
      solref=".01 1" solimp=".95 .99 .001"/></default>
    <default class="fixture"><geom contype="1" conaffinity="3" solref=".01 1" solimp=".95 .99 .001"/>
    </default>
  </default>
  <worldbody>
    <light pos=".2 .5 1.4" dir=".1 -.3 -1" diffuse=".5 .5 .5" specular="0 0 0" castshadow="false"/>
    <geom class="fixture" name="mat" type="box" size="1 .7 .02" pos=".35 0 -.02" rgba=".12 .56 .52 1"/>
    <geom class="paint" name="wall" type="box" size="2 .01 1" pos=".35 -.7 0" rgba=".72 .74 .77 1"/>
    {side}
    {_arm(config, objects.held)}
    {objects.bodies}
  </worldbody>
  <equality>
    <joint joint1="{FINGER_JOINTS[1]}" joint2="{FINGER_JOINTS[0]}" polycoef="0 1 0 0 0" solref=".01 1"/>
  </equality>
  <contact>{exclude}</contact>
  <actuator>{_servos()}</actuator>
</mujoco>"""


def _arm(config: SceneConfig, held: str) -> str:
    opened = "".join(
        f'<body name="{joint.name}_link" pos="{_text(joint.offset)}" gravcomp="1" childclass="arm">'
        f'<inertial pos="{link.center}" mass="{joint.link_mass}" diaginertia="{link.inertia}"/>'
        f'<joint name="{joint.name}" axis="{_text(joint.axis)}" range="{joint.lower} {joint.upper}" '
        f'actuatorfrcrange="{-joint.effort} {joint.effort}"/>{link.geoms}'
        for joint, link in zip(JOINTS, _LINKS, strict=True)
    )
    base = '<geom class="arm" type="box" size=".05 .05 .03" pos="0 0 .03"/>'
    return base + opened + _gripper(config, held) + "</body>" * len(JOINTS)


def _gripper(config: SceneConfig, held: str) -> str:
    # The up axis of the wrist views is +z of the gripper frame: the fingers enter the image from below.
    wrist = "".join(
        _camera(name, config.wrist_position, target, np.array([0.0, 0.0, 1.0]), fovy)
        for name, target, fovy in (
            (WRIST_VIEW, config.wrist_target, config.wrist_fovy),
            (WRIST_ZOOM_VIEW, config.wrist_zoom_target, config.wrist_zoom_fovy),
        )
    )
    x, _, z = config.wrist_position
    fingers = "".join(_finger(name, side) for name, side in zip(FINGER_JOINTS, (1, -1), strict=True))
    return f"""
<body name="gripper" pos="{GRIPPER_OFFSET} 0 0" gravcomp="1" childclass="arm">
  <inertial pos="-.031 0 0" mass="{GRIPPER_MASS}" diaginertia="1.76e-4 9.9e-5 1.65e-4"/>
  <geom type="box" size=".035 .06 .025" pos="-.03 0 0"/>
  <geom class="paint" type="box" size=".012 .03 {z / 2 - 0.015}" pos="{x} 0 {z / 2}" rgba=".93 .76 .08 1"/>
  <site name="{SITE_TCP}" pos="{TOOL_OFFSET} 0 0" size=".001" group="5"/>
  {wrist}{held}{fingers}
</body>"""


def _finger(name: str, side: int) -> str:
    return f"""
<body name="{name}_link" pos=".03689 {side * 0.0005} 0" gravcomp="1">
  <inertial pos="-.0196 {side * 0.008} 0" mass="{FINGER_MASS}" diaginertia="2.4e-6 5.7e-6 6.5e-6"/>
  <joint name="{name}" type="slide" axis="0 {side} 0" range="0 {FINGER_STROKE}" damping="8" armature=".2"/>
  <geom class="pad" type="box" size=".033 .006 .011" pos=".004 {side * 0.006} 0" rgba=".3 .3 .32 1"/>
  <geom class="paint" type="box" size=".033 .001 .0112" pos=".004 {side * 0.013} 0" rgba=".85 .1 .12 1"/>
</body>"""


def _servos() -> str:
    arm = "".join(
        f'<position name="{joint.name}" joint="{joint.name}" kp="{link.kp}" kv="{link.kv}" '
        f'ctrlrange="{joint.lower} {joint.upper}" forcerange="{-joint.effort} {joint.effort}"/>'
        for joint, link in zip(JOINTS, _LINKS, strict=True)
    )
    grip = (
        f'<position name="gripper" joint="{FINGER_JOINTS[0]}" kp="400" kv="10" '
        f'ctrlrange="0 {FINGER_STROKE}" forcerange="-40 40"/>'
    )
    return arm + grip


def _camera(
    name: str,
    position: tuple[float, float, float],
    target: tuple[float, float, float],
    up: Array,
    fovy: float,
) -> str:
    """A camera at `position` that looks at `target`; MJCF wants its image-right and image-up axes."""
    forward = np.subtract(target, position)
    right = np.cross(forward, up)
    right /= np.linalg.norm(right)
    up = np.cross(right, forward)
    up /= np.linalg.norm(up)
    return f'<camera name="{name}" pos="{_text(position)}" xyaxes="{_text((*right, *up))}" fovy="{fovy}"/>'


def _text(values: Array | tuple[float, ...]) -> str:
    return " ".join(f"{value:.9g}" for value in values)
