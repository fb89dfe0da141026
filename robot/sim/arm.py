"""SimArm: the simulated arm behind the Arm contract; SimFaults: what tests inject into it and its cameras."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from robot.interfaces import ArmState, DeviceError
from robot.kinematics import JOINT_LIMITS
from robot.sim.world import SimWorld
from robot.types import Array


@dataclass
class SimFaults:
    """Sensor faults, switched on and off by writing the fields while the cell runs."""

    nan_joint: int | None = None  # this joint's position reads NaN
    frozen_feedback: bool = False  # the same payload again and again, under new timestamps
    stale_feedback: bool = False  # no new message arrives: payload and timestamp stay
    stalled_views: set[str] = field(default_factory=set)  # these cameras keep their last image and timestamp


class SimArm:
    """The arm of a SimWorld."""

    def __init__(self, world: SimWorld, faults: SimFaults | None = None) -> None:
        self.joint_limits: Array = JOINT_LIMITS.copy()
        self._world = world
        self._faults = faults or SimFaults()
        self._connected = False
        self._last: ArmState | None = None

    def connect(self) -> None:
        """Make the arm usable; the simulated one is always there."""
        self._connected = True

    def state(self) -> ArmState:
        """The measured state at the present time."""
        self._require_connected()
        self._world.advance()
        world, faults = self._world, self._faults
        if self._last is not None and faults.stale_feedback:
            return replace(self._last, commanded=world.servo_goal)
        if self._last is not None and faults.frozen_feedback:
            return replace(self._last, timestamp=world.timestamp, commanded=world.servo_goal)
        joints = world.joint_positions
        if faults.nan_joint is not None:
            joints[faults.nan_joint] = np.nan
        self._last = ArmState(
            joints,
            world.joint_velocities,
            world.joint_efforts,
            world.gripper_opening,
            world.timestamp,
            world.servo_goal,
        )
        return self._last

    def send_joints(self, joint_positions: Array, duration: float) -> None:
        """Move linearly in joint space to finite (6,) [rad] within `duration` [s]; raises DeviceError."""
        self._require_connected()
        if joint_positions.shape != (6,) or not np.isfinite(joint_positions).all():
            raise DeviceError(f"simulated arm: expected six finite joint angles, got {joint_positions}")
        self._world.move_joints(joint_positions, duration)

    def send_gripper(self, opening: float) -> None:
        """Drive the gripper to `opening` in [0, 1]."""
        self._require_connected()
        if not 0.0 <= opening <= 1.0:
            raise DeviceError(f"simulated arm: expected a gripper opening in [0, 1], got {opening}")
        self._world.move_gripper(opening)

    def hold(self) -> None:
        """Stop at the true joints, whatever the sensors say, and stay."""
        self._world.stop()

    def close(self) -> None:
        """Hold, then refuse further commands until connected again."""
        self.hold()
        self._connected = False

    def _require_connected(self) -> None:
        if not self._connected:
            raise DeviceError("simulated arm: not connected; call connect() first")
