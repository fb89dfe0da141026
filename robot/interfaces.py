"""What a device must do: Arm, Camera, TeleopSource, Clock. Every driver, real or simulated, keeps these contracts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np

from robot.types import Array, Float32, Image


@dataclass(frozen=True, slots=True)
class ArmState:
    """Measured state of a 6-DoF arm with a parallel gripper, and where its driver sends it.

    joint_positions [rad], joint_velocities [rad/s], joint_efforts [Nm]: (6,). gripper_opening in [0, 1] (0 closed).
    timestamp: when it was measured, seconds on the robot's clock.
    commanded: (6,) [rad] at this moment, whatever the timestamp: where the motion in progress ends or where the arm is
    told to stay; None until something has been commanded since `connect`.
    """

    joint_positions: Array
    joint_velocities: Array
    joint_efforts: Array
    gripper_opening: float
    timestamp: float
    commanded: Array | None

    @property
    def origin(self) -> Array:
        """Joints (6,) [rad] from which the next motion goes on: commanded, and before the first command measured."""
        return self.joint_positions if self.commanded is None else self.commanded


class Arm(Protocol):
    """One arm. Calls return within a few milliseconds and never block on motion."""

    joint_limits: Array  # (6, 2) rad

    def connect(self) -> None:
        """Open the device; raises DeviceError naming the device and the remedy."""

    def state(self) -> ArmState:
        """The newest measured state; its timestamp tells its age. Never invents a value."""

    def send_joints(self, joint_positions: Array, duration: float) -> None:
        """Move linearly in joint space to `joint_positions` (6,) [rad] within `duration` [s]."""

    def send_gripper(self, opening: float) -> None:
        """Drive the gripper to `opening` in [0, 1]."""

    def hold(self) -> None:
        """Stop at the measured joints and keep holding. Must be safe to call at any moment, also twice.

        An arm that is moved away while it holds, by a hand or for want of power, is held where it then is.
        """

    def close(self) -> None:
        """Hold, then release the connection. Never disables an arm without brakes."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One image and when it was captured, seconds on the robot's clock.

    frozen: the camera goes on sending it; its timestamp stays.
    """

    image: Image
    timestamp: float
    frozen: bool = False


class Camera(Protocol):
    """One view. `read` returns the newest frame; a silent camera shows as an old timestamp, not a fresh one."""

    name: str
    height: int
    width: int

    def connect(self) -> None:
        """Open the device; raises DeviceError naming the device and the remedy."""

    def read(self) -> Frame:
        """The newest frame with its capture time, at once; raises DeviceError where the device is lost."""

    def close(self) -> None:
        """Release the device."""


class TeleopEvent(Enum):
    """What a person can say with a key or a button besides moving the arm."""

    SUCCESS = "success"  # this step succeeded: reward 1, terminal
    FAILURE = "failure"  # this episode failed: terminal, reward 0
    STOP = "stop"  # end the run; the arm holds
    DISCARD = "discard"  # do not use this episode


@dataclass(frozen=True, slots=True)
class TeleopCommand:
    """One reading of a correction device.

    delta: (6,) in [-1, 1], position and rotation, along base axes. gripper: held state, +1 open, -1 closed, 0 no
    opinion. engaged: the dead-man is held; only then does `delta` move the arm. age: seconds since the device spoke.
    axes: what each axis of the device itself shows, in [-1, 1]; buttons: numbers of those that are down, or were since
    the last reading; both empty where it has none.
    """

    delta: Array = field(default_factory=lambda: np.zeros(6))
    gripper: float = 0.0
    engaged: bool = False
    events: tuple[TeleopEvent, ...] = ()
    age: float = 0.0
    axes: tuple[float, ...] = ()
    buttons: tuple[int, ...] = ()


class TeleopSource(Protocol):
    """A person's device, or a script in its place."""

    def reset(self) -> None:
        """A new episode begins."""

    def read(self) -> TeleopCommand:
        """The newest command; never blocks."""

    def stop_asked(self) -> bool:
        """STOP was said since the last reading, and stays so until the next; what else was said no longer counts.

        For the way to the start of an episode; never blocks.
        """

    def close(self) -> None:
        """Release the device."""


class Operator(Protocol):
    """The person beside a physical arm."""

    def confirm(self, request: str) -> None:
        """Return once the person has agreed to `request`; raises RobotFault `not_confirmed` where nobody does."""


class Demonstrator(Protocol):
    """A scripted expert; it sees through the world that it works in."""

    def reset(self) -> None:
        """A new episode begins."""

    def act(self) -> Float32:
        """The next action (7,) in [-1, 1], along base axes."""


class Clock(Protocol):
    """Time on the robot's clock, in seconds."""

    def now(self) -> float: ...

    def sleep_until(self, time: float) -> None:
        """Return when `now() >= time`; at once if that has passed."""


class DeviceError(RuntimeError):
    """A device cannot be used; the message names it, what was expected, what came, and the remedy."""


class RobotFault(RuntimeError):
    """The robot stopped for a named reason and holds. Stays until acknowledged.

    name: short identifier such as `stale_frame`, `nan_feedback`, `ik_residual`, `policy_silent`.
    """

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail
