"""JointRamp: where a driver's stream sends the joints at each instant, between two targets of the control loop."""

from __future__ import annotations

from threading import Lock

import numpy as np

from robot.interfaces import Clock
from robot.types import Array


class JointRamp:
    """Moves linearly from the present command to a goal, or stays. Used by the control loop and by the stream."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self.clear()

    def clear(self) -> None:
        """Nothing is commanded; the next motion starts where the arm is measured."""
        with self._lock:
            self._goal: Array | None = None
            self._start = np.zeros(0)
            self._began = self._duration = 0.0
            self._stopped = False

    def move(self, goal: Array, duration: float, measured: Array) -> None:
        """To `goal` (6,) [rad] within `duration` [s], the first time from `measured` (6,)."""
        with self._lock:
            command = self._command()
            self._start = measured.copy() if command is None else command
            self._goal = goal.copy()
            self._began, self._duration = self._clock.now(), max(duration, 0.0)
            self._stopped = False

    def stop(self, measured: Array | None) -> None:
        """Stay at `measured` (6,), or where that is not known at the present command; a second stop changes nothing.

        So an arm that sags a little below its command does not sink further with every stop.
        """
        with self._lock:
            place = self._command() if measured is None else measured.copy()
            if place is None or self._stopped:
                return
            self._start = self._goal = place
            self._stopped = True

    def command(self) -> Array | None:
        """Joints (6,) [rad] to send now; None before the first motion or stop."""
        with self._lock:
            return self._command()

    def _command(self) -> Array | None:
        if self._goal is None:
            return None
        elapsed = self._clock.now() - self._began
        share = 1.0 if elapsed >= self._duration else elapsed / self._duration
        command: Array = self._start + share * (self._goal - self._start)
        return command
