"""Clocks that contract tests move on: a virtual one at once, a real one by waiting."""

from typing import Protocol

from robot.clock import WallClock


class TestClock(Protocol):
    __test__ = False

    def now(self) -> float: ...

    def advance(self, dt: float) -> None: ...


class RealTime(WallClock):
    """Advances by waiting."""

    def advance(self, dt: float) -> None:
        self.sleep_until(self.now() + dt)
