"""What the arm's readings tell a reward model that its images do not, on real episodes of policies that learn.

    OMP_NUM_THREADS=1 python -m benchmarks.reward_model_readings runs/closed_loop/models/press
        --runs runs/closed_loop/runs/press_scarce/full/* [--readings ee_x ee_y ee_z] [--seeds 0 1]

The reward model of the closed loop (benchmarks/closed_loop.py) is trained anew, on the same recordings and with the
same world model, with and without readings. Rows: on all real episodes of the runs (`policy`); on these imagined for 4
steps from two places of each, as the loop imagines them, readings included, labelled by what really followed
(`imagined`). Per trial: a success, or the failing stretch of an episode, by the score held as long as success has to
hold. Per frame: `frame_false` of those that show failure reach the threshold of success, `frame_dead` lie between the
two thresholds. `swapped`: of the last frames of failures, the share that is called success beside the readings of
another episode's success, `unswapped` beside their own; one that went by readings alone would call all of them so.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from reward_model.classifier import ClassifierConfig, SuccessClassifier
from reward_model.dataset import KnownClip, Origin
from reward_model.evaluate import report, score_clips
from reward_model.interface import by_name
from reward_model.labels import LabelConfig
from rl.imagination.proprio import CrossFittedProprio, ProprioConfig, fit_proprio
from rl.provenance import RESULTS, header, write
from rl.replay.reader import StoreReader
from rl.replay.sampler import gather_clips
from rl.reward_models.config import RewardFitConfig
from rl.reward_models.data import KnownEpisode, RewardDataConfig, read_episodes
from rl.reward_models.fitting import fit_classifier
from rl.reward_models.replays import ReplayConfig, replays
from rl.runtime.run_dir import RunDir
from rl.world_models.inputs import published_path
from robot.factory import make_task
from robot.types import Label
from worldmodel.clips import split
from worldmodel.factory import load_world_model
from worldmodel.interface import WorldModel

HORIZON = 4  # control steps, those of arm `full`
OUT = RESULTS / "reward_model_readings.json"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path)
    parser.add_argument("--runs", nargs="+", type=Path, required=True)
    parser.add_argument("--readings", nargs="+", default=["ee_x", "ee_y", "ee_z"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(options)
    runs = ["/".join(("runs/closed_loop/runs", *path.parts[-3:])) for path in options.runs]
    command = (
        f"python -m benchmarks.reward_model_readings runs/closed_loop/models/{options.models.name} "
        f"--runs {' '.join(runs)} --readings {' '.join(options.readings)} --seeds "
        + " ".join(map(str, options.seeds))
    )
    kept = json.loads(OUT.read_text())["rows"] if OUT.exists() else []
    kept = [row for row in kept if row["task"] != rows[0]["task"]]
    write(OUT, header("reward_model_readings", command, ["torch", "mujoco"]), kept + rows)
    return 0


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Two rows of each classifier."""
    device = torch.device("cpu")
    play = read_episodes(RewardDataConfig([str(options.models / "play")]))
    world = load_world_model(published_path(options.models / "world_model"), device=device)
    hold = make_task(play[0].task).spec.hold_steps
    learned = [episode.clip() for episode in play]
    learned += replays(world, play, ReplayConfig(), np.random.default_rng([0, 1]))
    shown = {"policy": list[KnownClip](), "imagined": list[KnownClip]()}
    for path in options.runs:
        run = RunDir.open(path)
        proprio = fit_proprio([StoreReader(run.demo), StoreReader(run.real)], ProprioConfig())
        episodes = [
            replace(episode, name="/".join((*path.parts[-2:], episode.name)))
            for episode in read_episodes(RewardDataConfig([str(run.real)]))
        ]
        shown["policy"] += [episode.clip() for episode in episodes]
        shown["imagined"] += imagined(world, proprio, episodes, np.random.default_rng(0))
    rows = []
    for readings in ([], options.readings):
        for seed in options.seeds:
            config = RewardFitConfig(
                classifier=ClassifierConfig(readings=tuple(readings)), labels=LabelConfig(hold)
            )
            model = fit_classifier(
                learned, play, config, seed=seed, device=device, version=1, say=lambda text: None
            )
            for name, clips in shown.items():
                row = {"task": model.task, "readings": list(readings), "seed": seed, "data": name}
                rows.append({**row, **figures(model, clips, hold)})
                print(rows[-1], flush=True)
    return rows


def imagined(
    world: WorldModel, proprio: CrossFittedProprio, episodes: Sequence[KnownEpisode], rng: np.random.Generator
) -> list[KnownClip]:
    """Replays of the end of each episode and of another place, a real frame first; readings imagined as well."""
    reader, found = episodes[0].reader, []
    for episode in episodes:
        last = max(0, episode.info.num_transitions - HORIZON)
        starts = np.array([last, rng.integers(last + 1)])
        real = gather_clips(reader, episode.info.first_row + starts, HORIZON, world.spec.context_frames - 1)
        context, _ = split(real, world.spec)
        action = real.action[:, real.history :]
        table = proprio.rollout(real.proprio[:, real.history], action, rng, real.episode)
        frames = world.rollout(context, action, int(rng.integers(2**31))).images
        for index, start in enumerate(starts):
            label = np.full(HORIZON + 1, Label.UNKNOWN, np.int8)
            known = episode.label[start : start + HORIZON + 1]
            label[: len(known)] = known
            images = {
                view: np.concatenate([context.images[view][index, -1:], seen[index]])
                for view, seen in frames.items()
            }
            readings = by_name(table[index], reader.schema.proprio.names)
            found.append(KnownClip(images, label, episode.task, episode.name, Origin.GENERATED, readings))
    return found


def figures(model: SuccessClassifier, clips: Sequence[KnownClip], hold: int) -> dict[str, Any]:
    """Of one classifier on clips of one origin."""
    thresholds = model.thresholds
    assert thresholds is not None and thresholds.success is not None and thresholds.failure is not None
    told = report(
        score_clips(model, clips, hold), thresholds, model.task, clips[0].origin, np.random.default_rng(0)
    )
    label = np.concatenate([clip.label for clip in clips])
    prob = np.concatenate([item.held for item in score_clips(model, clips, 1)])
    known = label != Label.UNKNOWN
    dead = (prob > thresholds.failure) & (prob < thresholds.success)
    own, other = _called(model, clips, thresholds.success)
    found = {
        "auc": told.auc,
        "false_positives": told.false_positive_rate,
        "missed": 1.0 - told.recall,
        "unknown": told.unknown,
        "frame_auc": float(roc_auc_score(label[known] == Label.SUCCESS, prob[known])),
        "frame_false": float((prob[label == Label.FAILURE] >= thresholds.success).mean()),
        "frame_dead": float(dead[known].mean()),
        "unswapped": own,
        "swapped": other,
        "threshold": thresholds.success,
        "failure_threshold": thresholds.failure,
    }
    return {
        "successes": told.positives,
        "failures": told.negatives,
        **{name: round(value, 4) for name, value in found.items()},
    }


def _called(model: SuccessClassifier, clips: Sequence[KnownClip], threshold: float) -> tuple[float, float]:
    """Share of failures whose last known frame is called success: with its own readings, with those of a success."""
    rng = np.random.default_rng(0)
    won = [clip for clip in clips if (clip.label == Label.SUCCESS).any()]
    lost = [
        clip
        for clip in clips
        if not (clip.label == Label.SUCCESS).any() and (clip.label == Label.FAILURE).any()
    ]
    if not lost or not won:
        return float("nan"), float("nan")
    called: list[list[bool]] = []
    for clip in lost:
        at = np.flatnonzero(clip.label == Label.FAILURE)[-1:]
        other = won[rng.integers(len(won))]
        then = np.flatnonzero(other.label == Label.SUCCESS)[-1:]
        images = {view: frames[at][None] for view, frames in clip.images.items()}
        called.append(
            [
                bool(
                    model.score(images, {n: v[frame][None] for n, v in of.readings.items()})[0, 0]
                    >= threshold
                )
                for of, frame in ((clip, at), (other, then))
            ]
        )
    own, swapped = np.mean(called, axis=0).tolist()
    return own, swapped


if __name__ == "__main__":
    raise SystemExit(main())
