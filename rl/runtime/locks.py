"""Locks of a run directory: one session at a time, and no session beside workers that an earlier one left behind."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rl.config import ConfigError

SESSION, WORKERS = "session.lock", "workers.lock"
ORPHANS_S = 15.0  # workers end by themselves once their supervisor is gone


@contextmanager
def session(run: Path) -> Iterator[None]:
    """Hold the run for this session; raises ConfigError where another session has it. A kill releases it."""
    held = os.open(run / SESSION, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"{run}: another session runs it right now; stop that one first") from error
        _await_orphans(run)
        yield
    finally:
        os.close(held)


def join(run: Path) -> int:
    """A worker process says that it works here; the lock ends with the returned descriptor or with the process."""
    held = os.open(run / WORKERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    fcntl.flock(held, fcntl.LOCK_SH)
    return held


def _await_orphans(run: Path) -> None:
    probe = os.open(run / WORKERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    deadline = time.monotonic() + ORPHANS_S
    try:
        while True:
            try:
                fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise ConfigError(
                        f"{run}: workers of a killed session are still alive after {ORPHANS_S:.0f} s; end them first"
                    ) from error
            time.sleep(0.1)
    finally:
        os.close(probe)
