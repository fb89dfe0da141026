"""TaskSpec: what a task tells the robot, the learner and the reader; the same for real and simulated arms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from robot.frames import ProprioFrame
from robot.safety import ActionScale
from robot.types import Array, ProprioSpec

PROPRIO_NAMES: tuple[str, ...] = (
    *("ee_x", "ee_y", "ee_z"),  # m, in the base frame or from the reset, see ProprioFrame
    *("ee_rx", "ee_ry", "ee_rz"),  # rad, rotation vector from the reference rotation or from the reset
    # Along the axes of actions, as are the lags:
    *("velocity_x", "velocity_y", "velocity_z"),  # m/s over the last control step
    *("angular_velocity_x", "angular_velocity_y", "angular_velocity_z"),  # rad/s
    *("lag_x", "lag_y", "lag_z"),  # m, target minus measured: rises with contact force
    *("lag_rx", "lag_ry", "lag_rz"),  # rad
    "gripper_opening",  # [0, 1]
    "gripper_command",  # held command: -1 closed, +1 open
)
LOCKED_SCALE = ActionScale(position=0.005, rotation=0.03)  # of the proprio where the action scale is 0
POSITION_NAMES, ROTATION_NAMES = PROPRIO_NAMES[:3], PROPRIO_NAMES[3:6]


class GripperMode(Enum):
    """What the seventh action entry does."""

    FIXED = "fixed"  # the gripper keeps the opening it has at reset
    BINARY = "binary"  # >= +.5 opens, <= -.5 closes, anything between keeps


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskSpec:
    """One task. Lengths in metres, angles in radians, base frame; the tool axis is +x of the tool frame.

    An action entry of 1 moves the target by `action_scale`. Success counts once it has held for `hold_steps`
    observations in a row. The tool point stays in [workspace_lower, workspace_upper] (3,), its rotation
    within `rotation_limit` (3,) of `reference_rotation` (3, 3), per axis of the rotation vector.
    goal: entries of the tool's pose that must come near their value where the gripper is next told to change, or at
    success behind the last change -> (range of that distance, tolerance), for a learner that is to see it; empty where
    no such entry decides.
    """

    name: str
    instruction: str
    max_steps: int
    hold_steps: int = 1
    action_scale: ActionScale
    workspace_lower: Array
    workspace_upper: Array
    reference_rotation: Array
    rotation_limit: Array
    reset_joints: Array
    gripper_mode: GripperMode = GripperMode.FIXED
    initial_gripper: float = 0.0  # opening, [0, 1]
    proprio_fine: Mapping[str, float] = field(default_factory=dict)  # name -> saturating scale, SI
    goal: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # name -> coarse and fine scale, SI

    def __post_init__(self) -> None:
        for name, shape in (
            ("workspace_lower", (3,)),
            ("workspace_upper", (3,)),
            ("reference_rotation", (3, 3)),
            ("rotation_limit", (3,)),
            ("reset_joints", (6,)),
        ):
            value = np.asarray(getattr(self, name))
            if value.shape != shape or not np.isfinite(value).all():
                raise ValueError(f"TaskSpec.{name}: expected finite {shape}, got {value}")
        if self.max_steps < 1 or not 1 <= self.hold_steps <= self.max_steps:
            raise ValueError(
                f"TaskSpec: expected 1 <= hold_steps <= max_steps, got {self.hold_steps} and {self.max_steps}"
            )
        if not (self.workspace_lower < self.workspace_upper).all():
            raise ValueError("TaskSpec: workspace_lower must be below workspace_upper in every axis")
        if not 0.0 <= self.initial_gripper <= 1.0:
            raise ValueError(f"TaskSpec.initial_gripper: expected [0, 1], got {self.initial_gripper}")
        unknown = set(self.proprio_fine) - set(PROPRIO_NAMES)
        if unknown:
            raise ValueError(f"TaskSpec.proprio_fine: {sorted(unknown)} not among {PROPRIO_NAMES}")
        for name, scales in self.goal.items():
            if name not in (*POSITION_NAMES, *ROTATION_NAMES) or len(scales) != 2 or not min(scales) > 0.0:
                raise ValueError(
                    f"TaskSpec.goal: expected entries of {(*POSITION_NAMES, *ROTATION_NAMES)} with two scales > 0 "
                    f"(coarse, fine), got {name}: {scales}"
                )

    def proprio(self, control_period: float, frame: ProprioFrame = ProprioFrame.BASE) -> ProprioSpec:
        """Names and scales of the proprio vector at this control period [s], its pose seen from `frame`."""
        center = (self.workspace_lower + self.workspace_upper) / 2
        half_box = (self.workspace_upper - self.workspace_lower) / 2
        # What actions cannot move still shows small velocities and lags.
        position = self.action_scale.position or LOCKED_SCALE.position
        rotation = self.action_scale.rotation or LOCKED_SCALE.rotation
        offset = np.zeros(len(PROPRIO_NAMES))
        offset[:3] = center if frame is ProprioFrame.BASE else 0.0
        offset[18] = 0.5
        scale = np.concatenate(
            [
                half_box,
                np.full(3, 0.25),
                np.full(3, position / control_period),
                np.full(3, rotation / control_period),
                np.full(3, position),
                np.full(3, rotation),
                [0.5, 1.0],
            ]
        )
        fine = np.array([self.proprio_fine.get(name, 0.0) for name in PROPRIO_NAMES])
        return ProprioSpec(
            PROPRIO_NAMES, offset.astype(np.float32), scale.astype(np.float32), fine.astype(np.float32)
        )


def concatenate(first: ProprioSpec, second: ProprioSpec) -> ProprioSpec:
    """The spec of two vectors laid end to end."""
    return ProprioSpec(
        (*first.names, *second.names),
        np.concatenate([first.offset, second.offset]),
        np.concatenate([first.scale, second.scale]),
        np.concatenate([first.fine, second.fine]),
    )
