"""Executed counterfactuals: perturbed actions, first imagined by the world model, then executed in the simulator.

What the simulator says of them is the truth about labels that a reward model gives to imagined clips.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.reward_model_data import FIRST_SEED
from reward_model.calibration.anchors import AnchorKind, AnchorPair, ScorerKey
from reward_model.calibration.calibrator import CalibrationConfig, Calibrator
from reward_model.calibration.evidence import weigh
from reward_model.calibration.gates import GateReading
from reward_model.interface import Readings, RewardModel, by_name
from reward_model.labels import LabelConfig, Thresholds, by_episode, choose_thresholds, held_probability
from reward_model.statistics import clopper_pearson, clopper_pearson_upper
from rl.imagination.clip import Origin, Start
from rl.imagination.oracle import OracleError, OracleImaginer
from rl.replay.sampler import gather_clips
from rl.reward_models.data import KnownEpisode
from robot.factory import RobotConfig, make_robot_env
from robot.geometry import DeltaFrame
from robot.types import Array, Float32, Label
from worldmodel.clips import split
from worldmodel.counterfactual import CounterfactualConfig, Motion, perturb
from worldmodel.interface import Context, WorldModel

HORIZON = 12  # control steps
STRAY = 8  # steps: a branch starts so many, or fewer, away from where its episode would end with it
FAR = 1000  # steps: no branch ends for lack of time


@dataclass(frozen=True)
class Branches:
    """N branches. imagined, real: their frames, view -> (n, H, W, 3). reached (N,): success came and held.

    readings: name -> (n,), as executed; they stand beside the imagined frames, too.
    """

    imagined: list[dict[str, NDArray[np.uint8]]]
    real: list[dict[str, NDArray[np.uint8]]]
    readings: list[Readings]
    reached: NDArray[np.bool_]
    episode: list[str]

    def scores(self, model: RewardModel, hold_frames: int, *, imagined: bool) -> Array:
        """(N,) largest held probability of each branch; NaN where some of it is unknown."""
        found = []
        for frames, readings in zip(self.imagined if imagined else self.real, self.readings, strict=True):
            prob = model.score(
                {view: shown[None] for view, shown in frames.items()},
                {name: values[None] for name, values in readings.items()},
            )
            found.append(held_probability(prob, hold_frames).max())
        return np.array(found, np.float64)


def execute(
    world: WorldModel, episodes: Sequence[KnownEpisode], seed: int, per_episode: int, rng: np.random.Generator
) -> Branches:
    """Perturb, imagine and execute `per_episode` stretches of every episode of a store recorded with `seed`."""
    reader = episodes[0].reader
    env = make_robot_env(RobotConfig(task=reader.schema.task))
    env.robot.spec = replace(env.robot.spec, max_steps=FAR)
    motion = Motion.of(env.robot.spec, DeltaFrame.BASE)
    oracle = OracleImaginer(
        env, {Origin.ONLINE: reader}, lambda _, number: FIRST_SEED + 100_000 * seed + number, keep=1
    )
    found = Branches([], [], [], np.empty(0, np.bool_), [])
    reached: list[bool] = []
    lost = 0
    try:
        for episode in episodes:
            steps = episode.info.num_transitions
            late = rng.integers(-STRAY, 1, size=per_episode)
            starts = np.clip(steps - HORIZON + late, 0, steps - 2)
            rows = episode.info.first_row + starts
            clip = gather_clips(reader, rows, HORIZON, world.spec.context_frames - 1)
            context, future = split(clip, world.spec)
            planned = [
                perturb(
                    actions[valid],
                    int(rng.integers(2**31)),
                    CounterfactualConfig(),
                    motion,
                    motion.commanded_poses(clip.proprio[index, clip.history][None])[0],
                )
                for index, (actions, valid) in enumerate(zip(future.action, future.valid, strict=True))
            ]
            for index, actions in enumerate(planned):
                start = Start(Origin.ONLINE, episode.info.episode, int(starts[index]))
                try:
                    frames, proprio, executed, success = _executed(oracle, start, actions)
                except OracleError:  # contacts amplified the rounding of the stored actions
                    lost += 1
                    break
                found.real.append(frames)
                found.readings.append(by_name(proprio, reader.schema.proprio.names))
                found.imagined.append(_imagined(world, context, index, executed))
                found.episode.append(episode.name)
                reached.append(success)
    finally:
        env.close()
    print(f"{lost} of {len(episodes)} episodes could not be re-enacted", file=sys.stderr)
    return replace(found, reached=np.array(reached, np.bool_))


def _executed(
    oracle: OracleImaginer, start: Start, actions: Float32
) -> tuple[dict[str, NDArray[np.uint8]], Float32, Float32, bool]:
    """Frames, proprio (n, P), executed actions and whether success came and held."""
    session = oracle.begin([start], 0)
    seen, executed, reached = [], [], False
    for action in actions:
        futures = session.step(action[None])
        seen.append(futures.observations[0])
        executed.append(futures.executed[0])
        reached = futures.truth[0] is Label.SUCCESS
        if futures.over[0]:
            break
    frames = {view: np.stack([one.images[view] for one in seen]) for view in seen[0].images}
    return frames, np.stack([one.proprio for one in seen]), np.stack(executed), reached


def _imagined(
    world: WorldModel, context: Context, index: int, executed: Float32
) -> dict[str, NDArray[np.uint8]]:
    one = slice(index, index + 1)
    part = Context({view: frames[one] for view, frames in context.images.items()}, context.past_action[one])
    return {view: frames[0] for view, frames in world.rollout(part, executed[None]).images.items()}


def label_rates(
    score: Array, reached: NDArray[np.bool_], episode: Sequence[str], thresholds: Thresholds
) -> dict[str, float]:
    """Precision and recall of the label success, and what else is worth knowing; intervals count episodes."""
    names = np.asarray(episode)
    called = np.zeros(len(score), np.bool_) if thresholds.success is None else score >= thresholds.success
    failed = np.zeros(len(score), np.bool_) if thresholds.failure is None else score <= thresholds.failure
    row: dict[str, float] = {
        "clips": len(score),
        "episodes": len(set(episode)),
        "positives": int(reached.sum()),
        "unknown": float((~called & ~failed).mean()),
    }
    for name, hit, among in (
        ("precision", reached, called),
        ("recall", called, reached),
        ("false_positive_rate", called, ~reached),
        ("failure_precision", ~reached, failed),
    ):
        trials = len(set(names[among]))
        share = float(hit[among].mean()) if among.any() else float("nan")
        events = share * trials if trials else 0.0
        row[name] = share
        row[f"{name}_low"], row[f"{name}_high"] = clopper_pearson(events, trials)
        if name == "false_positive_rate":
            row["fpr_upper95"] = clopper_pearson_upper(events, trials)
    known = np.isfinite(score)
    places = np.unique(names[known], return_inverse=True)[1].astype(np.float64)
    evidence = weigh(score[known], reached[known].astype(np.float64), places, 2000, np.random.default_rng(0))
    return row | {
        "auc": evidence.auc,
        "auc_low": evidence.auc_low,
        "ece": evidence.ece,
        "bias": evidence.bias,
        "bias_low": evidence.bias_low,
        "bias_high": evidence.bias_high,
        "brier": evidence.brier,
        "threshold": float("nan") if thresholds.success is None else thresholds.success,
    }


def calibrated(
    anchors: Branches, anchor_score: Array, score: Array, key: ScorerKey, config: LabelConfig
) -> tuple[Array, Thresholds, GateReading]:
    """`score` calibrated on executed anchors, thresholds chosen on those anchors' own calibrated scores, the gate."""
    calibrator = Calibrator(CalibrationConfig())
    numbers = {name: number for number, name in enumerate(dict.fromkeys(anchors.episode))}
    groups: dict[str, list[AnchorPair]] = {}
    for raw, true, name in zip(anchor_score.tolist(), anchors.reached.tolist(), anchors.episode, strict=True):
        pair = AnchorPair(
            raw if np.isfinite(raw) else None, float(true), numbers[name], AnchorKind.COUNTERFACTUAL
        )
        groups.setdefault(name, []).append(pair)
    for group in groups.values():
        calibrator.observe(key, group)
    thresholds = choose_thresholds(
        *by_episode(calibrator.calibrate(key, anchor_score), anchors.reached, anchors.episode), config
    )
    return calibrator.calibrate(key, score), thresholds, calibrator.gate(key)
