"""Control loop on the wall clock: is 10 Hz held while the learner works on the same cores?

    python -m benchmarks.control_loop [--steps 600] [--image-px 64]

Writes benchmarks/results/control_loop.json: periods between control steps with nothing else running, with the learner
updating in its own process, and with a world model that learns and imagines in a third one, all from two cameras. An
overrun is counted and shown, never hidden.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl.agent.acting import ActingPolicy
from rl.agent.sac import SACConfig
from rl.agent.spec import AgentSpec
from rl.build import views_of
from rl.evaluation import to_observation
from rl.metrics import read_metrics
from rl.provenance import RESULTS, header, write
from rl.replay.reader import StoreReader
from rl.runtime.run_dir import RunDir
from robot.factory import ClockKind, RobotConfig, make_robot_env


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--image-px", type=int, default=64)
    arguments = parser.parse_args()
    rows = [alone(arguments.steps, arguments.image_px)]
    for load, experiment in (("learner", "press_pixels"), ("learner and world model", "demo")):
        rows.append(beside(load, experiment, arguments.steps, arguments.image_px))
    command = f"python -m benchmarks.control_loop --steps {arguments.steps} --image-px {arguments.image_px}"
    write(RESULTS / "control_loop.json", header("control_loop", command, ("torch", "mujoco")), rows)
    for row in rows:
        print(row)
    return 0


def alone(steps: int, image_px: int) -> dict[str, Any]:
    """The actor's loop alone: observe, act with an untrained policy, wait for the tick."""
    torch.set_num_threads(1)
    env = make_robot_env(RobotConfig(clock=ClockKind.WALL, image_px=image_px))
    policy = ActingPolicy(
        SACConfig(), AgentSpec(views_of(env), env.proprio_spec), device=torch.device("cpu"), seed=0
    )
    periods: list[float] = []
    overruns = 0
    values, info = env.reset(seed=0)
    while len(periods) < steps:
        values, _, terminated, truncated, info = env.step(policy.act(to_observation(values, info)))
        periods.append(info["period"])
        overruns += info["overrun"]
        if terminated or truncated:
            values, info = env.reset()
    env.close()
    return row("none", image_px, np.array(periods), overruns, None)


def beside(load: str, experiment: str, steps: int, image_px: int) -> dict[str, Any]:
    """A real run of `experiment` on the wall clock: actor and every other worker in processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        overrides = [
            f"runs_dir={folder}",
            "name=run",
            f"experiment={experiment}",
            "open_picture=false",
            f"robot.image_px={image_px}",
            "robot.clock=wall",
            "pacing.actor_waits=episode",
            "wandb=disabled",
            f"actor.max_env_steps={steps}",
            "actor.eval_every_env_steps=0",
            "actor.final_eval_episodes=1",
        ]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-m", "rl.train", *overrides], check=True, env=environment)
        run = RunDir(Path(folder) / "run")
        records = read_metrics(run.metrics_path)
        overruns = int(max((r.get("time/overruns") or 0) for r in records))
        imagined = [r["world_model/generated"] for r in records if r.get("world_model/generated") is not None]
        return row(
            load,
            image_px,
            stored_periods(run.real),
            overruns,
            updates_per_second(records),
            imagined=int(max(imagined, default=0)),
        )


def stored_periods(store: Path) -> NDArray[np.float64]:
    """Seconds between consecutive observations of an episode, over all episodes of a store."""
    reader = StoreReader(store)
    episodes = [reader.episode(info.episode).timestamp for info in reader.episodes()]
    return np.concatenate([np.diff(times) for times in episodes])


def updates_per_second(records: list[dict[str, Any]]) -> float:
    """Updates of the learner per second of the time in which the actor moved."""
    moving = [r for r in records if r["worker"] == "learner" and r["env_steps"] > 0]
    seconds = moving[-1]["time"] - moving[0]["time"]
    return float((moving[-1]["updates"] - moving[0]["updates"]) / seconds)


def row(
    load: str,
    image_px: int,
    periods: NDArray[np.float64],
    overruns: int,
    updates: float | None,
    imagined: int = 0,
) -> dict[str, Any]:
    return {
        "clock": "wall",
        "load": load,
        "image_px": image_px,
        "period_p50_ms": round(1e3 * float(np.percentile(periods, 50)), 2),
        "period_p99_ms": round(1e3 * float(np.percentile(periods, 99)), 2),
        "period_max_ms": round(1e3 * float(periods.max()), 2),
        "overruns": overruns,
        "steps": len(periods),
        "learner_updates_per_s": None if updates is None else round(updates, 1),
        "imagined_transitions": imagined,
    }


if __name__ == "__main__":
    raise SystemExit(main())
