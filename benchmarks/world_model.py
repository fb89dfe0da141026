"""World models at equal processor time: 20 demonstrations + 60 online episodes, held-out episodes, 12 steps ahead.

    OMP_NUM_THREADS=1 python -m benchmarks.world_model --tasks press insert --minutes 10

Arms: the flow-warp model, the same from demonstrations alone, the diffusion baseline, the mean frame; the last frame
copied stands beside each. Rows of the results file are replaced arm by arm; an interrupted training is resumed.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.world_model_data import Data, DataConfig, ensure_data
from rl.agent.adam import load_optimiser
from rl.provenance import RESULTS, header
from rl.replay.reader import StoreReader
from rl.replay.sampler import Split
from rl.world_models.config import FinetuneWorldModelConfig
from rl.world_models.data import ClipData
from rl.world_models.report import merge_rows
from rl.world_models.training import MARK, Finetuning
from robot.factory import RobotConfig
from worldmodel.evaluate import Report, evaluate
from worldmodel.factory import ModelKind, WorldModelConfig
from worldmodel.following import action_following
from worldmodel.interface import WorldModel
from worldmodel.lpips import Lpips, load_lpips

STEPS = 12
CLIPS = 128
HORIZONS = (0.1, 0.6, 1.2)  # s
PROBE_PAIRS = 512  # real steps on which the probe of action following is fitted


@dataclass(frozen=True)
class Arm:
    """A row of the table. online: trained on the online episodes too. trained: for the whole budget."""

    name: str
    kind: ModelKind
    online: bool = True
    trained: bool = True


ARMS = (
    Arm("flow_warp", ModelKind.FLOW_WARP),
    Arm("flow_warp, demos alone", ModelKind.FLOW_WARP, online=False),
    Arm("edm", ModelKind.EDM),
    Arm("train_mean", ModelKind.TRAIN_MEAN, trained=False),
)


def measure(
    arm: Arm, task: str, data: Data, options: argparse.Namespace, lpips: Lpips
) -> list[dict[str, Any]]:
    """Train one arm and judge it on the held-out episodes of both kinds."""
    demo, online = StoreReader(data.demo), StoreReader(data.online)
    both = ClipData([demo, online], [data.demo_holdout, data.online_holdout])
    seen = both if arm.online else ClipData([demo], [data.demo_holdout])
    model, cost = _trained(arm, seen, options.directory / f"{task}_{options.image_px}" / arm.name, options)
    rng = np.random.default_rng(0)
    past = model.spec.context_frames - 1
    clip = both.held_out(CLIPS, STEPS, past, rng)
    report = evaluate(model, clip, lpips)
    probe = both.sampler(Split.TRAIN).sample(PROBE_PAIRS, 1, rng, past)
    following = action_following(model, probe, clip, rng)
    shared = {
        "minutes": options.minutes if arm.trained else None,
        **cost,
        "psnr_gain_both_views": _gain(report),
        "following": round(following.score, 3),
        "following_gain_db": round(following.gain_db, 2),
        "risk_correlation": _plain(report.risk_correlation()),
    }
    return [row | shared for row in report.rows(f"sim {task}", arm.name, both.hz, HORIZONS)]


def _trained(
    arm: Arm, data: ClipData, out: Path, options: argparse.Namespace
) -> tuple[WorldModel, dict[str, Any]]:
    """The model after its budget, and what it took; continues a training that was cut short."""
    config = FinetuneWorldModelConfig(
        cpu_minutes=options.minutes if arm.trained else None,
        steps=None if arm.trained else 20,
        resume=(out / MARK).exists(),
        horizon=STEPS,
        clips=8,
        model=WorldModelConfig(kind=arm.kind),
    )
    begun = time.process_time()
    training = Finetuning(config, data, out, time.process_time)
    for done in training.rounds():
        print(f"{arm.name}: {done.updates}/{done.target} {done.metrics}", flush=True)
    spent = time.process_time() - begun
    whole = training.first == 0
    return training.champion.challenger, {
        "updates": training.target,
        "train_cpu_s": round(spent) if whole else None,  # of a training in several pieces nobody kept the sum
    }


def _gain(report: Report) -> float:
    """PSNR above the copied last frame, mean over the steps, then over the views."""
    return round(report.mean("psnr", STEPS) - report.mean("psnr", STEPS, copied=True), 2)


def _plain(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None


def main() -> None:
    """Train what is asked for and write its rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=["press", "insert"])
    parser.add_argument("--arms", nargs="+", default=[arm.name for arm in ARMS])
    parser.add_argument("--minutes", type=float, default=10.0, help="processor time of each training")
    parser.add_argument("--image-px", type=int, default=64)
    parser.add_argument("--directory", type=Path, default=Path("runs/world_model"), help="episodes, models")
    parser.add_argument("--results", type=Path, default=RESULTS / "world_model.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load_optimiser()
    lpips = load_lpips()
    head = header("world_model", "python -m benchmarks.world_model", ["numpy", "torch", "diffusers"])
    for task in options.tasks:
        robot = RobotConfig(task=task, image_px=options.image_px)
        data = ensure_data(options.directory / f"{task}_{options.image_px}", robot, DataConfig())
        for arm in ARMS:
            if arm.name in options.arms:
                rows = measure(arm, task, data, options, lpips)
                names = {(row["data"], row["model"]) for row in rows}
                merge_rows(
                    options.results, head, rows, lambda row, names=names: (row["data"], row["model"]) in names
                )


if __name__ == "__main__":
    main()
