"""The end of a run: summary.json, summary.png, and a line for the person who waited."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

from rich.console import Console
from safetensors.numpy import load_file

from rl.config import TrainConfig
from rl.runtime.assemble import FILM, FRAMES
from rl.runtime.run_dir import RunDir
from rl.summary import draw, summarise


def write_report(run: RunDir, config: TrainConfig, console: Console) -> None:
    """Write and show the summary of what has been run so far."""
    facts = {
        "task": config.robot.task,
        "seed": config.seed,
        "obs": config.robot.obs.value,
        "image_px": config.robot.image_px,
        "clock": config.robot.clock.value,
        "bc_updates": config.learner.bc_updates,
        "correction": config.correction.kind.value,
    }
    summary = summarise(run.metrics_path, run.real, config.robot.control_hz, facts)
    run.write_json("summary.json", summary)
    frames: dict[str, Any] = {}
    if (run.path / FRAMES).exists():
        frames = {view: list(stack) for view, stack in load_file(run.path / FRAMES).items()}
    picture = draw(
        run.path / "summary.png",
        f"{config.robot.task}, seed {config.seed}",
        run.metrics_path,
        run.real,
        frames,
    )
    if summary["final_success"] is not None:
        console.print(
            f"success {summary['final_success']:.0%} of {summary['eval_episodes']:.0f} episodes "
            f"({summary['wilson_low']:.0%}-{summary['wilson_high']:.0%}), {summary['env_steps']} env steps, "
            f"{summary['updates']} updates, {summary['minutes']:.1f} min",
            highlight=False,
            soft_wrap=True,
        )
    console.print(f"picture {picture}", soft_wrap=True, highlight=False)
    if frames:
        console.print(f"film    {run.path / FILM}", soft_wrap=True, highlight=False)
    opener = shutil.which("xdg-open")
    if config.open_picture and opener and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        subprocess.Popen([opener, str(picture)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
