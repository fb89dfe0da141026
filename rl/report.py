"""The end of a run: summary.json, summary.png, and a line for the person who waited."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from safetensors.numpy import load_file

from rl import checkpoint
from rl.agent.sac import SACAgent
from rl.demonstrations import DEMO_SEED
from rl.diagnostics import value_profile
from rl.diagnostics.value_profile import ValueProfileConfig
from rl.imagined_summary import describe
from rl.metrics import read_metrics
from rl.relived import read_relived, side_by_side
from rl.runtime.assemble import FAILURES, FILM, FRAMES
from rl.runtime.run_dir import RunDir
from rl.schemas import TrainConfig
from rl.summary import draw, summarise
from robot.factory import ClockKind, RobotKind, make_expert, make_robot_env
from robot.sim.expert import ExpertNoise
from robot.types import Image, Label

RELIVED_LOOKED_AT = 50  # newest imagined clips among which one is chosen to be shown
PROFILE = "diagnostics/value_profile"  # .png and .json


def write_report(run: RunDir, config: TrainConfig, console: Console) -> None:
    """Write and show the summary of what has been run so far; of a finished run also the value profile."""
    facts = {
        "task": config.robot.task,
        "seed": config.seed,
        "obs": config.robot.obs.value,
        "image_px": config.robot.image_px,
        "clock": config.robot.clock.value,
        "bc_updates": config.learner.bc_updates,
        "eval_noise": config.actor.eval_noise,
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
        summary["bc_line"],
        _relived(run, config),
    )
    if summary["final_success"] is not None:
        console.print(
            f"success {summary['final_success']:.0%} of {summary['eval_episodes']:.0f} episodes "
            f"({summary['wilson_low']:.0%}-{summary['wilson_high']:.0%}), {summary['env_steps']} env steps, "
            f"{summary['updates']} updates, {summary['minutes']:.1f} min",
            highlight=False,
            soft_wrap=True,
        )
    if config.synthetic.on:
        console.print(describe(read_metrics(run.metrics_path)), highlight=False, soft_wrap=True)
    console.print(f"picture {picture}", soft_wrap=True, highlight=False)
    if frames:
        console.print(f"film    {run.path / FILM}", soft_wrap=True, highlight=False)
    if not summary["failures"]:
        (run.path / FAILURES).unlink(missing_ok=True)  # of a shorter run that was continued
    elif (run.path / FAILURES).exists():
        console.print(f"failed  {run.path / FAILURES}", soft_wrap=True, highlight=False)
    if summary["final_success"] is not None and config.robot.kind is RobotKind.SIM:
        profile = write_value_profile(run, config, ValueProfileConfig())
        if profile is not None:
            console.print(f"value   {profile}", soft_wrap=True, highlight=False)
    opener = shutil.which("xdg-open")
    if config.open_picture and opener and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        subprocess.Popen([opener, str(picture)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _relived(run: RunDir, config: TrainConfig) -> Image | None:
    """The newest imagined success, or else the newest clip, beside what really happened; None without pictures."""
    if not config.synthetic.on:
        return None
    clips = read_relived(run.synthetic, run.demo, run.real, -1, RELIVED_LOOKED_AT)
    shown = [clip for clip in clips if clip.label is Label.SUCCESS] or clips
    return side_by_side(shown[-1:])


def write_value_profile(run: RunDir, config: TrainConfig, settings: ValueProfileConfig) -> Path | None:
    """Profile of the newest checkpoint, as PNG and JSON in the run directory; nothing else there changes.

    Returns the picture; None without a checkpoint, or where the demonstrator failed.
    """
    saved = checkpoint.load_latest(run.checkpoints)
    if saved is None:
        return None
    agent = SACAgent(config.agent, run.spec, device=torch.device(config.device), seed=config.seed)
    agent.load_state(saved.tensors, saved.meta["agent"])
    # Placing the arm needs a clock that waits for nobody.
    env = make_robot_env(replace(config.robot, clock=ClockKind.VIRTUAL), seed=config.seed)
    try:
        expert = make_expert(env, np.random.default_rng([config.seed, 5]), ExpertNoise(0.0))
        first_seed = DEMO_SEED + 1000 * config.seed
        profile = value_profile.value_profile(env, agent, expert, settings, first_seed=first_seed)
    finally:
        env.close()
    if profile is None:
        return None
    run.write_json(f"{PROFILE}.json", profile.as_json() | {"updates": saved.updates})
    picture = run.path / f"{PROFILE}.png"
    value_profile.draw(
        profile, picture, f"V around the demonstration, {config.robot.task}, seed {config.seed}"
    )
    return picture
