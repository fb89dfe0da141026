"""An arm behind the stream of the physical drivers, on a virtual clock, and the real governor and Robot before it."""

from __future__ import annotations

import numpy as np

from robot.arms.ramp import JointRamp
from robot.arms.stream import JointStream
from robot.cell import CellConfig
from robot.clock import VirtualClock
from robot.interfaces import ArmState
from robot.kinematics import Kinematics
from robot.robot import Robot
from robot.safety import SafetyGovernor
from robot.timing import TimingConfig
from robot.types import Array

CELL = CellConfig(
    workspace_lower=[0.24, -0.13, 0.06],
    workspace_upper=[0.42, 0.13, 0.25],
    reset_joints=[0.0, 1.367, -0.685, 0.103, 0.0, 0.0],  # tool point at about (0.29, 0, 0.22) m
)
KINEMATICS = Kinematics()
RESET = np.array(CELL.reset_joints)
TICK = 0.01  # s of the stream; the watchdog looks at every second one


class StreamedArm:
    """With power it is where its stream sends it; without, it lies where it is. silent: no more feedback comes.

    commands: what was sent, one row (6,) [rad] per tick.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.joint_limits = KINEMATICS.joint_limits
        self.joints = RESET.copy()
        self.power, self.silent = True, False
        self.commands: list[Array] = []
        self._clock = clock
        self._received = -np.inf
        self._reported = self.joints
        self.stream = JointStream(
            "arm", self._poll, self._send, clock, hz=1.0 / TICK, max_speed=CELL.max_joint_speed
        )

    @property
    def ramp(self) -> JointRamp:
        return self.stream._ramp

    def connect(self) -> None:
        self._poll()

    def state(self) -> ArmState:
        self._poll()
        # The efforts tell that the feedback is alive.
        efforts = np.full(6, 1e-6 * self._received)
        return ArmState(
            self._reported.copy(), np.zeros(6), efforts, 0.0, self._received, self.stream.commanded
        )

    def send_joints(self, joint_positions: Array, duration: float) -> None:
        self.stream.move(joint_positions, duration, self.state().joint_positions)

    def send_gripper(self, opening: float) -> None:
        pass

    def hold(self) -> None:
        self.stream.hold()

    def close(self) -> None:
        self.stream.finish()

    def _poll(self) -> Array | None:
        if not self.silent:
            self._reported, self._received = self.joints.copy(), self._clock.now()
        return self._reported if self._clock.now() - self._received <= 0.1 else None

    def _send(self, joints: Array) -> None:
        self.commands.append(joints)
        if self.power:
            self.joints = joints.copy()


class Cell:
    """The Robot around such an arm, with its stream and its watchdog worked by `wait`."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.arm = StreamedArm(self.clock)
        spec = CELL.spec("reach", KINEMATICS)
        self.governor = SafetyGovernor(CELL.safety(spec, KINEMATICS, 0.1), KINEMATICS)
        self.robot = Robot(self.arm, (), self.governor, KINEMATICS, self.clock, spec, TimingConfig())
        self.robot.connect()
        self.robot.allow_motion()
        self.reset()

    def reset(self) -> None:
        """As between two episodes."""
        self.robot.move_joints(RESET)
        self.wait(0.1)
        self.robot.begin_episode()

    def wait(self, duration: float) -> None:
        """Let `duration` [s] pass with nothing but the stream and the watchdog at work."""
        for tick in range(round(duration / TICK)):
            self.clock.advance(TICK)
            self.arm.stream._tick()
            if tick % 2:
                self.robot._watch()

    def act(self, action: Array) -> Array:
        """One control period; the executed action (7,)."""
        executed = self.robot.act(action.astype(np.float32)).executed_action
        self.wait(0.1)
        return executed

    def gap(self) -> float:
        """Radians between what the stream commands and the arm."""
        command = self.arm.ramp.command()
        assert command is not None
        return float(np.abs(command - self.arm.joints).max())

    def speed(self, since: int) -> float:
        """The fastest joint of the stream's commands from number `since` on [rad/s]."""
        return float(np.abs(np.diff(self.arm.commands[since:], axis=0)).max()) / TICK
