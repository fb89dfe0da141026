"""Kills at random moments: SIGKILL to the actor, the learner and the whole tree; nothing committed may be lost.

    python -m benchmarks.kills [--moments 20] [--seed 0]

Writes benchmarks/results/kills.json. After each kill every row committed before is compared by content, all
checksums are verified, each published version must act as before, and the run must go on.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from rl.provenance import RESULTS, header, write
from rl.replay.reader import StoreReader
from rl.runtime.run_dir import RunDir
from tests.e2e import harness

ENDLESS = "actor.max_env_steps=1000000"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir(Path(folder) / "run")
        overrides = [f"runs_dir={folder}", "name=run", *harness.SMALL, ENDLESS, "runtime.max_restarts=1000"]
        rows = [kill_worker(run, overrides, name, arguments.moments, rng) for name in ("actor", "learner")]
        rows.append(kill_tree(run, arguments.moments, rng))
    command = f"python -m benchmarks.kills --moments {arguments.moments} --seed {arguments.seed}"
    write(RESULTS / "kills.json", header("kills", command, ("torch", "numpy")), rows)
    return 0


def kill_worker(
    run: RunDir, overrides: list[str], name: str, moments: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Kill one worker again and again under a living supervisor; each time it must come back and go on."""
    fresh = not (run.path / "spec.json").exists()
    process = harness.start(*(overrides if fresh else [f"resume={run.path}"]))
    recovery_s = []
    for moment in range(moments):
        wait_for_progress(run, process, rng)
        before = harness.snapshot(run)
        harness.kill_workers(run, [name])
        began = time.monotonic()
        wait_for_progress(run, process, None)
        recovery_s.append(time.monotonic() - began)
        harness.check_survived(run, before)
        harness.check_checkpoint_policy(run)
        print(
            f"{name} {moment + 1}/{moments}: {before.rows} rows survived, going on after {recovery_s[-1]:.1f} s"
        )
    harness.kill_tree(process)
    harness.finish(process)
    return result(run, name, moments, recovery_s)


def kill_tree(run: RunDir, moments: int, rng: np.random.Generator) -> dict[str, Any]:
    """Kill supervisor and workers at once, then resume; again and again."""
    recovery_s = []
    process = harness.start(f"resume={run.path}")
    for moment in range(moments):
        wait_for_progress(run, process, rng)
        before = harness.snapshot(run)
        harness.kill_tree(process)
        harness.finish(process)
        harness.check_survived(run, before)
        began = time.monotonic()
        process = harness.start(f"resume={run.path}")
        wait_for_progress(run, process, None)
        recovery_s.append(time.monotonic() - began)
        harness.check_survived(run, before)
        harness.check_checkpoint_policy(run)
        print(
            f"tree {moment + 1}/{moments}: {before.rows} rows survived, going on after {recovery_s[-1]:.1f} s"
        )
    harness.kill_tree(process)
    harness.finish(process)
    return result(run, "tree", moments, recovery_s)


def wait_for_progress(run: RunDir, process: Any, rng: np.random.Generator | None) -> None:
    """Until both workers have moved on from here, and then for a random moment of up to a second."""
    harness.wait_until(harness.started(run.path), process)
    env_steps, updates = (0, 0) if rng is None and not run.real.exists() else harness.counters(run)

    def moved() -> bool:
        now = harness.counters(run)
        return now[0] != env_steps and now[1] != updates

    harness.wait_until(moved, process)
    if rng is not None:
        time.sleep(float(rng.uniform(0.0, 1.0)))


def result(run: RunDir, victim: str, moments: int, recovery_s: list[float]) -> dict[str, Any]:
    rows = StoreReader(run.real).verify_all()
    return {
        "victim": victim,
        "moments": moments,
        "lost_rows": 0,  # check_survived raises otherwise
        "torn_rows": 0,
        "rows_at_end": rows,
        "recovery_s_median": round(float(np.median(recovery_s)), 2),
        "recovery_s_max": round(max(recovery_s), 2),
    }


if __name__ == "__main__":
    raise SystemExit(main())
