"""TargetLimiter: moves the target pose by a delta as far as every limit allows. The governor's arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from robot.feedback import Fault, FeedbackLimits, Reason
from robot.geometry import DeltaFrame, Pose, apply_delta, delta_between, matrix_to_rotvec, rotvec_to_matrix
from robot.kinematics import IKConfig, Kinematics
from robot.trajectory import joint_ramp
from robot.types import Array

# Tool axis (+x of the tool) along -z of the base, fingers closing along y.
TOOL_DOWN: Array = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
ROUNDING = 1e-9  # a smaller excess over a cap is arithmetic, not a clip
EXECUTED_ROUNDING = 1e-6  # excess over 1 of an executed action that is arithmetic
SHORTEN_TRIES = 4  # IK solutions per command until the step is short enough
MIN_SHARE = 1e-3  # a step shortened to less than this share is not worth its IK solution
JOINT_TOLERANCE = 1e-3  # rad beyond a limit that an encoder may show
RESET_FLOOR_TOLERANCE = 5e-3  # m


class ClipReason(StrEnum):
    """Why the executed action differs from the requested one."""

    BOX = "box"
    ORIENTATION = "orientation"
    STEP = "step"
    LEASH = "leash"
    SPEED = "speed"
    IK = "ik"
    GRIPPER = "gripper"
    HOLD = "hold"
    ACTION = "action"  # beyond [-1, 1]


@dataclass(frozen=True, slots=True)
class ActionScale:
    """What an action entry of 1 means: position [m] and rotation [rad] per control step; 0 locks it."""

    position: float
    rotation: float

    def __post_init__(self) -> None:
        if not (0.0 <= self.position <= 0.1 and 0.0 <= self.rotation <= 0.5):
            raise ValueError(
                "ActionScale: expected position in [0, 0.1] m and rotation in [0, 0.5] rad, "
                f"got {self.position} m and {self.rotation} rad"
            )


class Target(NamedTuple):
    """Where the arm is sent: the tool pose, and the joints (6,) [rad] that reach it within IK tolerance."""

    pose: Pose
    joint_positions: Array


@dataclass(frozen=True, slots=True, eq=False)
class Advance:
    """The new target, the executed delta (6,) in units of the action scale, and what shortened it."""

    target: Target
    executed: Array
    clipped: set[ClipReason]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SafetyConfig:
    """Limits of one cell and task. The workspace has no default: measure the cell before anything moves."""

    workspace_lower: Array  # (3,) m, tool point, base frame
    workspace_upper: Array  # (3,) m
    reference_rotation: Array = field(default_factory=TOOL_DOWN.copy)  # (3, 3)
    rotation_limit: Array = field(default_factory=lambda: np.array([0.35, 0.35, 1.2]))
    # (3,) rad, per base axis of the rotation vector from the reference to the target
    max_position_step: float = 0.01  # m per control step
    max_rotation_step: float = 0.1  # rad per control step
    max_joint_speed: float = 0.6  # rad/s
    max_joint_acceleration: float = 1.0  # rad/s^2, resets
    leash_position: float = 0.03  # m between target and measured tool point
    leash_joint: float = math.radians(6.0)  # rad between target and measured joint
    ik_position_tolerance: float = 2e-3  # m of residual
    ik_rotation_tolerance: float = 0.02  # rad of residual
    max_ik_step: float = 0.3  # rad between successive solutions; more is another branch
    gripper_threshold: float = 0.5  # action at or beyond +-this opens or closes, between keeps
    gripper_min_toggle_time: float = 0.4  # s
    silence_hold: float = 0.30  # s without a command
    silence_fault: float = 0.75  # s
    control_period: float = 0.1  # s
    ik: IKConfig = field(default_factory=IKConfig)
    feedback: FeedbackLimits = field(default_factory=FeedbackLimits)

    def __post_init__(self) -> None:
        for name, shape in (
            ("workspace_lower", (3,)),
            ("workspace_upper", (3,)),
            ("reference_rotation", (3, 3)),
            ("rotation_limit", (3,)),
        ):
            value = np.array(getattr(self, name), dtype=np.float64)
            if value.shape != shape or not np.isfinite(value).all():
                raise ValueError(f"SafetyConfig.{name}: expected finite {shape}, got {value}")
            object.__setattr__(self, name, value)
        if not (self.workspace_lower < self.workspace_upper).all():
            raise ValueError("SafetyConfig: expected workspace_lower < workspace_upper in every axis")
        rotation = self.reference_rotation
        if np.abs(rotation @ rotation.T - np.eye(3)).max() > 1e-6 or np.linalg.det(rotation) < 0:
            raise ValueError(f"SafetyConfig.reference_rotation: expected a rotation matrix, got {rotation}")
        # Limit plus the largest step must stay below pi, or the rotation vector would wrap around.
        if not ((self.rotation_limit >= 0).all() and np.linalg.norm(self.rotation_limit) <= 2.2):
            raise ValueError("SafetyConfig.rotation_limit: expected entries >= 0 rad of norm <= 2.2 rad")
        for name in (
            *("max_position_step", "max_rotation_step", "max_joint_speed", "max_joint_acceleration"),
            *("leash_position", "leash_joint", "ik_position_tolerance", "ik_rotation_tolerance"),
            *("max_ik_step", "silence_hold", "control_period"),
        ):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(
                    f"SafetyConfig.{name}: expected a positive number, got {getattr(self, name)}"
                )
        if not (0.0 < self.gripper_threshold <= 1.0 and self.gripper_min_toggle_time >= 0.0):
            raise ValueError(
                "SafetyConfig: expected gripper_threshold in (0, 1], gripper_min_toggle_time >= 0 s"
            )
        if not self.silence_fault >= self.silence_hold > self.control_period:
            raise ValueError(
                "SafetyConfig: expected silence_fault >= silence_hold > control_period, or the arm would be stopped "
                f"between two commands; got {self.silence_fault}, {self.silence_hold} and {self.control_period} s: "
                "raise robot.control_hz"
            )
        if not self.feedback.lag > self.leash_joint:
            raise ValueError(
                "SafetyConfig: expected feedback.lag > leash_joint, or pressing would be a fault; "
                f"got {self.feedback.lag} and {self.leash_joint} rad"
            )


class TargetLimiter:
    """Knows the limits and the arm's geometry; keeps no state of its own."""

    def __init__(self, config: SafetyConfig, kinematics: Kinematics) -> None:
        self._config = config
        self._kinematics = kinematics

    def at(self, joint_positions: Array) -> Target:
        """The target at rest at these joints (6,), within the limits or not."""
        return Target(self._kinematics.forward(joint_positions), joint_positions.copy())

    def violation(self, joint_positions: Array, *, slack: bool = False) -> Fault | None:
        """The limit of joints, box or orientation that an arm at rest at these joints (6,) violates.

        slack: by more than the leash, which is how far an arm may be behind a target within the limits.
        """
        config = self._config
        apart, turned = (config.leash_position, config.leash_joint) if slack else (0.0, 0.0)
        limits = self._kinematics.joint_limits
        excess = np.maximum(limits[:, 0] - joint_positions, joint_positions - limits[:, 1])
        if excess.max() > JOINT_TOLERANCE + turned:
            return Fault(
                Reason.JOINT_LIMITS,
                float(excess.max()),
                f"joint {int(excess.argmax()) + 1} is {excess.max():.3f} rad beyond its limit; "
                "move it back by hand",
            )
        pose = self._kinematics.forward(joint_positions)
        outside = np.maximum(config.workspace_lower - pose.position, pose.position - config.workspace_upper)
        if outside.max() > apart:
            return Fault(
                Reason.OUTSIDE_BOX,
                float(outside.max()),
                f"the tool point {pose.position.round(4)} m is outside the workspace "
                f"{config.workspace_lower} .. {config.workspace_upper} m; reset the arm into it",
            )
        turn = np.abs(self._rotvec(pose.rotation)) - config.rotation_limit
        if turn.max() > turned:
            return Fault(
                Reason.OUTSIDE_ORIENTATION,
                float(turn.max()),
                f"the tool is {turn.max():.3f} rad beyond rotation_limit {config.rotation_limit} rad "
                f"about base axis {'xyz'[int(turn.argmax())]}; reset the arm into it",
            )
        return None

    def advance(
        self,
        target: Target,
        action: Array,
        scale: ActionScale,
        frame: DeltaFrame,
        measured: Array,
        elapsed: float,
    ) -> Advance:
        """Move `target` by `action` (6,) in [-1, 1] times `scale`, on a leash to the `measured` joints (6,).

        elapsed: seconds since the last command, which bound the joint motion. Where no part of the motion
        is allowed, the target stays.
        """
        clipped: set[ClipReason] = set()
        unit = np.repeat([scale.position or 1.0, scale.rotation or 1.0], 3)
        rotvec = self._rotvec(target.pose.rotation)
        shift, turn = self._clip(target.pose, rotvec, action, scale, frame, measured, clipped)
        share = self._step_share(shift, turn, clipped)
        seed = target.joint_positions
        for _ in range(SHORTEN_TRIES):
            if not (share > MIN_SHARE and (shift.any() or turn.any())):
                break
            rotation = target.pose.rotation
            if turn.any():
                rotation = rotvec_to_matrix(rotvec + share * turn) @ self._config.reference_rotation
            pose = Pose(target.pose.position + share * shift, rotation)
            executed = delta_between(target.pose, pose, frame) / unit
            peak = float(np.abs(executed).max())
            if peak > 1.0 + EXECUTED_ROUNDING:
                clipped.add(ClipReason.STEP)
                share *= (1.0 - 0.5 * EXECUTED_ROUNDING) / peak
                continue
            result = self._kinematics.inverse(pose, seed, self._config.ik)
            step = result.joint_positions - target.joint_positions
            if (
                result.position_error > self._config.ik_position_tolerance
                or result.rotation_error > self._config.ik_rotation_tolerance
            ):
                clipped.add(ClipReason.IK)
                break
            if np.abs(step).max() > self._config.max_ik_step:
                # Another branch, or near full reach, where joints must turn far: there a shorter step is good.
                clipped.add(ClipReason.IK)
                share *= 0.5
                continue
            allowed = self._joint_share(step, target.joint_positions - measured, elapsed, clipped)
            if allowed >= 1.0 - ROUNDING:
                return Advance(Target(pose, result.joint_positions), executed, clipped)
            # A little less than the linear estimate, so that the next solution fits.
            share *= 0.98 * allowed
            seed = target.joint_positions + 0.98 * allowed * step
        return Advance(target, np.zeros(6), clipped)

    def plan_reset(self, start: Array, goal: Array, period: float) -> Array | Fault:
        """Waypoints (N, 6) as `joint_ramp`, or the reason why this straight joint motion is not safe."""
        limits = self._kinematics.joint_limits
        if not (np.isfinite(start).all() and (goal >= limits[:, 0]).all() and (goal <= limits[:, 1]).all()):
            return Fault(
                Reason.RESET_PATH, math.nan, f"expected a goal within the joint limits, got {goal} rad"
            )
        config = self._config
        waypoints = joint_ramp(start, goal, config.max_joint_speed, config.max_joint_acceleration, period)
        heights = np.array([self._kinematics.forward(joints).position[2] for joints in (start, *waypoints)])
        # A folded or displaced arm may start below the floor of the box; then it must not go lower.
        floor = min(float(config.workspace_lower[2]), heights[0], heights[-1])
        if heights.min() < floor - RESET_FLOOR_TOLERANCE:
            return Fault(
                Reason.RESET_PATH,
                float(heights.min()),
                f"the way to {goal} rad takes the tool point down to z = {heights.min():.3f} m, "
                f"below {floor:.3f} m; move through a higher pose first",
            )
        return waypoints

    def _rotvec(self, rotation: Array) -> Array:
        return matrix_to_rotvec(rotation @ self._config.reference_rotation.T)

    def _clip(
        self,
        pose: Pose,
        rotvec: Array,
        action: Array,
        scale: ActionScale,
        frame: DeltaFrame,
        measured: Array,
        clipped: set[ClipReason],
    ) -> tuple[Array, Array]:
        """The wished translation [m] and change of the rotation vector [rad] after leash, box and window."""
        config = self._config
        delta = np.concatenate((action[:3] * scale.position, action[3:] * scale.rotation))
        wish = apply_delta(pose, delta, frame)
        centre = self._kinematics.forward(measured).position
        offset = wish.position - centre
        distance = math.hypot(*offset.tolist())
        position = wish.position
        if distance > config.leash_position * (1.0 + ROUNDING):
            clipped.add(ClipReason.LEASH)
            position = centre + offset * (config.leash_position / distance)
        inside = np.minimum(np.maximum(position, config.workspace_lower), config.workspace_upper)
        if np.abs(inside - position).max() > ROUNDING:
            clipped.add(ClipReason.BOX)
        turned = rotvec
        if delta[3:].any():
            wanted = self._rotvec(wish.rotation)
            turned = np.minimum(np.maximum(wanted, -config.rotation_limit), config.rotation_limit)
            if np.abs(turned - wanted).max() > ROUNDING:
                clipped.add(ClipReason.ORIENTATION)
        shift = inside - pose.position if scale.position > 0.0 else np.zeros(3)
        return shift, turned - rotvec

    def _step_share(self, shift: Array, turn: Array, clipped: set[ClipReason]) -> float:
        # The angle turned is at most the change of the rotation vector: capping the latter caps the former.
        share = 1.0
        for cap, size in (
            (self._config.max_position_step, math.hypot(*shift.tolist())),
            (self._config.max_rotation_step, math.hypot(*turn.tolist())),
        ):
            if size > cap * (1.0 + ROUNDING):
                clipped.add(ClipReason.STEP)
                share = min(share, cap / size)
        return share

    def _joint_share(self, step: Array, lead: Array, elapsed: float, clipped: set[ClipReason]) -> float:
        """Share of the joint step that the speed cap and the leash allow; lead: target minus measured."""
        size = np.maximum(np.abs(step), 1e-12)
        speed = self._config.max_joint_speed * elapsed / float(size.max())
        room = np.maximum(self._config.leash_joint - np.sign(step) * lead, 0.0)
        leash = float((room / size).min())
        if speed < 1.0 - ROUNDING:
            clipped.add(ClipReason.SPEED)
        if leash < 1.0 - ROUNDING:
            clipped.add(ClipReason.LEASH)
        return min(1.0, speed, leash)
