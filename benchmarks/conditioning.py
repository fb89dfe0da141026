"""What to tell a world model, the command or the measured motion: pictures of real episodes of policies that learn.

    python -m benchmarks.conditioning --models <version> <version> --runs runs/closed_loop/runs/insert_alone/*/0

The models learned from the same recordings, with which no policy had to do. `CLIPS` stretches of the real episodes of
each run, actions as they were: PSNR in dB at each step, of the model and of the copied last frame. A model that is told
the motion is judged twice: with the one that really followed (`real`), which says what there is to gain, and with that
of imagined readings (`imagined`), which is what a run has. Writes benchmarks/results/conditioning.json.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl.imagination.proprio import CrossFittedProprio, ProprioConfig, fit_proprio
from rl.provenance import RESULTS, header, write
from rl.replay.reader import StoreReader
from rl.replay.sampler import Holdout
from rl.runtime.run_dir import RunDir
from rl.world_models.data import ClipData
from rl.world_models.inputs import check_fits
from robot.types import Array, Clip
from worldmodel.evaluate import evaluate
from worldmodel.factory import load_world_model
from worldmodel.interface import Conditioning

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
    """One model on one run, a row per view and motion."""
    model, reader = load_world_model(path, device=torch.device("cpu")), StoreReader(run.real)
    check_fits(model.spec, reader.schema)
    everything = Holdout(episodes=tuple(range(reader.num_episodes)))
    data, past = ClipData([reader], [everything]), model.spec.context_frames - 1
    clip = data.held_out(CLIPS, STEPS, past, np.random.default_rng(0))
    motions = {"real": clip}
    if model.spec.conditioning is Conditioning.MEASURED:
        proprio = fit_proprio([StoreReader(run.demo), reader], ProprioConfig())
        motions["imagined"] = with_imagined_readings(clip, proprio)
    return [
        {
            "run": "/".join(run.path.resolve().parts[-3:]),
            "conditioning": model.spec.conditioning.value,
            "motion": motion,
            "view": view,
            "clips": len(report.episode),
            "psnr": _rounded(report.curve(view, "psnr")),
            "copied": _rounded(report.curve(view, "psnr", copied=True)),
        }
        for motion, shown in motions.items()
        for report in [evaluate(model, shown)]
        for view in report.views
    ]


def with_imagined_readings(clip: Clip, proprio: CrossFittedProprio) -> Clip:
    """The clip whose readings behind the start are imagined from its actions."""
    past = clip.history
    rng, table = np.random.default_rng(0), clip.proprio.copy()
    table[:, past:] = proprio.rollout(table[:, past], clip.action[:, past:], rng, clip.episode)
    return replace(clip, proprio=table)


def _rounded(curve: Array) -> list[float]:
    return [round(float(value), 2) for value in curve]


if __name__ == "__main__":
    raise SystemExit(main())
