"""The reward model on the simulated arm: real clips, generated replays, executed counterfactuals, calibration.

    OMP_NUM_THREADS=1 python -m benchmarks.reward_model --tasks press insert

Three stores per task, recorded apart: episodes to learn from (also for the world model), episodes that choose the
thresholds, episodes for the test, which nothing else has seen. A failure is an episode that never succeeded, or what
came before a success; near misses are a quarter of all episodes.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.reward_model_data import record
from benchmarks.reward_model_executed import Branches, calibrated, execute, label_rates
from reward_model.calibration.anchors import ScorerKey
from reward_model.classifier import ClassifierConfig, SuccessClassifier, TrunkKind
from reward_model.dataset import FrameSampler, KnownClip, Origin
from reward_model.evaluate import report, score_clips
from reward_model.labels import LabelConfig
from reward_model.reliability import draw_reliability
from reward_model.trainer import RewardTrainer, RewardTrainerConfig
from rl.agent.adam import load_optimiser
from rl.provenance import RESULTS, header, write
from rl.replay.sampler import Holdout
from rl.reward_models.data import KnownEpisode, RewardDataConfig, read_episodes
from rl.reward_models.loading import choose, make_classifier
from rl.reward_models.replays import ReplayConfig, replays
from rl.reward_models.report import rows as report_rows
from rl.world_models.config import FinetuneWorldModelConfig
from rl.world_models.data import ClipData
from rl.world_models.training import MARK, Finetuning
from robot.factory import RobotConfig
from worldmodel.interface import WorldModel

PARTS = {"learn": 140, "thresholds": 200, "test": 200}  # episodes of each
# Trained on generated clips too; trunk. A frozen trunk needs a quarter of the steps.
ARMS = ((False, TrunkKind.SCRATCH), (True, TrunkKind.SCRATCH), (True, TrunkKind.FROZEN))
DOCS = Path(__file__).resolve().parents[1] / "docs" / "reward_model"


@dataclass(frozen=True)
class Task:
    """One task's episodes, real and replayed in its world model, and executed counterfactuals, by part."""

    name: str
    episodes: dict[str, list[KnownEpisode]]
    real: dict[str, list[KnownClip]]
    generated: dict[str, list[KnownClip]]
    executed: dict[str, Branches]
    world_model: dict[str, Any]


def prepare(name: str, options: argparse.Namespace) -> Task:
    """Record, train the world model, replay, execute."""
    folder = options.directory / name
    episodes = {
        part: read_episodes(
            RewardDataConfig([str(record(folder / part, RobotConfig(task=name), count, seed))])
        )
        for seed, (part, count) in enumerate(PARTS.items())
    }
    world, facts = _world_model(folder, options.world_model_minutes)
    rng = np.random.default_rng(0)
    replay = ReplayConfig(per_episode=2)
    return Task(
        name,
        episodes,
        {part: [episode.clip() for episode in mine] for part, mine in episodes.items()},
        {part: replays(world, mine, replay, rng) for part, mine in episodes.items()},
        {
            part: execute(world, episodes[part], seed, options.branches, rng)
            for seed, part in enumerate(PARTS)
            if part != "learn"
        },
        facts,
    )


def _world_model(folder: Path, minutes: float) -> tuple[WorldModel, dict[str, Any]]:
    """Trained on the episodes that the reward model learns from; continues where it was cut short."""
    out = folder / "world_model"
    config = FinetuneWorldModelConfig(cpu_minutes=minutes, resume=(out / MARK).exists(), horizon=12, clips=32)
    training = Finetuning(config, ClipData.open([folder / "learn"], Holdout()), out, time.process_time)
    for done in training.rounds():
        print(f"world model: {done.updates}/{done.target} {done.metrics}", flush=True)
    verdict = training.publish()
    scores = verdict.challenger
    return training.champion.challenger, {
        "world_model_psnr": round(scores.psnr, 2),
        "world_model_copy_psnr": round(scores.extra["copy_psnr"], 2),
        "world_model_minutes": minutes,
    }


def train(task: Task, learned: list[KnownClip], trunk: TrunkKind, steps: int) -> SuccessClassifier:
    """A classifier of the default size."""
    views = task.episodes["learn"][0].reader.schema.views
    model = make_classifier(
        ClassifierConfig(trunk), task.name, views, seed=0, device=torch.device("cpu"), version=1
    )
    config = RewardTrainerConfig(steps=steps)
    for metrics in RewardTrainer(
        model, FrameSampler(learned, config.generated_share), config, seed=0
    ).train():
        print(task.name, metrics, flush=True)
    return model


def measure(task: Task, steps: int) -> list[dict[str, Any]]:
    """All rows of a task."""
    found: list[dict[str, Any]] = []
    labels = LabelConfig()
    for with_generated, trunk in ARMS:
        parts = {part: task.real[part] + (task.generated[part] if with_generated else []) for part in PARTS}
        begun = time.process_time()
        model = train(task, parts["learn"], trunk, steps if trunk is TrunkKind.SCRATCH else steps // 4)
        shared = {
            "task": task.name,
            "trunk": trunk.value,
            "trained_on": "real and generated" if with_generated else "real",
            "train_cpu_s": round(time.process_time() - begun, 1),
            **(task.world_model if with_generated else {}),
        }
        model.thresholds = choose(model, parts["thresholds"], labels)
        scored = score_clips(model, task.real["test"] + task.generated["test"], labels.hold_frames)
        rng = np.random.default_rng(0)
        reports = [report(scored, model.thresholds, task.name, origin, rng) for origin in Origin]
        if with_generated and trunk is TrunkKind.SCRATCH:
            draw_reliability(DOCS / f"{task.name}_reliability.png", reports, model.thresholds)
        for row in report_rows(reports, model.thresholds):
            data = "held-out episodes" if row["source"] == "real" else "replays of held-out episodes"
            found.append({**shared, "data": data, **{k: v for k, v in row.items() if k != "bins"}})
        found += _executed_rows(task, model, labels, shared)
    return found


def _executed_rows(
    task: Task, model: SuccessClassifier, labels: LabelConfig, shared: dict[str, Any]
) -> list[dict[str, Any]]:
    """Labels of executed counterfactuals: of the real frames, of the imagined ones, and of those after calibration."""
    assert model.thresholds is not None
    anchors, test = task.executed["thresholds"], task.executed["test"]
    hold = labels.hold_frames
    raw = test.scores(model, hold, imagined=True)
    corrected, thresholds, gate = calibrated(
        anchors, anchors.scores(model, hold, imagined=True), raw, ScorerKey(task.name, "1"), labels
    )
    found = []
    for source, score, limits in (
        ("real", test.scores(model, hold, imagined=False), model.thresholds),
        ("generated", raw, model.thresholds),
        ("generated", corrected, thresholds),
    ):
        row = label_rates(score, test.reached, test.episode, limits)
        known = {name: round(value, 5) if math.isfinite(value) else None for name, value in row.items()}
        after = limits is thresholds
        found.append(
            {**shared, "data": "executed counterfactuals", "source": source, "calibrated": after, **known}
            | (
                {
                    "anchors": len(anchors.episode),
                    "gate": round(gate.value, 5),
                    "gate_closed_by": [closure.value for closure in gate.closures],
                }
                if after
                else {}
            )
        )
    return found


def main() -> None:
    """Measure the named tasks, keep the rows of the others."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=["press", "insert"])
    parser.add_argument("--branches", type=int, default=2, help="executed counterfactuals per episode")
    parser.add_argument("--steps", type=int, default=800, help="batches of the classifier's training")
    parser.add_argument("--world-model-minutes", type=float, default=3.0, help="processor time per task")
    parser.add_argument("--directory", type=Path, default=Path("runs/reward_model"))
    parser.add_argument("--out", type=Path, default=RESULTS / "reward_model.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load_optimiser()
    head = header(
        "reward_model", "python -m benchmarks.reward_model", ("torch", "numpy", "mujoco", "scikit-learn")
    )
    for name in options.tasks:
        measured = measure(prepare(name, options), options.steps)
        print(json.dumps(measured, indent=1))
        kept = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
        write(options.out, head, [row for row in kept if row["task"] != name] + measured)


if __name__ == "__main__":
    main()
