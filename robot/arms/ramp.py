"""JointRamp: where a driver's stream sends the joints at each instant, between two targets of the control loop."""

from __future__ import annotations

from threading import Lock

import numpy as np

from robot.interfaces import Clock
from robot.types import Array

DISPLACED = 0.05  # rad between a standing command and the arm; less is the sag of an arm that holds
MAX_DISPLACED = (
    0.12  # rad, once it was displaced before; below `feedback.lag`, at which the governor stops it
)
DISPLACED_TIME = (
    0.1  # s without a reading in place: longer than a braking arm swings, or than readings are wrong
)
SETTLED = 0.5  # s after the end of a motion; by then the arm has followed


class JointRamp:
    """Moves linearly from the present command to a goal, or stays. Used by the control loop and by the stream.

    max_speed: rad/s that no joint of the command exceeds in a motion, however short its duration.
    """

    def __init__(self, clock: Clock, max_speed: float) -> None:
        self._clock = clock
        self._max_speed = max_speed
        self._lock = Lock()
        self.clear()

    def clear(self) -> None:
        """Nothing is commanded; the next motion starts where the arm is measured."""
        with self._lock:
            self._goal: Array | None = None
            self._start = np.zeros(0)
            self._began = self._duration = 0.0
            self._stopped = False
            self._in_place_at = self._clock.now()  # when the arm was last seen where it should be
            self._tolerance = DISPLACED

    def move(self, goal: Array, duration: float, measured: Array) -> None:
        """To `goal` (6,) [rad] within `duration` [s], or as fast as allowed; the first time from `measured` (6,)."""
        with self._lock:
            command = self._command()
            self._start = measured.copy() if command is None else command
            self._goal = goal.copy()
            shortest = float(np.abs(self._goal - self._start).max()) / self._max_speed
            self._began, self._duration = self._clock.now(), max(duration, shortest)
            self._stopped, self._in_place_at = False, self._began
            self._tolerance = DISPLACED

    def stop(self, measured: Array | None) -> None:
        """Stay at `measured` (6,), or where that is not known at the present command.

        A second stop changes nothing while the arm is near its place (see `follow`), so that an arm that sags a little
        below its command does not sink further with every stop.
        """
        with self._lock:
            if self._stopped and (measured is None or self._distance(measured) <= self._tolerance):
                return
            place = self._command() if measured is None else measured
            if place is not None:
                self._stay(place)

    def follow(self, measured: Array) -> None:
        """Where the arm should stand and does not, stay at `measured` (6,): nothing may bring it back by itself.

        So power that returns to an arm that has sunk finds the command where the arm is; if the readings were gone with
        the power, at the first of them. Each time twice as far, up to MAX_DISPLACED, until the next motion: an arm that
        hangs below its command by more than DISPLACED would else sink step by step.
        """
        with self._lock:
            now = self._clock.now()
            standing = self._stopped or now >= self._began + self._duration + SETTLED
            if not standing or self._distance(measured) <= self._tolerance:
                self._in_place_at = now
            elif now - self._in_place_at >= DISPLACED_TIME:
                self._stay(measured)
                self._tolerance = min(2.0 * self._tolerance, MAX_DISPLACED)

    def goal(self) -> Array | None:
        """Joints (6,) [rad] where the motion ends or where it stays; None before the first motion or stop."""
        with self._lock:
            return None if self._goal is None else self._goal.copy()

    def command(self) -> Array | None:
        """Joints (6,) [rad] to send now; None before the first motion or stop."""
        with self._lock:
            return self._command()

    def _stay(self, place: Array) -> None:
        self._start = self._goal = place.copy()
        self._stopped, self._in_place_at = True, self._clock.now()

    def _distance(self, measured: Array) -> float:
        return 0.0 if self._goal is None else float(np.abs(measured - self._goal).max())

    def _command(self) -> Array | None:
        if self._goal is None:
            return None
        elapsed = self._clock.now() - self._began
        share = 1.0 if elapsed >= self._duration else elapsed / self._duration
        command: Array = self._start + share * (self._goal - self._start)
        return command
