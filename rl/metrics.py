"""Metrics: one JSON line per record in the run directory, readable by any process; wandb follows that file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

SESSION = "run/session"  # marks the first record of each session of a run


class MetricsLog:
    """Append-only `metrics.jsonl`; several processes may write, each line in one `write` of an O_APPEND file."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
        self._now = now

    def write(self, worker: str, env_steps: int, updates: int, values: Mapping[str, float]) -> None:
        """Log numbers under the two counts that every curve is drawn against; non-finite values become null."""
        if not values:
            return
        record: dict[str, object] = {
            "time": round(self._now(), 3),
            "worker": worker,
            "env_steps": env_steps,
            "updates": updates,
        }
        record |= {name: float(v) if math.isfinite(v) else None for name, v in values.items()}
        os.write(self._file, (json.dumps(record) + "\n").encode())

    def close(self) -> None:
        os.close(self._file)


class MetricsTail:
    """Reads the complete lines that were added since the last call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> Iterator[dict[str, float]]:
        """Yield new records; a line still being written is left for the next call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                try:
                    record = json.loads(line)
                except ValueError:  # not UTF-8 or not JSON
                    continue  # a line cut by a killed process: the numbers around it still count
                if isinstance(record, dict):
                    yield record


def read_metrics(path: Path) -> list[dict[str, float]]:
    """All records of a run."""
    return list(MetricsTail(path).read())
