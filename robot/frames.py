"""The frames in which a policy acts and sees the tool; beyond the base frame, what it learns holds from any start.

Robot applies them between governor and policy: all that is stored is in the frames in which the policy acts and sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from robot.geometry import DeltaFrame, Pose, apply_delta, delta_between
from robot.types import Array


class ProprioFrame(Enum):
    """Where the tool's pose in the proprio is seen from."""

    BASE = "base"  # position in the base frame, rotation from the task's reference rotation
    RESET = "reset"  # both from the tool's own pose at the beginning of the episode


@dataclass(frozen=True)
class Frames:
    """action: axes of the actions, and of velocity and lag in the proprio. proprio: origin of the pose in it."""

    action: DeltaFrame = DeltaFrame.BASE
    proprio: ProprioFrame = ProprioFrame.BASE


class RelativeFrame:
    """Poses as six numbers seen from `origin`: position [m] and rotation vector [rad].

    Its axes are the base's, turned as the tool is turned at the origin from `reference` (3, 3). So the numbers
    stay the same if the start of an episode and its scene are moved and turned together, and x remains what the
    task calls x. Seen from the place 0 with the reference rotation they are coordinates of the base frame.
    """

    def __init__(self, origin: Pose, reference: Array) -> None:
        self._origin = origin
        self._reference = reference

    def relative(self, pose: Pose) -> Array:
        """`pose` in this frame, (6,); zeros at the origin."""
        delta = delta_between(self._origin, pose, DeltaFrame.TOOL)
        return np.concatenate((self._reference @ delta[:3], self._reference @ delta[3:]))

    def absolute(self, relative: Array) -> Pose:
        """The pose that `relative` (6,) stands for, in the base frame."""
        delta = np.concatenate((self._reference.T @ relative[:3], self._reference.T @ relative[3:]))
        return apply_delta(self._origin, delta, DeltaFrame.TOOL)


def along_tool_axes(action: Array, rotation: Array) -> Array:
    """The action (6,) along the axes of a tool with `rotation` (3, 3) that moves as `action` does along base axes.

    Entries lie in [-1, 1], which turned axes may exceed: then position or rotation is shortened, never bent.
    """
    parts = action.reshape(2, 3) @ rotation  # each row v becomes R^T v
    turned: Array = (parts / np.maximum(np.abs(parts).max(axis=1, keepdims=True), 1.0)).ravel()
    return turned
