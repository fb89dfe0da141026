"""What every results file says about itself: how to run it again, on which code, machine and versions."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def header(name: str, command: str, packages: Sequence[str]) -> dict[str, Any]:
    """Common keys of a results file; `packages` are the distributions whose versions matter."""
    now = datetime.datetime.now(datetime.UTC)
    return {
        "name": name,
        "command": command,
        "commit": _commit(),
        "date": now.isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "usable_cores": len(os.sched_getaffinity(0)),
            "processor": _processor(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            "accelerator": _accelerator(),
            "load": round(os.getloadavg()[0], 2),
        },
        "versions": {
            "python": platform.python_version(),
            **{package: importlib.metadata.version(package) for package in packages},
        },
    }


def write(path: Path, head: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    """Write the results file, whole or not at all, and say where."""
    write_json(path, {**head, "rows": list(rows)}, indent=2)
    print(f"wrote {path}", file=sys.stderr)


def write_json(path: Path, content: dict[str, Any], indent: int = 1) -> None:
    """Write it, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=indent) + "\n")
    part.replace(path)


def _commit() -> str:
    """The commit checked out, with `+changes` where tracked files other than results differ from it."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    return f"{commit}+changes" if changed else commit


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _accelerator() -> str | None:
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None
