"""DeviceClock: when an image was captured, on the robot's clock, from the stamps of a camera that has its own."""

from __future__ import annotations

import math
from collections import deque

WINDOW = 150  # frames from which the quickest delivery is taken


class DeviceClock:
    """captured = stamp + min(received - stamp) - min(latency), both minima over the last WINDOW frames.

    The quickest delivery ties the two clocks together, so that an image that waited in a queue, or for a busy machine,
    shows as older by as much. What even the quickest delivery took, only the camera can tell (`latency`).
    """

    def __init__(self) -> None:
        self._offsets: deque[float] = deque(maxlen=WINDOW)
        self._latencies: deque[float] = deque(maxlen=WINDOW)
        self._stamp = self._captured = -math.inf

    @property
    def latency(self) -> float | None:
        """Seconds from capture to arrival at best, as the camera tells it; None where it does not."""
        return min(self._latencies, default=None)

    def captured(self, stamp: float, received: float, latency: float | None) -> float:
        """Capture time [s] of the frame stamped `stamp` [s] by the device; never before that of an earlier frame."""
        if stamp < self._stamp:  # its clock was set, or a recording began again
            self._offsets.clear()
            self._latencies.clear()
        self._stamp = stamp
        self._offsets.append(received - stamp)
        if latency is not None:
            self._latencies.append(latency)
        captured = stamp + min(self._offsets) - (self.latency or 0.0)
        self._captured = max(self._captured, captured)
        return self._captured
