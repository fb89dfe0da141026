"""When the machine itself stood still, whatever ran on it: a sleeping process per core notes every late awakening.

The host of a virtual machine may stop its cores for a while; no program on it can help that, so figures of reactions
tell the trials that fell into such a stall apart.

    python -m benchmarks.stalls [seconds]    # counts them
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from threading import Thread
from typing import IO

NAP = 0.002  # s
LATE = 0.02  # s by which an awakening is a stall
SETTLE = 0.05  # s until a stall that is just over has been written down


class Stalls:
    """Use in a `with`; `during` tells whether a stall overlapped a span of the machine's monotonic time."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []
        self._watchers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Stalls:
        for core in sorted(os.sched_getaffinity(0)):
            watcher = subprocess.Popen(
                [sys.executable, "-S", __file__, "--watch", str(core)], stdout=subprocess.PIPE, text=True
            )
            assert watcher.stdout is not None
            Thread(target=self._take_in, args=(watcher.stdout,), daemon=True).start()
            self._watchers.append(watcher)
        return self

    def __exit__(self, *_: object) -> None:
        for watcher in self._watchers:
            watcher.kill()
            watcher.wait()

    def during(self, began: float, ended: float) -> bool:
        """A stall overlapped this span; waits a moment, so that one that is just over counts."""
        time.sleep(max(0.0, ended + SETTLE - time.monotonic()))
        return any(start < ended and end > began for start, end in self.seen)

    def _take_in(self, lines: IO[str]) -> None:
        for line in lines:
            start, end = line.split()
            self.seen.append((float(start), float(end)))


def watch(core: int) -> None:
    """Sleep on one core and print every stall, until killed."""
    os.sched_setaffinity(0, {core})
    before = time.monotonic()
    while True:
        time.sleep(NAP)
        now = time.monotonic()
        if now - before > NAP + LATE:
            print(before, now, flush=True)
        before = now


def main() -> int:
    if sys.argv[1:2] == ["--watch"]:
        watch(int(sys.argv[2]))
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    with Stalls() as stalls:
        time.sleep(seconds)
    lengths = sorted(round(1e3 * (end - start)) for start, end in stalls.seen)
    print(f"{len(lengths)} stalls in {seconds:.0f} s on {os.cpu_count()} cores [ms]: {lengths}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
