"""What labels of freshly imagined clips are worth, by how many draws of the arm's readings the reward model hears.

    OMP_NUM_THREADS=1 python -m benchmarks.drawn_labels runs/closed_loop/runs/insert_alone/full/* [--clips 300]

Clips are imagined with the newest policy and world model of a finished run, from its own starts, and carried out in the
simulator; none has been selected. Labels are those of the reward model's thresholds, without calibration. Writes
benchmarks/results/drawn_labels.json, the rows of the newest call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.finished_runs import asked
from reward_model.calibration.calibrator import CalibrationConfig, Calibrator
from rl.agent.acting import ActingPolicy
from rl.imagination.clip import ImaginedClip, Origin
from rl.imagination.executing import ExecutingLabeller
from rl.imagination.imagine import Imagination
from rl.imagination.labels import RewardModelLabeller, TruthLabeller
from rl.imagination.oracle import OracleImaginer
from rl.imagination.proprio import fit_network, fit_proprio
from rl.imagination.starts import StartPool
from rl.imagination.video import VideoImaginer
from rl.provenance import RESULTS, header, write
from rl.replay.reader import StoreReader
from rl.reward_models.loading import load_for_labels
from rl.runtime.given import own_reward_model, own_versions
from rl.runtime.imagining import layout_seed
from rl.runtime.run_dir import RunDir
from robot.factory import make_robot_env
from robot.types import Label
from worldmodel.counterfactual import BranchKind, Motion
from worldmodel.factory import load_world_model

DRAWS = (1, 5)
OUT = RESULTS / "drawn_labels.json"
CPU = torch.device("cpu")


def main() -> int:
    runs, clips, command = asked("drawn_labels", __doc__, 300)
    rows = [row for path in runs for row in measure(path, clips)]
    write(OUT, header("drawn_labels", command, ["torch", "mujoco"]), rows)
    return 0


def measure(path: Path, count: int) -> list[dict[str, Any]]:
    """One row for each number of draws, of the same clips."""
    run = RunDir.open(path)
    env = make_robot_env(run.config.robot, seed=run.config.seed)
    model, thresholds = load_for_labels(
        own_reward_model(run), run.config.robot.task, env.proprio_spec.names, CPU
    )
    names = env.proprio_spec.names
    labeller = RewardModelLabeller(
        model, thresholds, Calibrator(CalibrationConfig()), model.task, proprio_names=names
    )
    told: dict[int, list[tuple[Label, bool]]] = {draws: [] for draws in DRAWS}
    for clips in carried_out(run, env):
        for draws, found in told.items():
            labelled = labeller.label([heard(clip, draws) for clip in clips])
            found += [
                (one.label, Label.SUCCESS in one.clip.truth)
                for one in labelled
                if one.agreed and one.clip.truth[0] is not Label.UNKNOWN
            ]
        if min(map(len, told.values())) >= count:
            break
    env.close()
    rows = [{"run": "/".join(path.parts[-3:]), "draws": draws, **counts(of)} for draws, of in told.items()]
    for row in rows:
        print(row, flush=True)
    return rows


def carried_out(run: RunDir, env: Any) -> Iterator[list[ImaginedClip]]:
    """Clips of the policy, with the truth of each, without end."""
    settings, seed = run.config.synthetic, run.config.seed
    video = settings.video
    readers = {Origin.DEMO: StoreReader(run.demo), Origin.ONLINE: StoreReader(run.real)}
    pool = StartPool(readers[Origin.DEMO], readers[Origin.ONLINE], settings.imagination.starts)
    pool.refresh()
    network = fit_network(video.recordings, video.proprio)
    motion = Motion.of(env.robot.spec, env.robot.frames.action)
    imaginer = VideoImaginer(
        load_world_model(own_versions(run).newest_path(), device=CPU),
        fit_proprio(list(readers.values()), video.proprio, network),
        pool,
        motion,
        control_period=env.robot.timing.control_period,
        max_risk=video.max_risk,
        draws=max(DRAWS),
    )
    policy = ActingPolicy(run.config.agent, run.spec, device=CPU, seed=seed)
    weights = run.weights()
    policy.load_tensors(weights.load(weights.latest_version()).tensors)
    config = replace(settings.imagination, replay_share=0.0)
    imagination = Imagination(pool, imaginer, motion, config, np.random.default_rng(seed))
    simulator = OracleImaginer(env, readers, layout_seed(run.config))
    truth = ExecutingLabeller(TruthLabeller(), simulator, 1.0, np.random.default_rng(seed))
    while True:
        clips = imagination.imagine(policy)
        yield [one.clip for one in truth.label(clips) if one.clip.kind is not BranchKind.REPLAY]


def heard(clip: ImaginedClip, draws: int) -> ImaginedClip:
    """The clip with so many draws of its readings."""
    others = None if clip.others is None or draws == 1 else clip.others[: draws - 1]
    return replace(clip, others=others)


def counts(told: list[tuple[Label, bool]]) -> dict[str, int]:
    """Of (label, whether it succeeds)."""
    return {
        "clips": len(told),
        "succeed": sum(succeeds for _, succeeds in told),
        "called_success": sum(label is Label.SUCCESS for label, _ in told),
        "right": sum(label is Label.SUCCESS and succeeds for label, succeeds in told),
        "called_failure": sum(label is Label.FAILURE for label, _ in told),
        "missed": sum(label is Label.FAILURE and succeeds for label, succeeds in told),
    }


if __name__ == "__main__":
    raise SystemExit(main())
