"""A command with a person at its terminal who says yes to everything."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Sequence
from threading import Thread

ASKED = b"[Enter = yes"


class Attended:
    """`python -m <module> <overrides>` in a session of its own, whose terminal answers every request with Enter."""

    def __init__(self, module: str, overrides: Sequence[str]) -> None:
        self._keyboard, screen = pty.openpty()
        self.output = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *overrides],
            stdin=screen,
            stdout=screen,
            stderr=screen,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(screen)
        self._person = Thread(target=self._answer, daemon=True)
        self._person.start()

    def end(self) -> None:
        """SIGKILL to it and all its children."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._person.join(5.0)

    def _answer(self) -> None:
        answered = 0
        try:
            while read := os.read(self._keyboard, 4096):
                self.output += read
                for _ in range(self.output.count(ASKED) - answered):
                    os.write(self._keyboard, b"\n")
                    answered += 1
        except OSError:  # the last process at this terminal has ended
            os.close(self._keyboard)
