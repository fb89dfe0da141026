"""Counters, heartbeats and status lines of all workers in one memory-mapped file of the run directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rl.workers.ports import COUNTERS

WORKERS = ("actor", "learner", "world_model")
STATUS_BYTES = 160


class Board:
    """Shared memory of a run: int64 counters (one writer each), and per worker a heartbeat and a status line.

    An aligned 8-byte store is atomic, so no reader ever sees half a counter. A status line is only for people.
    `now` gives seconds that all processes of this machine agree on (time.monotonic).
    """

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        dtype = np.dtype(
            [
                *((name, "<i8") for name in COUNTERS),
                *((f"{w}_pid", "<i8") for w in WORKERS),
                *((f"{w}_heartbeat", "<f8") for w in WORKERS),
                *((f"{w}_status", f"S{STATUS_BYTES}") for w in WORKERS),
            ]
        )
        if not path.exists():
            beside = path.with_suffix(".new")
            beside.write_bytes(bytes(dtype.itemsize))
            beside.rename(path)
        if path.stat().st_size != dtype.itemsize:
            raise ValueError(
                f"{path}: expected {dtype.itemsize} bytes, got {path.stat().st_size}; "
                "it was written by another version: delete it (it holds no robot data) and resume"
            )
        self._record = np.memmap(path, dtype=dtype, mode="r+", shape=(1,))
        self._now = now

    def get(self, name: str) -> int:
        """Value of a counter."""
        return int(self._record[name][0])

    def set(self, name: str, value: int) -> None:
        """Set a counter; only its one writer may."""
        self._record[name][0] = value

    def beat(self, worker: str, status: str) -> None:
        """Say that `worker` is alive and what it does or waits for."""
        self._record[f"{worker}_status"][0] = status.encode()[:STATUS_BYTES]
        self._record[f"{worker}_pid"][0] = os.getpid()
        self._record[f"{worker}_heartbeat"][0] = self._now()

    def pid(self, worker: str) -> int:
        """Process in which the worker runs, 0 before its first heartbeat."""
        return int(self._record[f"{worker}_pid"][0])

    def status(self, worker: str) -> str:
        """The worker's last status line."""
        return bytes(self._record[f"{worker}_status"][0]).decode(errors="replace")

    def silence(self, worker: str) -> float:
        """Seconds since the worker's last heartbeat; infinite before the first."""
        last = float(self._record[f"{worker}_heartbeat"][0])
        return self._now() - last if last > 0 else float("inf")

    def forget(self, worker: str) -> None:
        """A worker is about to (re)start: its old heartbeat no longer counts."""
        self._record[f"{worker}_heartbeat"][0] = 0.0
        self._record[f"{worker}_pid"][0] = 0
