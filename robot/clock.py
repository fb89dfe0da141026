"""Two clocks behind the Clock protocol: wall time for a real arm, virtual time for a simulated one."""

from __future__ import annotations

from time import monotonic, sleep


class WallClock:
    """Monotonic time of this machine, in seconds."""

    def now(self) -> float:
        return monotonic()

    def sleep_until(self, time: float) -> None:
        """Return when `now() >= time`; at once if that has passed."""
        # A sleep may return early; only the clock decides.
        while (left := time - self.now()) > 0.0:
            sleep(left)


class VirtualClock:
    """Time that moves only when told, so that a simulated second costs what its computation costs."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def sleep_until(self, time: float) -> None:
        """Jump to `time`; a time in the past leaves the clock as it is."""
        self._now = max(self._now, time)

    def advance(self, dt: float) -> None:
        """Move forward by `dt` seconds; raises ValueError for a negative step."""
        if not dt >= 0.0:
            raise ValueError(f"VirtualClock.advance: expected dt >= 0 s, got {dt}; time never runs back")
        self._now += dt

    def rewind(self, time: float) -> None:
        """Go to `time`, earlier or later: for a simulated world that goes back to a state it was in then."""
        self._now = time
