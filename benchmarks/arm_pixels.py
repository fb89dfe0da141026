"""A physical arm's loop with two cameras: control period, ages, skew, following, and what a failing camera costs.

    setsid bash -c 'echo -15 > /proc/$$/autogroup; exec python -m benchmarks.arm_pixels [--steps 300] [--trials 5]'

Writes benchmarks/results/arm_pixels.json. The A1X is simulated in another process behind the vendor's topics; the
images are recordings of synthetic D435i cameras, played back through RealSense's library. They come as real ones do,
but do not show the arm. The learner is that of a real run, in its own process, two updates for each step.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.control_loop import stored_periods, updates_per_second
from benchmarks.fault_cases import demonstrate, share_priority
from benchmarks.faults import FAULT, HOLD, Rig, percentiles, row, share
from rl.config import load
from rl.metrics import read_metrics
from rl.provenance import RESULTS, header, write
from rl.replay.reader import StoreReader
from rl.runtime.run_dir import RunDir
from robot.clock import WallClock
from robot.interfaces import RobotFault
from robot.safety import GovernorState
from robot.sim import d435i
from tests.e2e.attended import Attended
from tests.robot.recorded_d435i import Unplugged, stall
from tests.robot.simulated_a1x import SimulatedA1X, free_domain

CLOCK = WallClock()
BUSY = "learner busy"
STAY = np.zeros(7, np.float32)
PERIOD = 0.1  # s
TIMEOUT = 900.0  # s for the run with the learner
LAGS = slice(12, 15)  # of the proprio: target minus measured [m]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--trials", type=int, default=5)
    options = parser.parse_args()
    with TemporaryDirectory() as name, SimulatedA1X(free_domain() + 3) as vendor:
        folder = Path(name)
        d435i.main([str(folder), "--seconds", "15"])
        arm = [
            "robot=a1x_simulated_pixels",
            f"robot.a1x.domain_id={vendor.config.domain_id}",
            f"robot.a1x.connect_timeout={vendor.config.connect_timeout}",
            "robot.cell.confirm_resets=false",
            *(f"robot.cameras.{view}.recording={folder}/{view}.db3" for view in ("side", "wrist")),
        ]
        demonstrate(arm, folder / "demos")
        rows = [
            run_row("learner rests", arm, folder, options.steps, utd_ratio=0.01),
            run_row(BUSY, arm, folder, options.steps, utd_ratio=2.0),
            *camera_faults(arm, options.trials),
        ]
    arguments = f"--steps {options.steps} --trials {options.trials}"
    command = f"python -m benchmarks.arm_pixels {arguments} (autogroup nice {share()})"
    packages = ("torch", "mujoco", "cyclonedds", "pyrealsense2")
    write(RESULTS / "arm_pixels.json", header("arm_pixels", command, packages), rows)
    for line in rows:
        print(line)
    return 0


def run_row(words: str, arm: Sequence[str], folder: Path, steps: int, utd_ratio: float) -> dict[str, Any]:
    """A real run of `steps`, a person at its terminal; everything is read from what it stored."""
    name = words.replace(" ", "_")
    run = RunDir(folder / name)
    how = [
        "wandb=disabled",
        "correction.kind=none",
        "pacing.actor_waits=episode",
        f"pacing.utd_ratio={utd_ratio}",
        "learner.warm_updates=50",
        f"actor.max_env_steps={steps}",
        "actor.eval_every_env_steps=0",
        "actor.final_eval_episodes=1",
    ]
    where = [f"runs_dir={folder}", f"name={name}", f"demos.path={folder / 'demos'}"]
    attended = Attended("rl.train", [*arm, *how, *where])
    share_priority(attended.process.pid)
    try:
        if attended.process.wait(TIMEOUT) != 0:
            raise RuntimeError(f"the run failed:\n{attended.output.decode(errors='replace')}")
    finally:
        attended.end()
    records = read_metrics(run.metrics_path)
    reader = StoreReader(run.real)
    episodes = [reader.episode(info.episode) for info in reader.episodes()]
    stamps = [np.stack(list(episode.image_timestamps.values())) for episode in episodes]
    ages = [episode.timestamp - times for episode, times in zip(episodes, stamps, strict=True)]
    lags = [np.linalg.norm(episode.proprio[:, LAGS], axis=1) for episode in episodes]
    periods = stored_periods(run.real)
    return {
        "case": "10 Hz from two cameras",
        "load": words,
        "steps": len(periods),
        **percentiles("period_ms", 1e3 * periods),
        "late_periods": int((periods > 1.1 * PERIOD).sum()),
        **percentiles("image_age_ms", 1e3 * _flat(ages)),
        "late_images": round(float((_flat(ages) > 0.1).mean()), 4),
        **percentiles("skew_ms", 1e3 * _flat([np.ptp(times, axis=0) for times in stamps])),
        **percentiles("tool_error_mm", 1e3 * _flat(lags)),
        "learner_updates_per_s": round(updates_per_second(records), 1) if words == BUSY else None,
    }


def _flat(parts: Sequence[NDArray[np.floating[Any]]]) -> NDArray[np.float64]:
    return np.concatenate([np.asarray(part, np.float64).ravel() for part in parts])


def camera_faults(arm: Sequence[str], trials: int) -> list[dict[str, Any]]:
    """Seconds from the moment at which images stop until the arm is told to hold, and until the episode ends."""
    config = load("check-robot", [*arm]).robot
    rig = Rig(config)
    held: dict[str, list[float]] = {"images stop": [], "camera unplugged": []}
    ended: dict[str, list[float]] = {words: [] for words in held}
    resumed: list[float] = []
    try:
        for _ in range(trials):
            rig.begin()
            resumes = stall(rig.env, "wrist", 0.7) + 0.7
            while CLOCK.now() < resumes:
                rig.env.step(STAY)
            resumed.append(CLOCK.now() - resumes)
            rig.begin()
            began = stall(rig.env, "wrist", 2.0)
            _until_fault(rig, began, held["images stop"], ended["images stop"])
            rig.begin()
            camera = Unplugged(rig.env, "wrist")
            _until_fault(rig, camera.began, held["camera unplugged"], ended["camera unplugged"])
            camera.plug_in()
    finally:
        rig.env.close()
    rows = [row("images return after 0.7 s", "goes on", 0.25, resumed)]
    for words, limit in (("images stop", 1.6), ("camera unplugged", 1.6)):
        rows += [row(words, HOLD, 0.5, held[words]), row(words, FAULT, limit, ended[words])]
    return rows


def _until_fault(rig: Rig, began: float, held: list[float], ended: list[float]) -> None:
    rig.seen.clear()
    with suppress(RobotFault):
        for _ in range(100):
            rig.env.step(STAY)
        raise RuntimeError("the episode went on without images")
    ended.append(CLOCK.now() - began)
    held.append(next(when for change, when in rig.seen if change.after is GovernorState.HOLDING) - began)


if __name__ == "__main__":
    raise SystemExit(main())
