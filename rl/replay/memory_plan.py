"""The memory plan of a store, printed before a run starts: what it will take, and whether that fits."""

from __future__ import annotations

import math
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

from rl.replay.errors import StoreError
from rl.replay.schema import StoreSchema
from rl.replay.store import StorePaths, file_row_bytes

_RESERVED_FILES = 128  # handles left to the rest of the process


class MemoryPlanError(StoreError):
    """The store would not fit; the message says what is short and what to change."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Sizes in bytes. total_bytes: the whole store; new_bytes: what is not on disk yet."""

    transitions: int
    bytes_per_transition: float
    total_bytes: int
    new_bytes: int
    budget_bytes: int
    free_disk_bytes: int
    available_memory_bytes: int
    mapped_files: int
    file_limit: int

    def __str__(self) -> str:
        cached = self.total_bytes <= self.available_memory_bytes
        hint = "stays in the page cache" if cached else "exceeds it: expect reads from disk while sampling"
        return "\n".join(
            (
                f"replay: {self.transitions:,} transitions of {self.bytes_per_transition / 1e3:.1f} kB",
                f"  total  {_gb(self.total_bytes)} of a budget of {_gb(self.budget_bytes)}",
                f"  disk   {_gb(self.new_bytes)} still to be written, {_gb(self.free_disk_bytes)} free",
                f"  memory {_gb(self.available_memory_bytes)} available: the store {hint}",
                f"  files  {self.mapped_files} mapped by each reader, limit {self.file_limit}",
            )
        )


def plan(
    schema: StoreSchema, transitions: int, budget_bytes: int, path: Path, episode_steps: float = 50.0
) -> MemoryPlan:
    """Plan a store in `path`; raises MemoryPlanError over the budget, the free disk or the file limit.

    episode_steps: expected transitions in an episode; each episode stores one observation more than that.
    """
    if transitions < 1 or episode_steps < 1:
        raise ValueError(
            f"expected transitions and episode_steps >= 1, got {transitions} and {episode_steps}"
        )
    files = file_row_bytes(schema)
    rows = math.ceil(transitions * (1.0 + 1.0 / episode_steps))
    segments = math.ceil(rows / schema.segment_rows)
    total = segments * schema.segment_rows * sum(files.values())
    result = MemoryPlan(
        transitions=transitions,
        bytes_per_transition=rows * sum(files.values()) / transitions,
        total_bytes=total,
        new_bytes=max(0, total - _stored_bytes(path)),
        budget_bytes=budget_bytes,
        free_disk_bytes=shutil.disk_usage(_existing(path)).free,
        available_memory_bytes=psutil.virtual_memory().available,
        mapped_files=segments * len(files),
        file_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
    _check(result, schema)
    return result


def _check(result: MemoryPlan, schema: StoreSchema) -> None:
    if result.total_bytes > result.budget_bytes:
        affordable = int(result.budget_bytes / result.bytes_per_transition)
        raise MemoryPlanError(
            f"{result}\nover the budget: lower the number of transitions to about {affordable:,}, "
            "use smaller or fewer views, or raise the budget"
        )
    if result.new_bytes > result.free_disk_bytes:
        raise MemoryPlanError(f"{result}\nnot enough free disk: free some, or choose another directory")
    if (
        result.file_limit != resource.RLIM_INFINITY
        and result.mapped_files > result.file_limit - _RESERVED_FILES
    ):
        raise MemoryPlanError(
            f"{result}\ntoo many segment files for one process: raise `ulimit -n`, "
            f"or use more segment_rows than {schema.segment_rows}"
        )


def _stored_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in StorePaths(path).segments.glob("*/*"))


def _existing(path: Path) -> Path:
    return next(p for p in [path.absolute(), *path.absolute().parents] if p.exists())


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
