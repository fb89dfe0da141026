"""TerminalOperator: asks the person beside the arm at the terminal that the program runs in."""

from __future__ import annotations

import os
import select
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from robot.feedback import Reason
from robot.interfaces import RobotFault

TERMINAL = Path("/dev/tty")  # not the standard input, which a worker process does not inherit
BELL = "\a"
LOOK_EVERY = 1.0  # s


class TerminalOperator:
    """Enter agrees, anything typed before it refuses. timeout: seconds to wait for an answer.

    What was typed before the question is no answer to it. keep_waiting: called with what is waited for, every second
    that nobody answers; False gives the waiting up.
    """

    def __init__(
        self,
        timeout: float = 600.0,
        terminal: Path = TERMINAL,
        keep_waiting: Callable[[str], bool] = lambda _what: True,
    ) -> None:
        if not timeout > 0.0:
            raise ValueError(f"TerminalOperator: expected a timeout > 0 s, got {timeout}")
        self._timeout = timeout
        self._terminal = terminal
        self._keep_waiting = keep_waiting

    def confirm(self, request: str) -> None:
        """Ask, and return when Enter comes; raises RobotFault `not_confirmed`, `interrupted`."""
        try:
            # A daemon without a terminal must not take this one as its own, and be hung up with it.
            with open(
                self._terminal, opener=lambda path, flags: os.open(path, flags | os.O_NOCTTY)
            ) as terminal:
                termios.tcflush(terminal, termios.TCIFLUSH)
                print(f"\n{BELL}{request} [Enter = yes, n = no] ", end="", file=sys.stderr, flush=True)
                answer = self._answer(terminal, request)
        except (OSError, termios.error) as error:
            raise RobotFault(
                Reason.NOT_CONFIRMED,
                f"cannot ask the operator, there is no terminal ({error}); start the program in one",
            ) from error
        if answer is None:
            raise RobotFault(Reason.NOT_CONFIRMED, f"no answer within {self._timeout:.0f} s to: {request}")
        if answer:
            raise RobotFault(Reason.NOT_CONFIRMED, f"the operator answered {answer!r} to: {request}")

    def _answer(self, terminal: TextIO, request: str) -> str | None:
        left = self._timeout
        while not select.select([terminal], [], [], min(LOOK_EVERY, left))[0]:
            left -= LOOK_EVERY
            if not self._keep_waiting(f"the operator: {request}"):
                raise RobotFault(Reason.INTERRUPTED, f"the run was stopped while it waited for: {request}")
            if left <= 0.0:
                return None
        line = terminal.readline()
        return line.strip() if line else "end of input"
