"""How well the arm's readings are imagined one step ahead, where a policy that learns has led it, contact included.

    python -m benchmarks.imagined_readings runs/closed_loop/runs/insert_alone/hil_serl/0 ... \\
        --recordings runs/closed_loop/models/insert/play

Fitted on a run's demonstrations and the first shares `FITTED` of its online transitions, tried on the `TRIED` that
follow each. Rows: the arm stays where it is; the regression with the residual of any transition; with that of one
alike, the default; and that with the regression fitted on recordings, where they are named. Root mean square errors of
the mean prediction in mm, and the energy score (Gneiting and Raftery 2007) of `DRAWS` drawn readings of the pose and
its lag, in units of their change per step; lower is better. Writes benchmarks/results/imagined_readings.json, the rows
of an experiment in the place of its former ones.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rl.imagination.proprio import (
    GRIPPER_COMMAND,
    Network,
    ProprioConfig,
    ProprioModel,
    fit_network,
    transitions,
)
from rl.provenance import RESULTS, header, write
from rl.replay.reader import StoreReader
from rl.runtime.run_dir import RunDir
from robot.tasks import PROPRIO_NAMES
from robot.types import Array, Float32

FITTED, TRIED, DRAWS = (0.05, 0.15, 0.4), 400, 20
JUDGED = [index for index, name in enumerate(PROPRIO_NAMES) if name.startswith(("ee_", "lag_"))]
ALIKE = ProprioConfig()
ANY = replace(ALIKE, leaf=ALIKE.newest)  # no leaf can be parted: every residual is as good as another
OUT = RESULTS / "imagined_readings.json"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--recordings", type=Path)
    options = parser.parse_args()
    network = fit_network(options.recordings, ALIKE)
    rows = [row for path in options.runs for share in FITTED for row in of_run(RunDir(path), share, network)]
    for row in rows:
        print(row)
    experiments = {row["run"].split("/")[0] for row in rows}
    if OUT.exists():
        kept = json.loads(OUT.read_text())["rows"]
        rows = [row for row in kept if row["run"].split("/")[0] not in experiments] + rows
    write(OUT, header("imagined_readings", "python -m benchmarks.imagined_readings", ["numpy"]), rows)
    return 0


def of_run(run: RunDir, fitted: float, network: Network | None) -> list[dict[str, Any]]:
    """The rows of a run, fitted on that share of its online transitions."""
    demo, online = (transitions(StoreReader(path))[:3] for path in (run.demo, run.real))
    cut = int(fitted * len(online[0]))
    known = [np.concatenate([d, o[:cut]]) for d, o in zip(demo, online, strict=True)]
    proprio, action, following = (column[cut : cut + TRIED] for column in online)
    rng = np.random.default_rng(0)
    unit = (following - proprio)[:, JUDGED].std(axis=0) + 1e-9

    def row(name: str, mean: Float32, draw: Callable[[], Float32]) -> dict[str, Any]:
        error = 1000.0 * np.sqrt(np.square(mean - following).mean(axis=0))
        drawn = np.stack([draw()[:, JUDGED] / unit for _ in range(DRAWS)])
        return {
            "run": "/".join(run.path.resolve().parts[-3:]),
            "fitted": fitted,
            "readings": name,
            **{
                f"{axis}_mm": round(float(error[PROPRIO_NAMES.index(axis)]), 3)
                for axis in ("ee_x", "ee_y", "ee_z")
            },
            "energy": round(energy_score(drawn, following[:, JUDGED] / unit), 3),
        }

    rows = [row("stays", proprio, lambda: proprio)]
    kinds: list[tuple[str, ProprioConfig, Network | None]] = [
        ("residual of any", ANY, None),
        ("residual of one alike", ALIKE, None),
    ]
    if network is not None:
        kinds.append(("recordings", ALIKE, network))
    for name, config, on in kinds:
        make = partial(ProprioModel, *known, network=on, command_index=GRIPPER_COMMAND)
        mean, model = make(replace(config, noise=False)), make(config)
        rows.append(row(name, mean.step(proprio, action, rng), lambda m=model: m.step(proprio, action, rng)))
    return rows


def energy_score(drawn: Array, true: Array) -> float:
    """E |X - y| - E |X - X'| / 2 over draws X, X' (K, N, D) and truths y (N, D), mean over N."""
    miss = np.linalg.norm(drawn - true, axis=-1).mean()
    pairs = [np.linalg.norm(drawn[i] - drawn[j], axis=-1).mean() for i in range(len(drawn)) for j in range(i)]
    return float(miss - np.mean(pairs) / 2.0)


if __name__ == "__main__":
    raise SystemExit(main())
