"""Kinematics of a six-joint arm: forward, Jacobian, and damped-least-squares inverse, in pure NumPy.

The joint table here is that of the Galaxea A1X, from the vendor's URDF; the simulator builds its arm from it too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from robot.geometry import Pose, matrix_to_rotvec
from robot.types import Array


@dataclass(frozen=True, slots=True)
class Joint:
    """One revolute joint and the link that it carries.

    offset: (3,) [m] in the parent link's frame. axis: unit vector (3,). lower, upper [rad]. effort: what the joint is
    rated for [Nm]. link_mass [kg], NaN where it is not known.
    """

    name: str
    offset: tuple[float, float, float]
    axis: tuple[float, float, float]
    lower: float
    upper: float
    effort: float
    link_mass: float = math.nan


X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
JOINTS = (
    Joint("arm_joint1", (0.0, 0.0, 0.08605), Z, -2.8798, 2.8798, 27.0, 0.839),
    Joint("arm_joint2", (0.0, 0.03075, 0.04925), Y, 0.0, 3.1416, 50.0, 1.09),
    Joint("arm_joint3", (-0.3, 0.00025, 0.0), Y, -3.3161, 0.0, 27.0, 0.739),
    Joint("arm_joint4", (0.1747, 0.0005, 0.075485), Y, -1.5708, 1.5708, 14.0, 0.419),
    Joint("arm_joint5", (0.08, -0.0315, 0.0405), Z, -1.5708, 1.5708, 14.0, 0.054),
    Joint("arm_joint6", (0.0225, 0.0, -0.0405), X, -2.8798, 2.8798, 14.0, 0.031),
)
BASE_MASS = 0.786  # kg
GRIPPER_MASS = 0.604  # kg, without the fingers
FINGER_MASS = 0.027  # kg each
GRIPPER_OFFSET = 0.08165  # m, gripper_link along +x of link6
TOOL_OFFSET = 0.0668  # m, tool point between the finger pads, along +x of gripper_link
FINGER_STROKE = 0.05  # m each; the opening of the gripper is twice that

JOINT_LIMITS: Array = np.array([(joint.lower, joint.upper) for joint in JOINTS])  # (6, 2) rad


@dataclass(frozen=True, slots=True, eq=False)
class ArmGeometry:
    """An arm whose link frames are all parallel to the base while every joint is at zero.

    tool: the tool point in the frame of the last link; its approach axis is +x of the pose.
    """

    joints: tuple[Joint, ...]
    tool: Pose

    def __post_init__(self) -> None:
        if len(self.joints) != 6 or not all(joint.lower < joint.upper for joint in self.joints):
            raise ValueError(f"ArmGeometry.joints: expected six with lower < upper, got {self.joints}")


def a1x_geometry(tool_offset: float = TOOL_OFFSET) -> ArmGeometry:
    """The A1X with its tool point `tool_offset` [m] along +x of gripper_link."""
    return ArmGeometry(JOINTS, Pose(np.array([GRIPPER_OFFSET + tool_offset, 0.0, 0.0]), np.eye(3)))


@dataclass(frozen=True, slots=True)
class IKConfig:
    """Damped least squares, J^T (J J^T + damping^2 I)^-1 e."""

    damping: float = 0.03  # at errors of `damping_error` and more; less as the error shrinks
    damping_error: float = 0.1  # norm of the error [m, rad]
    max_iterations: int = 12
    position_tolerance: float = 1e-4  # m
    rotation_tolerance: float = 1e-3  # rad
    max_step: float = 0.2  # rad per joint and iteration
    joint_margin: float = 0.03  # rad kept from each joint limit

    def __post_init__(self) -> None:
        for name in ("damping", "damping_error", "position_tolerance", "rotation_tolerance", "max_step"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"IKConfig.{name}: expected a positive number, got {getattr(self, name)}")
        if self.max_iterations < 1 or not self.joint_margin >= 0.0:
            raise ValueError(
                "IKConfig: expected max_iterations >= 1 and joint_margin >= 0, "
                f"got {self.max_iterations} and {self.joint_margin}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class IKResult:
    """Joints (6,) [rad] of the last iterate and its pose errors [m] and [rad]."""

    joint_positions: Array
    position_error: float
    rotation_error: float
    iterations: int
    converged: bool


class Kinematics:
    """The arm's geometry, by default the A1X's, from joints to the tool point (tcp), whose approach axis is +x.

    joint_limits: (6, 2) [rad]. effort_limits: (6,) [Nm].
    """

    def __init__(self, geometry: ArmGeometry | None = None) -> None:
        geometry = geometry or a1x_geometry()
        joints = geometry.joints
        self.joint_limits = np.array([(joint.lower, joint.upper) for joint in joints])
        self.effort_limits = np.array([joint.effort for joint in joints])
        self._tool = np.eye(4)
        self._tool[:3, :3], self._tool[:3, 3] = geometry.tool.rotation, geometry.tool.position
        # Rodrigues per joint: local transform = cos q * C + sin q * S + K, with the parent offset inside K.
        self._cos, self._sin, self._constant = (np.zeros((6, 4, 4)) for _ in range(3))
        self._axes = np.array([joint.axis for joint in joints])
        for i, (joint, (x, y, z)) in enumerate(zip(joints, self._axes, strict=True)):
            parallel = np.outer(self._axes[i], self._axes[i])
            self._cos[i, :3, :3] = np.eye(3) - parallel
            self._sin[i, :3, :3] = [[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]]
            self._constant[i, :3, :3] = parallel
            self._constant[i, :3, 3] = joint.offset
            self._constant[i, 3, 3] = 1.0

    def forward(self, joint_positions: Array) -> Pose:
        """Pose of the tool point in the base frame at joints (6,) [rad]."""
        chain = self._chain(joint_positions)[6]
        return Pose(chain[:3, 3].copy(), chain[:3, :3].copy())

    def jacobian(self, joint_positions: Array) -> Array:
        """(6, 6): linear [m/rad] then angular velocity of the tool point per joint velocity, base axes."""
        return self._jacobian(self._chain(joint_positions))

    def inverse(self, target: Pose, seed: Array, config: IKConfig | None = None) -> IKResult:
        """Joints near `seed` (6,) [rad] that bring the tool point to `target`.

        Stays on the seed's branch by small capped steps and never searches elsewhere: a target that this
        cannot reach comes back with `converged` False and the errors that remain.
        """
        config = config or IKConfig()
        lower = self.joint_limits[:, 0] + config.joint_margin
        upper = self.joint_limits[:, 1] - config.joint_margin
        joints = np.minimum(np.maximum(seed, lower), upper)
        iteration = 0
        while True:
            chain = self._chain(joints)
            tool = chain[6]
            error = np.concatenate(
                (target.position - tool[:3, 3], matrix_to_rotvec(target.rotation @ tool[:3, :3].T))
            )
            position_error, rotation_error = math.hypot(*error[:3].tolist()), math.hypot(*error[3:].tolist())
            converged = (
                position_error <= config.position_tolerance and rotation_error <= config.rotation_tolerance
            )
            if converged or iteration == config.max_iterations:
                return IKResult(joints, position_error, rotation_error, iteration, converged)
            # Full damping far away, little near the solution, where it would only slow convergence.
            damping = config.damping * min(
                1.0, 0.1 + math.hypot(position_error, rotation_error) / config.damping_error
            )
            jacobian = self._jacobian(chain)
            step = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + damping**2 * np.eye(6), error)
            peak = float(np.abs(step).max())
            if peak > config.max_step:
                step *= config.max_step / peak
            joints = np.minimum(np.maximum(joints + step, lower), upper)
            iteration += 1

    def _chain(self, joint_positions: Array) -> Array:
        """(7, 4, 4): transforms of the six joint frames and of the tool point in the base frame."""
        angles = joint_positions[:, None, None]
        local = np.cos(angles) * self._cos + np.sin(angles) * self._sin + self._constant
        chain = np.empty((7, 4, 4))
        chain[0] = local[0]
        for i in range(1, 6):
            np.matmul(chain[i - 1], local[i], out=chain[i])
        np.matmul(chain[5], self._tool, out=chain[6])
        return chain

    def _jacobian(self, chain: Array) -> Array:
        # A joint's axis is the same in its frame before and after the turn, so the frame after serves.
        axes = (chain[:6, :3, :3] * self._axes[:, None, :]).sum(axis=2).T
        arms = (chain[6, :3, 3] - chain[:6, :3, 3]).T
        jacobian = np.empty((6, 6))
        jacobian[0] = axes[1] * arms[2] - axes[2] * arms[1]
        jacobian[1] = axes[2] * arms[0] - axes[0] * arms[2]
        jacobian[2] = axes[0] * arms[1] - axes[1] * arms[0]
        jacobian[3:] = axes
        return jacobian
