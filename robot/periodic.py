"""PeriodicThread: work at a fixed rate beside the control loop, such as streaming targets or watching the policy."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread, current_thread

from robot.interfaces import Clock, DeviceError


class PeriodicThread:
    """Calls `work` every `period` [s] from `start` to `stop`; an error ends it, and `check` tells the others."""

    def __init__(self, name: str, work: Callable[[], None], clock: Clock, period: float) -> None:
        if not period > 0.0:
            raise ValueError(f"{name}: expected a period > 0 s, got {period}")
        self._name = name
        self._work = work
        self._clock = clock
        self._period = period
        self._stopping = Event()
        self._thread: Thread | None = None
        self._error: Exception | None = None

    def start(self) -> None:
        """Begin, where it is not running already."""
        if self._thread is None:
            self._error = None
            self._stopping.clear()
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End; on return no call of `work` is under way, unless `work` itself stops the thread."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not current_thread():
            thread.join()

    def check(self) -> None:
        """Raise DeviceError where an error has ended the work."""
        if self._error is not None:
            raise DeviceError(
                f"{self._name}: stopped by {type(self._error).__name__}: {self._error}; "
                "close it and connect it again"
            ) from self._error

    def _run(self) -> None:
        due = self._clock.now()
        try:
            while not self._stopping.is_set():
                self._work()
                due = max(due + self._period, self._clock.now())
                self._clock.sleep_until(due)
        except Exception as error:  # whatever it was, the work is over and whoever relies on it must learn so
            self._error = error
