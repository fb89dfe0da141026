"""A Piper's side of the CAN bus in a thread, so that the vendor's own SDK runs without an arm, over python-can."""

from __future__ import annotations

import itertools
import math
import struct
from types import TracebackType

import can
import numpy as np

from robot.arms.piper import PiperConfig
from robot.cell import CellConfig
from robot.clock import WallClock
from robot.factory import ClockKind, ObsKind, RobotConfig, RobotKind
from robot.periodic import PeriodicThread

PERIOD = 0.01  # s
SLEW = 3.0  # rad/s
STROKE = 0.07  # m
MILLIDEGREE = math.pi / 180e3
START = np.array([0.0, 1.0, -1.0, 0.0, 0.6, 0.0])
CELL = CellConfig(
    workspace_lower=[0.05, -0.3, 0.05],
    workspace_upper=[0.6, 0.3, 0.6],
    reset_joints=START.tolist(),
    effort_limits=[20.0] * 6,
)
_CHANNELS = itertools.count()  # the SDK keeps one interface per channel for the life of the process


class SimulatedPiper:
    """Follows the joint and gripper frames; `sent` counts what came, by arbitration id. Use in a `with`."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.config = PiperConfig(
            channel=f"simulated-piper-{next(_CHANNELS)}",
            interface="virtual",
            tool_offset=0.14,
            connect_timeout=10.0,
        )
        self.enabled = enabled
        self.silent = False
        self.joints = START.copy()
        self.target = START.copy()
        self.opening = 0.0
        self.sent: dict[int, int] = {}
        self.mode = b""
        self._goal_opening = 0.0
        self._ticks = 0
        self._thread = PeriodicThread("simulated piper", self._tick, WallClock(), PERIOD)

    def robot(self) -> RobotConfig:
        """The environment around this arm, without cameras."""
        return RobotConfig(
            kind=RobotKind.PIPER,
            task="reach",
            clock=ClockKind.WALL,
            obs=ObsKind.STATE,
            cell=CELL,
            piper=self.config,
        )

    def __enter__(self) -> SimulatedPiper:
        self._bus = can.Bus(interface="virtual", channel=self.config.channel)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.stop()
        self._bus.shutdown()
        self._thread.check()

    def _tick(self) -> None:
        while (message := self._bus.recv(0.0)) is not None:
            self._obey(message.arbitration_id, bytes(message.data))
        step = np.clip(self.target - self.joints, -SLEW * PERIOD, SLEW * PERIOD)
        self.joints = self.joints + step
        self.opening += float(np.clip(self._goal_opening - self.opening, -PERIOD, PERIOD))
        self._ticks += 1
        if not self.silent:
            self._report(step / PERIOD)

    def _obey(self, identifier: int, data: bytes) -> None:
        self.sent[identifier] = self.sent.get(identifier, 0) + 1
        if identifier == 0x151:
            self.mode = data
        elif identifier in (0x155, 0x156, 0x157):
            first = 2 * (identifier - 0x155)
            self.target[first : first + 2] = MILLIDEGREE * np.array(struct.unpack(">ii", data))
        elif identifier == 0x159:
            self._goal_opening = struct.unpack(">i", data[:4])[0] * 1e-6 / STROKE

    def _report(self, speeds: np.ndarray) -> None:
        angles = np.round(self.joints / MILLIDEGREE).astype(int).tolist()
        for pair in range(3):
            self._send(0x2A5 + pair, struct.pack(">ii", *angles[2 * pair : 2 * pair + 2]))
        for joint in range(6):
            current = 500 + (self._ticks + joint) % 7  # mA; never twice the same
            self._send(0x251 + joint, struct.pack(">hhi", round(1e3 * speeds[joint]), current, 0))
            if self._ticks % 10 == 1:
                self._send(0x261 + joint, struct.pack(">HhbBH", 240, 30, 30, 0x40 * self.enabled, 100))
        self._send(0x2A8, struct.pack(">ihBx", round(1e6 * STROKE * self.opening), 0, 0))

    def _send(self, identifier: int, data: bytes) -> None:
        self._bus.send(can.Message(arbitration_id=identifier, is_extended_id=False, data=data))
