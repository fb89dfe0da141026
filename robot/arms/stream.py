"""JointStream: sends a driver's joint targets at a fixed rate from a thread of its own, and takes in its feedback."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import numpy as np

from robot.arms.ramp import JointRamp
from robot.interfaces import Clock
from robot.periodic import PeriodicThread
from robot.types import Array

FAREWELL = 5  # periods for which the last target is repeated before the stream ends


class JointStream:
    """poll: takes in what has arrived; returns the measured joints (6,) [rad], None where they are old.

    send: puts joints (6,) [rad] on the wire; never called by two threads at a time. max_speed [rad/s]: of every motion.
    Until the first motion or hold, nothing is sent.
    """

    def __init__(
        self,
        name: str,
        poll: Callable[[], Array | None],
        send: Callable[[Array], None],
        clock: Clock,
        *,
        hz: float,
        max_speed: float,
    ) -> None:
        self._poll = poll
        self._send_joints = send
        self._clock = clock
        self._ramp = JointRamp(clock, max_speed)
        self._thread = PeriodicThread(name, self._tick, clock, 1.0 / hz)
        self._period = 1.0 / hz
        self._sending = Lock()  # so that no older target goes out after a newer one

    @property
    def commanded(self) -> Array | None:
        """Joints (6,) [rad] where the motion in progress ends or where the arm stays; None before anything is sent."""
        return self._ramp.goal()

    def start(self) -> None:
        """Begin, with nothing commanded."""
        self._ramp.clear()
        self._thread.start()

    def check(self) -> None:
        """Raise DeviceError where the thread has died."""
        self._thread.check()

    def move(self, goal: Array, duration: float, measured: Array) -> None:
        """Linearly to `goal` (6,) [rad] within `duration` [s]; the first motion starts at `measured` (6,)."""
        self._ramp.move(goal, duration, measured)

    def hold(self) -> None:
        """Stay at the measured joints, or where these are not known at the present command; sent at once."""
        self._ramp.stop(self._measured())
        self._send()

    def finish(self) -> None:
        """Hold, if anything has ever been sent, and end."""
        if self.commanded is not None:
            self.hold()
            self._clock.sleep_until(self._clock.now() + FAREWELL * self._period)
        self._thread.stop()

    def _tick(self) -> None:
        measured = self._measured()
        if measured is not None:
            self._ramp.follow(measured)
        self._send()

    def _measured(self) -> Array | None:
        """What `poll` says, if it is six finite joints."""
        measured = self._poll()
        sound = measured is not None and measured.shape == (6,) and bool(np.isfinite(measured).all())
        return measured if sound else None

    def _send(self) -> None:
        with self._sending:
            command = self._ramp.command()
            if command is not None:
                self._send_joints(command)
