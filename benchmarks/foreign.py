"""The learner on an environment that nobody here wrote: robosuite's UR5e Lift, cloning beside learning.

    python -m benchmarks.foreign [--seeds 0 1 2] [--obs state]

Needs the virtual environment of docs/foreign.md. Writes benchmarks/results/foreign.json; runs that are there already
are not repeated.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rl.bench_runs import BenchRun, plan_runs, run_all
from rl.provenance import RESULTS, header, write
from rl.replay.reader import StoreReader
from rl.schemas import BenchConfig
from robot.factory import ObsKind

RUNS = Path("runs/foreign")
PACKAGES = ("torch", "numpy", "mujoco", "gymnasium", "robosuite")
KEYS = (
    *("task", "arm", "seed", "obs", "bc_line", "final_success", "wilson_low", "wilson_high", "eval_episodes"),
    *("cycle_steps", "env_steps", "updates", "minutes", "failures", "curve"),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--obs", choices=[kind.value for kind in ObsKind], default=ObsKind.STATE.value)
    arguments = parser.parse_args()
    config = BenchConfig(
        tasks=["robosuite_lift"],
        arms=["rlpd_alone"],
        seeds=arguments.seeds,
        obs=ObsKind(arguments.obs),
        parallel=1,
        runs_dir=str(RUNS),
        results_dir=str(RUNS / "results"),
    )
    runs = plan_runs(config)
    failed = run_all([run for run in runs if not run.result.exists()], config.parallel, print)
    rows = [row(run) for run in runs if run.result.exists()]
    seeds = " ".join(map(str, arguments.seeds))
    command = f"python -m benchmarks.foreign --seeds {seeds} --obs {arguments.obs}"
    write(RESULTS / "foreign.json", header("foreign", command, PACKAGES), rows)
    return 1 if failed else 0


def row(run: BenchRun) -> dict[str, Any]:
    """A run's result, and what its demonstrations were."""
    result = json.loads(run.result.read_text())
    demos = [info for info in StoreReader(run.path / "demo").episodes() if info.success]
    return {
        **{key: result[key] for key in KEYS},
        "demonstrations": len(demos),
        "demonstration_steps": sum(info.num_transitions for info in demos) / len(demos),
    }


if __name__ == "__main__":
    raise SystemExit(main())
