"""What to tell a world model, the command or the measured motion: pictures of real episodes of policies that learn.

    python -m benchmarks.conditioning --models <version> <version> --runs runs/closed_loop/runs/insert_alone/*/0

The models learned from the same recordings, with which no policy had to do. `CLIPS` stretches of the real episodes of
each run, actions and motions as they were: PSNR in dB at each step, of the model and of the copied last frame. Writes
benchmarks/results/conditioning.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl.provenance import RESULTS, header, write
from rl.replay.reader import StoreReader
from rl.replay.sampler import Holdout
from rl.runtime.run_dir import RunDir
from rl.world_models.data import ClipData
from rl.world_models.inputs import check_fits
from worldmodel.evaluate import evaluate
from worldmodel.factory import load_world_model

CLIPS, STEPS = 64, 8
OUT = RESULTS / "conditioning.json"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", type=Path, required=True)
    parser.add_argument("--runs", nargs="+", type=Path, required=True)
    options = parser.parse_args()
    rows = [row for run in options.runs for model in options.models for row in rows_of(model, RunDir(run))]
    write(OUT, header("conditioning", "python -m benchmarks.conditioning", ["torch"]), rows)
    for row in rows:
        print(row)
    return 0


def rows_of(path: Path, run: RunDir) -> list[dict[str, Any]]:
    """One model on one run, a row per view."""
    model, reader = load_world_model(path, device=torch.device("cpu")), StoreReader(run.real)
    check_fits(model.spec, reader.schema)
    everything = Holdout(episodes=tuple(range(reader.num_episodes)))
    data, past = ClipData([reader], [everything]), model.spec.context_frames - 1
    report = evaluate(model, data.held_out(CLIPS, STEPS, past, np.random.default_rng(0)))

    def curve(view: str, copied: bool) -> Sequence[float]:
        return [round(float(value), 2) for value in report.curve(view, "psnr", copied=copied)]

    return [
        {
            "run": "/".join(run.path.resolve().parts[-3:]),
            "conditioning": model.spec.conditioning.value,
            "view": view,
            "clips": len(report.episode),
            "psnr": curve(view, False),
            "copied": curve(view, True),
        }
        for view in report.views
    ]


if __name__ == "__main__":
    raise SystemExit(main())
