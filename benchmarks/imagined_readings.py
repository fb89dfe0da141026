"""How well the arm's readings are imagined one step ahead, where a policy that learns has led it, contact included.

    python -m benchmarks.imagined_readings runs/closed_loop/runs/insert_alone/hil_serl/0 ...

Fitted on a run's demonstrations and the first `FITTED` of its online transitions, tried on the next `TRIED`. Rows: the
arm stays where it is; the regression with the residual of any transition; with that of one alike, the default. Root
mean square errors of the mean prediction in mm, and the energy score (Gneiting and Raftery 2007) of `DRAWS` drawn
readings of the pose and its lag, in units of their change per step; lower is better. Writes
benchmarks/results/imagined_readings.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rl.imagination.proprio import GRIPPER_COMMAND, ProprioConfig, ProprioModel, transitions
from rl.provenance import RESULTS, header, write
from rl.replay.reader import StoreReader
from rl.runtime.run_dir import RunDir
from robot.tasks import PROPRIO_NAMES
from robot.types import Array, Float32

FITTED, TRIED, DRAWS = 0.4, 600, 20
JUDGED = [index for index, name in enumerate(PROPRIO_NAMES) if name.startswith(("ee_", "lag_"))]
ALIKE = ProprioConfig()
ANY = replace(ALIKE, leaf=ALIKE.newest)  # no leaf can be parted: every residual is as good as another
OUT = RESULTS / "imagined_readings.json"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    rows = [row for path in parser.parse_args().runs for row in of_run(RunDir(path))]
    write(OUT, header("imagined_readings", "python -m benchmarks.imagined_readings", ["numpy"]), rows)
    for row in rows:
        print(row)
    return 0


def of_run(run: RunDir) -> list[dict[str, Any]]:
    """The three rows of a run."""
    demo, online = (transitions(StoreReader(path))[:3] for path in (run.demo, run.real))
    cut = int(FITTED * len(online[0]))
    known = [np.concatenate([d, o[:cut]]) for d, o in zip(demo, online, strict=True)]
    proprio, action, following = (column[cut : cut + TRIED] for column in online)
    rng = np.random.default_rng(0)
    unit = (following - proprio)[:, JUDGED].std(axis=0) + 1e-9

    def row(name: str, mean: Float32, draw: Callable[[], Float32]) -> dict[str, Any]:
        error = 1000.0 * np.sqrt(np.square(mean - following).mean(axis=0))
        drawn = np.stack([draw()[:, JUDGED] / unit for _ in range(DRAWS)])
        return {
            "run": "/".join(run.path.resolve().parts[-3:]),
            "readings": name,
            **{f"{axis}_mm": round(float(error[PROPRIO_NAMES.index(axis)]), 3) for axis in ("ee_x", "ee_z")},
            "energy": round(energy_score(drawn, following[:, JUDGED] / unit), 3),
        }

    rows = [row("stays", proprio, lambda: proprio)]
    for name, config in (("residual of any", ANY), ("residual of one alike", ALIKE)):
        mean = ProprioModel(*known, replace(config, noise=False), command_index=GRIPPER_COMMAND)
        model = ProprioModel(*known, config, command_index=GRIPPER_COMMAND)
        rows.append(row(name, mean.step(proprio, action, rng), lambda m=model: m.step(proprio, action, rng)))
    return rows


def energy_score(drawn: Array, true: Array) -> float:
    """E |X - y| - E |X - X'| / 2 over draws X, X' (K, N, D) and truths y (N, D), mean over N."""
    miss = np.linalg.norm(drawn - true, axis=-1).mean()
    pairs = [np.linalg.norm(drawn[i] - drawn[j], axis=-1).mean() for i in range(len(drawn)) for j in range(i)]
    return float(miss - np.mean(pairs) / 2.0)


if __name__ == "__main__":
    raise SystemExit(main())
