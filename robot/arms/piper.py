"""PiperArm: an AgileX Piper through the vendor's `piper_sdk` over CAN; joint targets go out at 100 Hz from a thread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from robot.arms.stream import JointStream
from robot.geometry import Pose
from robot.interfaces import ArmState, Clock, DeviceError
from robot.kinematics import ArmGeometry, Joint
from robot.types import Array

if TYPE_CHECKING:
    from piper_sdk import C_PiperInterface_V2

# The vendor's modified Denavit-Hartenberg table: a [m], alpha [rad], d [m], angle at zero [rad]; limits [rad].
_LINKS = (
    (0.0, 0.0, 0.123, 0.0, -2.6179, 2.6179),
    (0.0, -math.pi / 2, 0.0, math.radians(-172.22), 0.0, 3.14),
    (0.28503, 0.0, 0.0, math.radians(-102.78), -2.967, 0.0),
    (-0.02198, math.pi / 2, 0.25075, 0.0, -1.745, 1.745),
    (0.0, -math.pi / 2, 0.0, 0.0, -1.22, 1.22),
    (0.0, math.pi / 2, 0.091, 0.0, -2.09439, 2.09439),
)
FRESH = 0.1  # s; older feedback is no place to hold at
POLL = 0.02  # s between looks while connecting
MILLIDEGREE = math.pi / 180e3  # rad, the SDK's unit
JOINT_FRAMES = (0x2A5, 0x2A6, 0x2A7)  # CAN identifiers of the feedback
MOTOR_FRAMES = tuple(range(0x251, 0x257))
GRIPPER_FRAME = (0x2A8,)
CAN_CONTROL, MOVE_JOINTS, POSITION_MODE, GRIPPER_ON = 0x01, 0x01, 0x00, 0x01


@dataclass(frozen=True)
class PiperConfig:
    """The CAN bus and what the arm is told. Set the bus up before: `ip link set can0 up type can bitrate 1000000`."""

    channel: str = "can0"
    interface: str = "socketcan"  # python-can's name of the kind of bus
    stream_hz: float = 100.0
    speed_percent: int = 50  # of the vendor's maximum, which no target is approached faster than
    tool_offset: float | None = None  # m, tool point in front of the flange; measure it
    gripper_stroke: float = 0.07  # m at full opening
    gripper_effort: float = 1.0  # Nm
    connect_timeout: float = 5.0  # s
    part_max_age: float = 1.0  # s; older speeds, efforts or gripper feedback read as unknown

    def __post_init__(self) -> None:
        if not 20.0 <= self.stream_hz <= 400.0:
            raise ValueError(f"robot.piper.stream_hz: expected 20 to 400, got {self.stream_hz}")
        if not 1 <= self.speed_percent <= 100:
            raise ValueError(f"robot.piper.speed_percent: expected 1 to 100, got {self.speed_percent}")
        if self.tool_offset is not None and not 0.0 <= self.tool_offset <= 0.5:
            raise ValueError(f"robot.piper.tool_offset: expected 0 to 0.5 m, got {self.tool_offset}")
        if not (0.0 < self.gripper_stroke <= 0.15 and 0.0 < self.gripper_effort <= 5.0):
            raise ValueError(
                "robot.piper: expected gripper_stroke in (0, 0.15] m, gripper_effort in (0, 5] Nm"
            )
        if not (self.connect_timeout > 0.0 and self.part_max_age > 0.0):
            raise ValueError("robot.piper: connect_timeout and part_max_age must be > 0 s")


def piper_geometry(tool_offset: float) -> ArmGeometry:
    """The vendor's table with every frame laid parallel to the base; tool point `tool_offset` [m] before the flange."""
    frame, before = np.eye(4), np.zeros(3)
    joints = []
    for number, (a, alpha, d, zero, lower, upper) in enumerate(_LINKS, start=1):
        frame = frame @ _modified_dh(a, alpha, d, zero)
        offset, axis = frame[:3, 3] - before, frame[:3, 2]
        # What the joints are rated for is not in the SDK.
        joints.append(Joint(f"joint{number}", tuple(offset), tuple(axis), lower, upper, effort=math.nan))
        before = frame[:3, 3].copy()
    approach = frame[:3, 2]
    rotation = np.stack([approach, frame[:3, 1], -frame[:3, 0]], axis=1)
    return ArmGeometry(tuple(joints), Pose(tool_offset * approach, rotation))


class PiperArm:
    """The physical arm. Its state is as old as the oldest of its joints, which come in three frames.

    The SDK's own reading thread does not survive a second connection, so the stream's thread reads the bus. No motor is
    ever switched on or off: a Piper without power on its motors falls. max_joint_speed [rad/s]: of every motion.
    """

    def __init__(self, config: PiperConfig, clock: Clock, *, max_joint_speed: float) -> None:
        self.joint_limits: Array = np.array([link[4:] for link in _LINKS])
        self._config = config
        self._clock = clock
        self._stream = JointStream(
            "piper stream",
            self._poll,
            self._send,
            clock,
            hz=config.stream_hz,
            max_speed=max_joint_speed,
        )
        self._wire = Lock()  # the SDK builds all its messages in one place, and a bus has one reader
        self._sdk: C_PiperInterface_V2 | None = None
        self._bus = f"{config.interface} bus {config.channel}"
        self._forget()

    def connect(self) -> None:
        """Open the bus and wait for feedback; raises DeviceError with the remedy. Nothing is sent."""
        if self._sdk is not None:
            return
        try:
            from piper_sdk import C_PiperInterface_V2
        except ImportError as error:
            raise DeviceError(
                f"piper: the package piper_sdk is missing ({error}); pip install 'groundhog[piper]'"
            ) from error
        config = self._config
        self._forget()
        sdk = C_PiperInterface_V2(config.channel, judge_flag=False, can_auto_init=False)
        try:
            sdk.CreateCanBus(config.channel, bustype=config.interface, judge_flag=False)
        except ConnectionError as error:
            raise DeviceError(
                f"piper: cannot open {self._bus} ({error}); plug the adapter in and "
                f"run: ip link set {config.channel} up type can bitrate 1000000"
            ) from error
        sdk.ConnectPort(can_init=False, piper_init=False, start_thread=False)
        self._sdk = sdk
        try:
            self._await_arm(sdk)
        except DeviceError:
            self._disconnect()
            raise
        self._stream.start()

    def state(self) -> ArmState:
        """The newest measured state; DeviceError without connection or where the stream has died.

        Speeds, efforts and the gripper travel apart; where they have been silent for long, they are NaN.
        """
        self._require_sdk()
        self._stream.check()
        self._poll()
        return replace(self._state, commanded=self._stream.commanded)

    def send_joints(self, joint_positions: Array, duration: float) -> None:
        """Move linearly in joint space to finite (6,) [rad] within `duration` [s], or as fast as allowed.

        Raises DeviceError. The first motion starts at the measured joints, every later one at the present command.
        """
        self._require_sdk()
        if joint_positions.shape != (6,) or not np.isfinite(joint_positions).all():
            raise DeviceError(f"piper: expected six finite joint angles, got {joint_positions}")
        self._stream.move(joint_positions, duration, self.state().joint_positions)

    def send_gripper(self, opening: float) -> None:
        """Drive the gripper to `opening` in [0, 1]."""
        sdk = self._require_sdk()
        if not 0.0 <= opening <= 1.0:
            raise DeviceError(f"piper: expected a gripper opening in [0, 1], got {opening}")
        micrometres, effort = 1e6 * opening * self._config.gripper_stroke, 1e3 * self._config.gripper_effort
        with self._wire:
            sdk.GripperCtrl(round(micrometres), round(effort), GRIPPER_ON, 0)

    def hold(self) -> None:
        """Stop at the measured joints, or where feedback is old at the present command, and stay."""
        if self._sdk is not None:
            self._stream.hold()

    def close(self) -> None:
        """Hold, if it has ever been commanded, and leave the bus; the motors stay on and hold."""
        if self._sdk is not None:
            self._stream.finish()
            self._disconnect()

    def _send(self, joint_positions: Array) -> None:
        sdk = self._sdk
        if sdk is not None:
            with self._wire:
                sdk.MotionCtrl_2(CAN_CONTROL, MOVE_JOINTS, self._config.speed_percent, POSITION_MODE)
                sdk.JointCtrl(*(round(angle / MILLIDEGREE) for angle in joint_positions.tolist()))

    def _poll(self) -> Array | None:
        """Give the SDK the frames that have come; returns the measured joints where they are fresh."""
        from can import CanError

        with self._wire:
            sdk = self._sdk
            if sdk is None:
                return None
            bus = sdk.GetCanBus().recv_bus
            try:
                while (frame := bus.recv(0.0)) is not None:
                    sdk.ParseCANFrame(frame)
                    self._received[frame.arbitration_id] = self._clock.now()
            except CanError as error:
                raise DeviceError(
                    f"piper: cannot read {self._bus} ({error}); check the adapter and its cable"
                ) from error
            state = self._state = self._read(sdk)
        return state.joint_positions if self._clock.now() - state.timestamp <= FRESH else None

    def _read(self, sdk: C_PiperInterface_V2) -> ArmState:
        joints, motors = sdk.GetArmJointMsgs().joint_state, sdk.GetArmHighSpdInfoMsgs()
        positions = [getattr(joints, f"joint_{i}") for i in range(1, 7)]
        motor = [getattr(motors, f"motor_{i}") for i in range(1, 7)]
        # 0.001 degrees, rad/s, Nm, mm.
        opening = 1e-6 * sdk.GetArmGripperMsgs().gripper_state.grippers_angle / self._config.gripper_stroke
        return ArmState(
            MILLIDEGREE * np.array(positions, dtype=np.float64),
            self._known(MOTOR_FRAMES, 1e-3 * np.array([m.motor_speed for m in motor], dtype=np.float64)),
            self._known(MOTOR_FRAMES, 1e-3 * np.array([m.effort for m in motor], dtype=np.float64)),
            float(self._known(GRIPPER_FRAME, np.array(min(max(opening, 0.0), 1.0)))),
            self._oldest(JOINT_FRAMES),
            commanded=None,
        )

    def _oldest(self, frames: Sequence[int]) -> float:
        """When the one of these frames came that has not come for longest; -inf where one never came."""
        return min(self._received.get(frame, -math.inf) for frame in frames)

    def _known(self, frames: Sequence[int], values: Array) -> Array:
        """The values, or NaN in their place where one of their frames has been silent."""
        age = self._clock.now() - self._oldest(frames)
        return values if age <= self._config.part_max_age else np.full_like(values, math.nan)

    def _forget(self) -> None:
        self._received: dict[int, float] = {}  # CAN identifier -> when
        unknown = np.full(6, math.nan)
        self._state = ArmState(unknown, unknown, unknown, math.nan, -math.inf, None)

    def _require_sdk(self) -> C_PiperInterface_V2:
        if self._sdk is None:
            raise DeviceError("piper: not connected; call connect() first")
        return self._sdk

    def _disconnect(self) -> None:
        with self._wire:
            sdk, self._sdk = self._sdk, None
            if sdk is not None:
                sdk.DisconnectPort()

    def _await_arm(self, sdk: C_PiperInterface_V2) -> None:
        parts = {"joints": JOINT_FRAMES, "motors": MOTOR_FRAMES, "gripper": GRIPPER_FRAME}
        give_up = self._clock.now() + self._config.connect_timeout
        while True:
            self._poll()
            silent = [part for part, frames in parts.items() if self._oldest(frames) == -math.inf]
            enabled = all(sdk.GetArmEnableStatus())
            if (enabled and not silent) or self._clock.now() >= give_up:
                break
            self._clock.sleep_until(self._clock.now() + POLL)
        if silent:
            raise DeviceError(
                f"piper: no feedback of its {', '.join(silent)} on {self._bus} within "
                f"{self._config.connect_timeout:.0f} s; switch the arm on, check the CAN cable and that the bit rate "
                "is 1000000"
            )
        if not enabled:
            off = [number for number, on in enumerate(sdk.GetArmEnableStatus(), start=1) if not on]
            raise DeviceError(
                f"piper: the motors of joints {off} are off; support the arm and enable it with the SDK's "
                "demo/V2/piper_ctrl_enable.py"
            )


def _modified_dh(a: float, alpha: float, d: float, theta: float) -> Array:
    """Transform of a link, rotation alpha about and a along x, then theta about and d along z (Craig)."""
    ca, sa, ct, st = math.cos(alpha), math.sin(alpha), math.cos(theta), math.sin(theta)
    return np.array(
        [
            [ct, -st, 0.0, a],
            [st * ca, ct * ca, -sa, -sa * d],
            [st * sa, ct * sa, ca, ca * d],
            [0.0, 0.0, 0.0, 1.0],
        ]
    )
