"""Speed of the simulated environment on one core: governor, physics, cameras and environment together.

    python -m benchmarks.sim_speed

Each row is the median of repeats with min and max, over random actions and with the resets between episodes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from rl.provenance import RESULTS, header, write
from robot.env import RobotEnv
from robot.factory import ObsKind, RobotConfig, make_robot_env

VIEWS = ["wrist", "side"]


def run(env: RobotEnv, actions: np.ndarray) -> tuple[float, float]:
    """Environment steps per second of wall time and of CPU time, resets included."""
    env.reset(seed=0)
    start, cpu_start = time.perf_counter(), time.process_time()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    return len(actions) / wall, len(actions) / cpu


def measure(image_px: int, cameras: int, repeats: int, steps: int) -> dict[str, Any]:
    """One row; no camera means state observations."""
    if cameras:
        config = RobotConfig(image_px=image_px, views=VIEWS[:cameras])
    else:
        config = RobotConfig(obs=ObsKind.STATE)
    env = make_robot_env(config)
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, 7)).astype(np.float32)
    run(env, actions[:100])
    speeds, cpu_speeds = zip(*(run(env, actions) for _ in range(repeats)), strict=True)
    env.close()
    return {
        "image_px": image_px if cameras else None,
        "cameras": cameras,
        "env_steps_per_s": round(statistics.median(speeds), 1),
        "min": round(min(speeds), 1),
        "max": round(max(speeds), 1),
        "env_steps_per_cpu_s": round(statistics.median(cpu_speeds), 1),  # what other processes do not distort
        "repeats": repeats,
        "steps": steps,
        "cores": 1,
    }


def main() -> None:
    """Measure every row and write the results file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--core", type=int, default=0, help="the one core to run on")
    parser.add_argument("--out", type=Path, default=RESULTS / "sim_speed.json")
    options = parser.parse_args()
    head = header("sim_speed", "python -m benchmarks.sim_speed", ("mujoco", "numpy", "gymnasium"))
    # Before the GL context exists: the drawing threads of Mesa inherit it.
    os.sched_setaffinity(0, {options.core})
    cases = [(64, 2), (128, 2), (256, 2), (64, 1), (64, 0)]
    rows = []
    for image_px, cameras in cases:
        rows.append(measure(image_px, cameras, options.repeats, options.steps))
        print(rows[-1])
    write(options.out, head, rows)


if __name__ == "__main__":
    main()
