"""`groundhog audit-world-model`: imagined counterfactuals against the simulator's, and how far ahead to trust them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from rl import command, provenance
from rl.agent.acting import MODE, ActingPolicy
from rl.build import make_schema
from rl.config import load
from rl.runtime.run_dir import RunDir
from rl.simulated_cell import Lead, PlayedEpisode, SimulatedCell, play
from rl.world_models.config import AuditWorldModelConfig
from rl.world_models.inputs import check_fits, published
from rl.world_models.report import audit_table, merge_rows
from robot.env import RobotEnv
from robot.factory import RobotConfig, make_expert, make_robot_env
from robot.sim.expert import ExpertNoise
from robot.types import Clip, Float32, Observation
from worldmodel.audit import audit
from worldmodel.counterfactual import Motion, make_branches

PACKAGES = ("mujoco", "numpy", "torch")
AUDIT_SEED = (
    80_000_000  # layouts of audited episodes, which nothing else has: AUDIT_SEED + 1000 * seed + index
)


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("audit-world-model", argv, _audit)


def _audit(overrides: list[str]) -> int:
    config = load("audit-world-model", overrides)
    assert isinstance(config, AuditWorldModelConfig)
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)  # tables in a file or a pipe keep their columns
    version = published(Path(config.model), config.device)
    spec = version.model.spec
    robot, policy = _policy(config)
    unseen = [view for view in spec.views if view not in robot.views]
    env = make_robot_env(replace(robot, views=[*robot.views, *unseen]), seed=config.seed)
    try:
        check_fits(spec, make_schema(env))
        episodes = [_played(env, config, index) for index in range(config.episodes)]
        cell = SimulatedCell(env, episodes, _starts(episodes, config))
        clip = cell.clip(config.horizon, spec.context_frames - 1)
        motion = Motion.of(env.robot.spec, env.robot.frames.action)
        branches = make_branches(
            clip,
            motion,
            np.random.default_rng([config.seed, 1]),
            config.local,
            motion.commanded_poses(clip.proprio[:, clip.history]),
            None if policy is None else lambda clip: _led(cell, clip, policy, config.horizon),
        )
        outcome = audit(version.model, clip, branches, cell, config.audit)
    finally:
        env.close()
    rows = outcome.rows(robot.task, robot.control_hz)
    out = Path(config.out) if config.out else version.path.parent.parent / "audit"
    typed = shlex.join(["groundhog", "audit-world-model", *overrides])
    head = provenance.header("counterfactual_audit", typed, PACKAGES) | {"model": str(version.path)}
    provenance.write(out / "audit.json", head, rows)
    if config.results:
        merge_rows(Path(config.results), head, rows, lambda row: row.get("task") == robot.task)
    console.print(audit_table(rows, robot.control_hz))
    return 0


def _policy(config: AuditWorldModelConfig) -> tuple[RobotConfig, Lead | None]:
    """The robot to audit on and, with a run, its newest policy, which sees the cameras that it was trained on."""
    if config.run is None:
        return config.robot, None
    run = RunDir.open(Path(config.run))
    policy = ActingPolicy(run.config.agent, run.spec, device=torch.device(config.device), seed=config.seed)
    policy.load_tensors(run.weights().load().tensors)
    views = list(run.spec.views)

    def lead(observation: Observation) -> Float32:
        seen = replace(observation, images={view: observation.images[view] for view in views})
        return policy.act(seen, noise=MODE)

    return run.config.robot, lead


def _played(env: RobotEnv, config: AuditWorldModelConfig, index: int) -> PlayedEpisode:
    """An episode of the noisy demonstrator, each with a skill of its own."""
    rng = np.random.default_rng([config.seed, 2, index])
    expert = make_expert(env, rng, ExpertNoise(float(rng.uniform(config.noise[0], config.noise[1]))))
    return play(env, lambda _: _along_axes(env, expert.act()), AUDIT_SEED + 1000 * config.seed + index)


def _along_axes(env: RobotEnv, action: Float32) -> Float32:
    """The demonstrator steers along base axes; the actions of this environment may have others."""
    turned = env.robot.along_action_axes(action[:6].astype(np.float64))
    return np.append(turned, action[6]).astype(np.float32)


def _starts(episodes: Sequence[PlayedEpisode], config: AuditWorldModelConfig) -> list[tuple[int, int]]:
    """Evenly over each episode, its last steps left out where too little follows."""
    starts = []
    for index, episode in enumerate(episodes):
        last = max(0, len(episode.action) - config.horizon)
        steps = np.unique(np.linspace(0, last, config.starts).round().astype(int))
        starts += [(index, int(step)) for step in steps]
    return starts


def _led(cell: SimulatedCell, clip: Clip, policy: Lead, steps: int) -> Float32:
    """(B, T, A): what the policy does from the start of each clip on, seeing what really comes of it."""
    return np.stack([cell.lead(index, policy, steps).action for index in range(len(clip))])


if __name__ == "__main__":
    raise SystemExit(main())
