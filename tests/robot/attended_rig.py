"""A physical arm's robot without hardware: a driver on the real JointRamp, cameras that stall, a person who agrees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from robot.arms.ramp import JointRamp
from robot.cell import AttendedCell, CellConfig
from robot.clock import VirtualClock
from robot.env import RobotEnv
from robot.interfaces import ArmState, Clock, DeviceError, Frame
from robot.kinematics import JOINT_LIMITS, Kinematics
from robot.robot import Robot
from robot.safety import GovernorTransition, SafetyGovernor
from robot.timing import TimingConfig
from robot.types import Array

START = np.array([0.0, 1.367, -0.685, 0.103, 0.0, 0.0])
FAR = np.array([1.8, 1.367, -0.685, 0.103, 0.0, 0.0])  # a reset from here takes 4 s
CELL = CellConfig(
    workspace_lower=[0.24, -0.13, 0.06], workspace_upper=[0.42, 0.13, 0.25], reset_joints=START.tolist()
)


class RampArm:
    """As the drivers: a JointRamp whose command the arm follows at once. on_send: called with each target."""

    def __init__(self, clock: Clock, joints: Array = START) -> None:
        self.joint_limits = JOINT_LIMITS.copy()
        self.clock = clock
        self.ramp = JointRamp(clock, 0.6)
        self.joints = joints.copy()
        self.efforts = np.zeros(6)
        self.lost_at: float | None = None  # since then no feedback has come
        self.malformed = False
        self.sent: list[Array] = []
        self.holds: list[float] = []
        self.closed = False
        self.on_send: Callable[[], None] = lambda: None
        self._reads = 0

    def connect(self) -> None:
        self.ramp.clear()

    def state(self) -> ArmState:
        command = self.ramp.command()
        if command is not None:
            self.joints = command.copy()
        self._reads += 1
        efforts = self.efforts + 1e-9 * self._reads  # the feedback is alive
        time = self.clock.now() if self.lost_at is None else self.lost_at
        joints = self.joints[:5] if self.malformed else self.joints
        return ArmState(joints.copy(), np.zeros(6), efforts, 0.0, time, self.ramp.goal())

    def send_joints(self, joint_positions: Array, duration: float) -> None:
        self.on_send()
        self.sent.append(joint_positions.copy())
        self.ramp.move(joint_positions, duration, self.joints)

    def send_gripper(self, opening: float) -> None: ...

    def hold(self) -> None:
        self.holds.append(self.clock.now())
        self.ramp.stop(self.state().joint_positions)

    def close(self) -> None:
        self.closed = True
        self.hold()


class StallingCamera:
    """Its image is always fresh, or from `stalled_at` until `back_at` [s] the one of `stalled_at`."""

    height = width = 8
    name = "side"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.stalled_at = self.back_at = np.inf
        self.offset = 0.0  # s that its stamps are ahead
        self.lost = self.closed = False

    def connect(self) -> None:
        self.lost = False

    def read(self) -> Frame:
        if self.lost:
            raise DeviceError("camera side: unplugged")
        now = self.clock.now()
        stamp = self.stalled_at if self.stalled_at < now < self.back_at else now
        return Frame(np.zeros((8, 8, 3), np.uint8), stamp + self.offset)

    def close(self) -> None:
        self.closed = True


class AgreeableOperator:
    """Agrees at once, and keeps what was asked, with how many targets the arm had been sent by then."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def confirm(self, request: str) -> None:
        self.asked.append(request)


class AttendedRig:
    """An environment around one RampArm. On a wall clock with a watchdog, otherwise without."""

    def __init__(
        self,
        clock: Clock | None = None,
        cameras: Sequence[Any] | None = None,
        joints: Array = START,
        on_transition: Callable[[GovernorTransition], None] | None = None,
        **options: Any,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.watched = not isinstance(self.clock, VirtualClock)
        self.camera = StallingCamera(self.clock)
        self.arm = RampArm(self.clock, joints)
        self.operator = AgreeableOperator()
        kinematics, timing = Kinematics(), TimingConfig()
        spec = CELL.spec("test", kinematics)
        safety = CELL.safety(spec, kinematics, timing.control_period)
        self.robot = Robot(
            self.arm,
            [self.camera] if cameras is None else cameras,
            SafetyGovernor(safety, kinematics, on_transition=on_transition),
            kinematics,
            self.clock,
            spec,
            timing,
            operator=self.operator,
            watchdog_period=0.02 if self.watched else None,
            **options,
        )
        self.env = RobotEnv(self.robot, AttendedCell(spec, self.operator), teleport=False)

    def begin(self) -> None:
        """Connected, and in an episode; what was asked and sent by then is forgotten."""
        self.robot.connect()
        self.env.reset()
        self.forget()

    def forget(self) -> None:
        """What was asked, sent and held."""
        self.operator.asked.clear()
        self.arm.sent.clear()
        self.arm.holds.clear()
