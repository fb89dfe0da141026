"""Ctrl-C and SIGTERM as a flag, so that an end never tears a step apart."""

from __future__ import annotations

import signal
from collections.abc import Callable


class InterruptFlag:
    """Records that the run should end; a second Ctrl-C still only asks, since the arm must come to a hold.

    on_signal: called at once, whatever the program does then.
    """

    def __init__(self, on_signal: Callable[[], None] = lambda: None) -> None:
        self.seen = False
        self._on_signal = on_signal
        self._old = {s: signal.signal(s, self._set) for s in (signal.SIGINT, signal.SIGTERM)}

    def _set(self, _signal: int, _frame: object) -> None:
        self.seen = True
        self._on_signal()

    def restore(self) -> None:
        """Give the signals back to whoever had them."""
        for number, handler in self._old.items():
            signal.signal(number, handler)
