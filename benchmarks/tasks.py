"""The simulated tasks: can the scripted expert and the corrector do them, does anything fault, how fast they run.

    python -m benchmarks.tasks --tasks insert assemble

One row per task; rows of other tasks stay in the results file. Also draws docs/tasks/<task>.png: a success and a
failure in both views.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from PIL import Image as PilImage
from PIL import ImageDraw

from rl.pictures import TILE, save_png, strip
from rl.provenance import RESULTS, header, write
from robot.env import RobotEnv
from robot.factory import TASKS, ObsKind, RobotConfig, make_corrector, make_expert, make_robot_env
from robot.interfaces import RobotFault
from robot.sim.expert import ExpertNoise
from robot.sim.workcell import SimWorkcell
from robot.types import Float32, Image
from robot.wrappers import HumanIntervention

SHEETS = Path(__file__).resolve().parents[1] / "docs" / "tasks"
Act = Callable[[int], Float32]  # step of the episode -> action
STRAY = 60  # steps of random actions before the expert takes over
IDLE_LIMIT = 3  # an idle policy under a corrector gets this many times the time limit
COLUMNS = 10


@dataclass
class Tally:
    """Outcomes of episodes."""

    lengths: list[int] = field(default_factory=list)
    successes: int = 0
    corrected: int = 0  # steps
    faults: Counter[str] = field(default_factory=Counter)

    def summary(self) -> dict[str, Any]:
        """For the results file; lengths in control steps."""
        return {
            "episodes": len(self.lengths),
            "success": round(self.successes / len(self.lengths), 3),
            "mean_steps": round(float(np.mean(self.lengths)), 1),
            "max_steps": max(self.lengths),
            "corrected_share": round(self.corrected / sum(self.lengths), 3),
            "faults": dict(self.faults),
        }


def run(env: gym.Env[Any, Any], act: Act, episodes: int, begin: Callable[[int], None]) -> Tally:
    """Episodes of seeds 0, 1, ...; `begin(seed)` after each reset. A fault ends its episode as a failure."""
    tally = Tally()
    for seed in range(episodes):
        env.reset(seed=seed)
        begin(seed)
        steps, ended, terminated = 0, False, False
        while not ended:
            try:
                _, _, terminated, truncated, info = env.step(act(steps))
            except RobotFault as fault:
                tally.faults[fault.name] += 1
                break
            steps += 1
            tally.corrected += info["intervened"]
            ended = terminated or truncated
        tally.lengths.append(max(steps, 1))
        tally.successes += terminated
    return tally


def limit_steps(env: RobotEnv, max_steps: int) -> None:
    """Give the task another time limit."""
    env.robot.spec = replace(env.robot.spec, max_steps=max_steps)


def measure(task: str, episodes: int) -> dict[str, Any]:
    """One row."""
    env = make_robot_env(RobotConfig(task=task, obs=ObsKind.STATE))
    limit = env.robot.spec.max_steps
    row: dict[str, Any] = {"task": task, "max_steps": limit}

    for level in (0.0, ExpertNoise().level, 0.5):
        row[f"expert_noise_{level}"] = demonstrate(env, ExpertNoise(level), episodes).summary()
    row["expert_full_speed"] = demonstrate(env, ExpertNoise(0.0, pace=1.0), episodes).summary()

    limit_steps(env, IDLE_LIMIT * limit)
    corrected = HumanIntervention(env, make_corrector(env, np.random.default_rng(0)))
    row["corrector_over_idle_policy"] = run(
        corrected, lambda _: np.zeros(7, np.float32), episodes, lambda _: None
    ).summary()

    limit_steps(env, STRAY + limit)
    expert, stray = make_expert(env, np.random.default_rng(0)), Stray()

    def take_over(step: int) -> Float32:
        return stray.act(step) if step < STRAY else expert.act()

    def begin(seed: int) -> None:
        expert.reset()
        stray.begin(seed)

    row["expert_after_random_policy"] = run(env, take_over, episodes, begin).summary()

    limit_steps(env, limit)
    row["random_policy"] = run(env, stray.act, episodes, stray.begin).summary()
    env.close()
    row["env_steps_per_cpu_s"] = speed(task)
    return row


def demonstrate(env: RobotEnv, noise: ExpertNoise, episodes: int) -> Tally:
    """Episodes of the expert with this noise."""
    expert = make_expert(env, np.random.default_rng(0), noise)
    return run(env, lambda _: expert.act(), episodes, lambda _: expert.reset())


class Stray:
    """A random policy that keeps each action for four steps, so that it really goes places."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._action = np.zeros(7, np.float32)

    def act(self, step: int) -> Float32:
        if step % 4 == 0:
            self._action = self._rng.uniform(-1.0, 1.0, 7).astype(np.float32)
        return self._action


def speed(task: str, steps: int = 400) -> float:
    """Environment steps per second of CPU time, random actions, two cameras at 64 px."""
    env = make_robot_env(RobotConfig(task=task))
    stray = Stray()
    env.reset(seed=0)
    start = 0.0
    for step in range(-50, steps):
        if step == 0:
            start = time.process_time()
        _, _, terminated, truncated, _ = env.step(stray.act(step))
        if terminated or truncated:
            env.reset()
    elapsed = time.process_time() - start
    env.close()
    return round(steps / elapsed, 1)


@dataclass(frozen=True)
class Film:
    """All images of one episode by view, how it ended, and the share of the way that was left at its end."""

    images: dict[str, Any]
    success: bool
    why: str
    left: float


def contact_sheet(task: str) -> Image:
    """A successful episode and a failed one in both views, at what the policy sees.

    The failure is the nearest one that was not about to succeed when its time was over.
    """
    env = make_robot_env(RobotConfig(task=task))
    success = next(shot for shot in films(env, ExpertNoise().level, 100) if shot.success)
    failures = (shot for shot in films(env, 0.6, 60) if not shot.success and shot.left > 0.1)
    failure = min(failures, key=lambda shot: shot.left)
    env.close()
    return np.concatenate(
        [_labelled(strip(shot.images, COLUMNS), f"{task}: {shot.why}") for shot in (success, failure)], axis=0
    )


def films(env: RobotEnv, noise: float, episodes: int) -> Iterator[Film]:
    """Episodes of an expert of this noise level; a clumsy one fails near the goal, as a policy does."""
    expert = make_expert(env, np.random.default_rng(0), ExpertNoise(noise))
    cell = env.workcell
    assert isinstance(cell, SimWorkcell)
    for seed in range(episodes):
        values, _ = env.reset(seed=seed)
        expert.reset()
        start = cell.task.progress(cell.world)
        frames, ended = {view: [image] for view, image in values["images"].items()}, False
        while not ended:
            values, _, terminated, truncated, info = env.step(expert.act())
            for view, image in values["images"].items():
                frames[view].append(image)
            ended = terminated or truncated
        why = "success" if terminated else f"failure ({info['failure']})"
        images = {view: np.stack(seen) for view, seen in frames.items()}
        yield Film(images, bool(terminated), why, cell.task.progress(cell.world) / start)


def _labelled(picture: Image, text: str) -> Image:
    canvas = PilImage.new("RGB", (picture.shape[1], picture.shape[0] + TILE // 6), "white")
    canvas.paste(PilImage.fromarray(picture), (0, TILE // 6))
    ImageDraw.Draw(canvas).text((6, 5), text, fill="black")
    return np.asarray(canvas)


def main() -> None:
    """Measure the named tasks, keep the rows of the others, draw the sheets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--resets", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULTS / "tasks.json")
    options = parser.parse_args()
    head = header("tasks", "python -m benchmarks.tasks", ("mujoco", "numpy", "gymnasium"))
    for task in options.tasks:
        row = {**measure(task, options.resets), "commit": head["commit"]}
        print(json.dumps(row, indent=1))
        kept = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
        rows = {known["task"]: known for known in kept} | {task: row}
        write(options.out, head, [rows[name] for name in TASKS if name in rows])
        save_png(SHEETS / f"{task}.png", contact_sheet(task))


if __name__ == "__main__":
    main()
