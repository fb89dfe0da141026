"""Speed of the world models on one core: imagined robot time per second, and one step of training.

    OMP_NUM_THREADS=1 python -m benchmarks.world_model_speed

16 rollouts of 12 steps at 10 Hz, two views. Weights are untrained: speed does not depend on them. Processor time of
one thread, because machines are shared; medians with min and max over the repeats.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rl.provenance import RESULTS, header, write
from robot.types import ACTION_DIM, Clip
from worldmodel.clips import split
from worldmodel.factory import ModelKind, WorldModelConfig, make_world_model
from worldmodel.interface import ActionNormalisation, WorldModelSpec

VIEWS = ("wrist", "side")
STEPS, HZ = 12, 10.0
KINDS = (ModelKind.FLOW_WARP, ModelKind.EDM)


@dataclasses.dataclass(frozen=True)
class Noise:
    """A ClipSource of random pictures and actions."""

    spec: WorldModelSpec
    size: int = 1

    def sample(self, n: int, length: int, rng: np.random.Generator, history: int = 0) -> Clip:
        steps = history + length
        return Clip(
            images={
                view: rng.integers(0, 256, (n, steps + 1, *size, 3), dtype=np.uint8)
                for view, size in self.spec.views.items()
            },
            proprio=np.zeros((n, steps + 1, 1), np.float32),
            action=rng.uniform(-1, 1, (n, steps, ACTION_DIM)).astype(np.float32),
            reward=np.zeros((n, steps), np.float32),
            terminated=np.zeros((n, steps), np.bool_),
            valid=np.ones((n, steps), np.bool_),
            episode=np.zeros(n, np.int64),
            step=np.zeros(n, np.int64),
            history=history,
        )


def measure(kind: ModelKind, px: int, batch: int, repeats: int) -> dict[str, Any]:
    """One row."""
    config = WorldModelConfig(kind=kind)
    spec = WorldModelSpec(
        dict.fromkeys(VIEWS, (px, px)), ActionNormalisation.identity(ACTION_DIM), config.context_frames
    )
    model, clips, rng = (
        make_world_model(config, spec, device=torch.device("cpu")),
        Noise(spec),
        np.random.default_rng(0),
    )
    context, future = split(clips.sample(batch, STEPS, rng, spec.context_frames - 1), spec)
    rollout = timed(lambda: model.rollout(context, future.action), repeats)
    step = timed(lambda: model.adapt(clips, 1, rng), repeats)  # early in the first fit: single steps
    seconds = statistics.median(rollout)
    robot = batch * STEPS / HZ
    return {
        "model": kind.value,
        "px": px,
        "views": len(VIEWS),
        "batch": batch,
        "steps": STEPS,
        "rollout_s": round(seconds, 3),
        "rollout_s_min": round(min(rollout), 3),
        "rollout_s_max": round(max(rollout), 3),
        "frames_per_s": round(batch * STEPS * len(VIEWS) / seconds, 1),
        "real_time_factor": round(robot / seconds, 1),
        "adapt_ms_per_step": round(1e3 * statistics.median(step)),
        "adapt_ms_min": round(1e3 * min(step)),
        "adapt_ms_max": round(1e3 * max(step)),
        "repeats": repeats,
        "threads": torch.get_num_threads(),
    }


def timed(body: Callable[[], object], repeats: int) -> list[float]:
    """Processor seconds of each call, after two that warm the kernels up."""
    spent = []
    for _ in range(repeats + 2):
        start = time.process_time()
        body()
        spent.append(time.process_time() - start)
    return spent[2:]


def main() -> None:
    """Measure every row and write the results file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--px", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        measure(kind, px, batch, options.repeats)
        for kind in KINDS
        for px in options.px
        for batch in options.batches
        if not (kind is ModelKind.EDM and px > 64)  # it imagines at 64 px whatever the views
    ]
    head = header(
        "world_model_speed", "python -m benchmarks.world_model_speed", ["numpy", "torch", "diffusers"]
    )
    write(RESULTS / "world_model_speed.json", head, rows)


if __name__ == "__main__":
    main()
