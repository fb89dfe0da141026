"""Rigid motions in the arm's base frame: rotation conversions, Pose, and deltas in a stated frame.

Plain scalar arithmetic: at 3x3 a NumPy call costs more than the computation, and each control step
runs these many times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from robot.types import Array


class DeltaFrame(Enum):
    """The axes in which a delta is expressed. The rotation always turns about the tool point."""

    BASE = "base"  # translation along the base axes, rotation about axes parallel to them
    TOOL = "tool"  # translation and rotation along and about the tool's own axes


def rotvec_to_matrix(rotvec: Array) -> Array:
    """Rotation matrix (3, 3) of a rotation vector (3,) [rad]."""
    x, y, z = rotvec.tolist()
    square = x * x + y * y + z * z
    if square < 1e-10:
        first, second = 1.0 - square / 6.0, 0.5 - square / 24.0
    else:
        angle = math.sqrt(square)
        first = math.sin(angle) / angle
        second = 2.0 * math.sin(0.5 * angle) ** 2 / square
    # R = I + first [v] + second [v]^2, with [v]^2 = v v^T - |v|^2 I (Rodrigues)
    xy, xz, yz = second * x * y, second * x * z, second * y * z
    fx, fy, fz = first * x, first * y, first * z
    return np.array(
        [
            [1.0 - second * (y * y + z * z), xy - fz, xz + fy],
            [xy + fz, 1.0 - second * (x * x + z * z), yz - fx],
            [xz - fy, yz + fx, 1.0 - second * (x * x + y * y)],
        ]
    )


def _matrix_to_quat(rotation: Array) -> tuple[float, float, float, float]:
    (a, b, c), (d, e, f), (g, h, i) = rotation.tolist()
    # Solve for the largest component first (Shepperd): well conditioned at every angle, pi included.
    trace = a + e + i
    if trace >= max(a, e, i):
        x, y, z, w = h - f, c - g, d - b, 1.0 + trace
    elif a >= e and a >= i:
        x, y, z, w = 1.0 + a - e - i, b + d, c + g, h - f
    elif e >= i:
        x, y, z, w = b + d, 1.0 - a + e - i, f + h, c - g
    else:
        x, y, z, w = c + g, f + h, 1.0 - a - e + i, d - b
    scale = math.copysign(1.0 / math.sqrt(x * x + y * y + z * z + w * w), w)
    return x * scale, y * scale, z * scale, w * scale


def matrix_to_quat(rotation: Array) -> Array:
    """Unit quaternion xyzw (4,) with w >= 0 of a rotation matrix (3, 3)."""
    return np.array(_matrix_to_quat(rotation))


def matrix_to_rotvec(rotation: Array) -> Array:
    """Rotation vector (3,) [rad], of length at most pi, of a rotation matrix (3, 3)."""
    x, y, z, w = _matrix_to_quat(rotation)
    sine = math.sqrt(x * x + y * y + z * z)
    factor = 2.0 * math.atan2(sine, w) / sine if sine > 1e-12 else 2.0
    return np.array([factor * x, factor * y, factor * z])


def quat_to_matrix(quat: Array) -> Array:
    """Rotation matrix (3, 3) of a quaternion xyzw (4,), normalised here; raises ValueError for a zero one."""
    x, y, z, w = quat.tolist()
    square = x * x + y * y + z * z + w * w
    if not square > 1e-12:
        raise ValueError(f"quat_to_matrix: expected a quaternion xyzw of length about 1, got {quat}")
    s = 2.0 / square
    return np.array(
        [
            [1.0 - s * (y * y + z * z), s * (x * y - z * w), s * (x * z + y * w)],
            [s * (x * y + z * w), 1.0 - s * (x * x + z * z), s * (y * z - x * w)],
            [s * (x * z - y * w), s * (y * z + x * w), 1.0 - s * (x * x + y * y)],
        ]
    )


@dataclass(frozen=True, slots=True, eq=False)
class Pose:
    """Position (3,) [m] and rotation matrix (3, 3); maps coordinates of the posed frame to the base frame."""

    position: Array
    rotation: Array

    def compose(self, other: Pose) -> Pose:
        """The pose of `other`, given relative to this pose, in the base frame."""
        return Pose(self.position + self.rotation @ other.position, self.rotation @ other.rotation)

    def inverse(self) -> Pose:
        """The pose that undoes this one: `pose.compose(pose.inverse())` is the identity."""
        return Pose(-(self.rotation.T @ self.position), self.rotation.T)


def apply_delta(pose: Pose, delta: Array, frame: DeltaFrame) -> Pose:
    """Move `pose` by `delta` (6,): translation [m] then rotation vector [rad], both in the axes of `frame`.

    Translation and rotation do not mix: wherever the pose lies, a pure translation keeps the rotation
    and a pure rotation keeps the position.
    """
    turn = rotvec_to_matrix(delta[3:])
    match frame:
        case DeltaFrame.BASE:
            return Pose(pose.position + delta[:3], turn @ pose.rotation)
        case DeltaFrame.TOOL:
            return Pose(pose.position + pose.rotation @ delta[:3], pose.rotation @ turn)


def delta_between(start: Pose, end: Pose, frame: DeltaFrame) -> Array:
    """The delta (6,) [m, rad] for which `apply_delta(start, delta, frame)` is `end`."""
    shift = end.position - start.position
    match frame:
        case DeltaFrame.BASE:
            turn = end.rotation @ start.rotation.T
        case DeltaFrame.TOOL:
            shift = start.rotation.T @ shift
            turn = start.rotation.T @ end.rotation
    return np.concatenate((shift, matrix_to_rotvec(turn)))
