"""A physical cell: its measured workspace and its job (CellConfig), and the person who prepares each episode in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from robot.feedback import FeedbackLimits
from robot.interfaces import Operator
from robot.kinematics import Kinematics
from robot.limiter import ActionScale, SafetyConfig
from robot.tasks import GripperMode, TaskSpec
from robot.types import Array

MAX_STEP = 0.01  # m per control step, whatever the action scale
EFFORT_SHARE = 0.8  # of what the joints are rated for; a motor that pushes with all it has never reports more


@dataclass(frozen=True)
class CellConfig:
    """What a physical arm needs to know of its surroundings. Workspace and reset pose have no default: measure them.

    The tool point stays in [workspace_lower, workspace_upper] [m, base frame], its rotation within `rotation_limit` of
    the one at `reset_joints`.
    """

    workspace_lower: list[float] | None = None  # (3,) m
    workspace_upper: list[float] | None = None  # (3,) m
    reset_joints: list[float] | None = None  # (6,) rad
    rotation_limit: list[float] = field(default_factory=lambda: [0.25, 0.25, 0.25])  # rad per base axis
    instruction: str = ""
    position_step: float = 0.005  # m for an action entry of 1
    rotation_step: float = 0.0  # rad for an action entry of 1; 0 locks the rotation
    gripper: GripperMode = GripperMode.FIXED
    initial_gripper: float = 0.0  # opening, [0, 1]
    max_steps: int = 300
    max_joint_speed: float = 0.6  # rad/s
    effort_limits: list[float] | None = (
        None  # (6,) Nm; None: 80% of what the joints are rated for, where that is known
    )
    confirm_resets: bool = True  # ask the operator before each episode

    def __post_init__(self) -> None:
        if not 0.0 < self.position_step <= MAX_STEP:
            raise ValueError(
                f"robot.cell.position_step: expected more than 0, at most {MAX_STEP} m, got {self.position_step}"
            )
        if not 0.0 < self.max_joint_speed <= 3.0:
            raise ValueError(
                f"robot.cell.max_joint_speed: expected more than 0, at most 3 rad/s, got {self.max_joint_speed}"
            )
        for name, length in (
            *(("workspace_lower", 3), ("workspace_upper", 3), ("rotation_limit", 3)),
            *(("reset_joints", 6), ("effort_limits", 6)),
        ):
            value = getattr(self, name)
            if value is not None and len(value) != length:
                raise ValueError(f"robot.cell.{name}: expected {length} numbers, got {list(value)}")

    def check_measured(self) -> None:
        """Raise ValueError where the workspace or the reset pose is not given."""
        missing = [
            f"robot.cell.{name}"
            for name in ("workspace_lower", "workspace_upper", "reset_joints")
            if getattr(self, name) is None
        ]
        if missing:
            raise ValueError(
                f"{', '.join(missing)}: a physical arm has no default workspace and no default pose; measure "
                "those of your cell (docs/robot.md, first start) and set them"
            )

    def spec(self, task: str, kinematics: Kinematics) -> TaskSpec:
        """The task of this cell; raises ValueError where the reset pose is outside the workspace."""
        self.check_measured()
        reset = np.array(self.reset_joints, dtype=np.float64)
        lower = np.array(self.workspace_lower, dtype=np.float64)
        upper = np.array(self.workspace_upper, dtype=np.float64)
        start = kinematics.forward(reset)
        if not ((lower <= start.position) & (start.position <= upper)).all():
            raise ValueError(
                f"robot.cell.reset_joints: they bring the tool point to {start.position.round(3).tolist()} m, "
                f"outside the workspace {lower.tolist()} .. {upper.tolist()} m"
            )
        return TaskSpec(
            name=task,
            instruction=self.instruction,
            max_steps=self.max_steps,
            action_scale=ActionScale(self.position_step, self.rotation_step),
            workspace_lower=lower,
            workspace_upper=upper,
            reference_rotation=start.rotation,
            rotation_limit=np.array(self.rotation_limit, dtype=np.float64),
            reset_joints=reset,
            gripper_mode=self.gripper,
            initial_gripper=self.initial_gripper,
        )

    def safety(self, spec: TaskSpec, kinematics: Kinematics, control_period: float) -> SafetyConfig:
        """The governor's limits for `spec`, with its defaults for physical arms."""
        rated = EFFORT_SHARE * kinematics.effort_limits
        efforts = rated if self.effort_limits is None else np.array(self.effort_limits)
        if not np.isfinite(efforts).all():
            raise ValueError(
                "robot.cell.effort_limits: what this arm's joints are rated for is not known; set six limits in "
                "Nm, such as three times the efforts of a free motion"
            )
        return SafetyConfig(
            workspace_lower=spec.workspace_lower,
            workspace_upper=spec.workspace_upper,
            reference_rotation=spec.reference_rotation,
            rotation_limit=spec.rotation_limit,
            max_position_step=min(MAX_STEP, sqrt(3.0) * self.position_step),
            max_joint_speed=self.max_joint_speed,
            control_period=control_period,
            feedback=FeedbackLimits(effort_limits=tuple(efforts)),
        )


class AttendedCell:
    """The Workcell of a physical arm: a person prepares the scene. Whether the job is done, it cannot tell."""

    def __init__(self, spec: TaskSpec, operator: Operator | None) -> None:
        self._spec = spec
        self._operator = operator

    def reset(self, rng: np.random.Generator, *, place_arm: bool) -> Array:
        """Ask for the scene of the next episode, where there is an operator; returns the task's reset pose."""
        if place_arm:
            raise ValueError("AttendedCell.reset: a physical arm moves to its place, it cannot be put there")
        if self._operator is not None:
            self._operator.confirm(f"Is the scene ready ({self._spec.instruction or self._spec.name})?")
        return self._spec.reset_joints.copy()

    def success(self) -> bool:
        """False: a person or a learned reward ends the episode with success."""
        return False

    def failure(self) -> str:
        """Nothing is known."""
        return ""
