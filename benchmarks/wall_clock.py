"""How long the loop takes on this machine until success is sustained, beside the same learner without it.

    OMP_NUM_THREADS=1 python -m benchmarks.wall_clock [--arms hil_serl full] [--seeds 0]

Actor, learner and world model are processes of their own, as on a robot (`runtime.kind=local`), on the two cores that
the benchmark keeps to; the simulated arm does not wait for real time. Press from pixels, with the models of
`benchmarks.closed_loop`; the arms take turns. Minutes count from the first step of any worker to the evaluation with
which success is sustained, evaluations included. Writes benchmarks/results/wall_clock.json; compare the arms with each
other only.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from benchmarks.closed_loop import PRESETS, add_models, finish, prepare
from rl import bench
from rl.provenance import RESULTS, header, write

CORES = 2
TASK = "press"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arms", nargs="+", default=["hil_serl", "full"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    add_models(parser)
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    models = prepare(TASK, options)
    folder = options.directory / "wall_clock"
    rows: list[dict[str, Any]] = []
    for seed in options.seeds:
        for arm in options.arms:  # in turns, so that a slow hour of the machine strikes all of them
            finish(
                bench.main(
                    [
                        f"tasks=[{PRESETS[TASK]}]",
                        f"arms=[{arm}]",
                        f"seeds=[{seed}]",
                        f"train=[runtime.kind=local,{','.join(models)}]",
                        f"runs_dir={folder / 'runs'}",
                        f"results_dir={folder / 'results'}",
                        f"docs_dir={folder / 'docs'}",
                    ]
                )
            )
            rows.append(_row(folder / "results" / PRESETS[TASK] / arm / f"{seed}.json"))
            print(rows[-1], flush=True)
    asked = {"arms": options.arms, "seeds": options.seeds, "episodes": [options.episodes]}
    asked |= {"anchors": [options.anchors], "minutes": [options.minutes], "readings": options.readings}
    command = "python -m benchmarks.wall_clock " + " ".join(
        f"--{name} {' '.join(map(str, values))}" for name, values in asked.items()
    )
    write(RESULTS / "wall_clock.json", header("wall_clock", command, ["torch", "mujoco"]), rows)
    return 0


def _row(path: Path) -> dict[str, Any]:
    result = json.loads(path.read_text())
    sustained = result["sustained_env_steps"]
    minutes = {point["env_steps"]: point["minutes"] for point in result["curve"]}
    return {
        "arm": result["arm"],
        "seed": result["seed"],
        "commit": result["commit"],
        "sustained_env_steps": sustained,
        "minutes_to_sustained": None if sustained is None else minutes[sustained],
        "minutes": result["minutes"],
        "env_steps": result["env_steps"],
        "updates": result["updates"],
        "used": result["used"],
    }


if __name__ == "__main__":
    raise SystemExit(main())
