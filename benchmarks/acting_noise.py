"""How much of a policy's own spread should act: the same weights, on the same layouts, at several shares of it.

    python -m benchmarks.acting_noise runs/<name> [runs/<other> ...] [--noises 0 0.5 1] [--episodes 100]

Takes the newest published weights of each run (or --version), evaluates them as `groundhog evaluate` does, and writes
benchmarks/results/acting_noise.json: one row for each run and noise, with the Wilson interval of its success. The file
is written after every row, so that what was measured before an interruption is kept.
"""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rl.agent.acting import ActingPolicy
from rl.evaluation import Evaluation
from rl.provenance import RESULTS, header, write
from rl.runtime.run_dir import RunDir
from rl.workers.ports import PolicyWeights
from robot.factory import make_env

PACKAGES = ("torch", "numpy", "mujoco")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--noises", type=float, nargs="+", default=[0.0, 0.5, 1.0])
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--version", type=int)
    parser.add_argument("--out", type=Path, default=RESULTS / "acting_noise.json")
    options = parser.parse_args(argv)
    if options.episodes < 1 or not all(0.0 <= noise <= 1.0 for noise in options.noises):
        parser.error("expected --episodes >= 1 and --noises in [0, 1]")
    opened = [(run := RunDir.open(path), run.weights().load(options.version)) for path in options.runs]
    physical = [run.path for run, _ in opened if run.config.robot.kind.physical]
    if physical:
        parser.error(f"{physical[0]}: expected runs of a simulated arm, whose layouts come again")
    arguments = [*map(str, options.runs), "--noises", *map(str, options.noises)]
    arguments += ["--episodes", str(options.episodes)]
    arguments += [] if options.version is None else ["--version", str(options.version)]
    command = shlex.join(["python", "-m", "benchmarks.acting_noise", *arguments])
    head, rows = header("acting_noise", command, PACKAGES), []
    for run, weights in opened:
        for noise in options.noises:
            rows.append(measure(run, weights, noise, options.episodes))
            write(options.out, head, rows)
            print(describe(rows[-1]))
    return 0


def measure(run: RunDir, weights: PolicyWeights, noise: float, episodes: int) -> dict[str, Any]:
    """One row: what so large a share of the spread is worth. cycle_steps is None where no episode succeeded."""
    config = run.config
    policy = ActingPolicy(config.agent, run.spec, device=torch.device(config.device), seed=config.seed)
    policy.load_tensors(weights.tensors)
    env = make_env(config.robot, seed=config.seed)
    try:
        evaluation = Evaluation(env, policy, episodes, noise)
        while not evaluation.finished:
            evaluation.step()
    finally:
        env.close()
    metrics = evaluation.result().as_metrics("result")
    return {
        "run": run.path.name,
        "task": config.robot.task,
        "obs": config.robot.obs.value,
        "seed": config.seed,
        "policy_version": weights.version,
        "updates": weights.updates,
        "noise": noise,
        **{
            name.removeprefix("result/"): value if math.isfinite(value) else None
            for name, value in metrics.items()
        },
    }


def describe(row: dict[str, Any]) -> str:
    """A row as a line."""
    interval = f"{row['wilson_low']:.1%}-{row['wilson_high']:.1%}"
    return (
        f"{row['run']} ({row['task']}, {row['obs']}), noise {row['noise']:g}: {row['success']:.1%} "
        f"of {row['episodes']} ({interval}), {row['mean_steps']:.1f} steps"
    )


if __name__ == "__main__":
    raise SystemExit(main())
