"""Puts the video world model of a run together: what imagines, what judges, and how it goes on learning."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch

from reward_model.calibration.calibrator import Calibrator
from rl.config import ConfigError
from rl.imagination.adapting import Adapting
from rl.imagination.clip import Origin
from rl.imagination.executing import ExecutingLabeller
from rl.imagination.held_out import HeldOutScores
from rl.imagination.labels import Labeller, RewardModelLabeller, TruthLabeller
from rl.imagination.lessons import Lessons
from rl.imagination.oracle import OracleImaginer
from rl.imagination.proprio import fewest_transitions, fit_network
from rl.imagination.refitting import Refitting
from rl.imagination.starts import StartPool
from rl.imagination.video import VideoImaginer
from rl.replay.errors import StoreError
from rl.replay.fingerprint import fingerprints
from rl.replay.reader import StoreReader
from rl.replay.sampler import Split
from rl.replay.schema import StoreSchema
from rl.reward_models.fitting import FINGERPRINTS
from rl.reward_models.loading import load_for_labels
from rl.runtime.given import (
    check_world_model,
    first_version,
    learned_before,
    own_reward_model,
    own_versions,
)
from rl.runtime.parts import Parts
from rl.runtime.run_dir import RunDir
from rl.schemas import TrainConfig
from rl.workers.ports import MILLIONTHS, WORLD_MODEL_GATE
from rl.world_models.data import ClipData, make_spec
from robot.env import RobotEnv
from robot.factory import ObsKind, RobotKind
from worldmodel import checkpoint
from worldmodel.adapt import Champion
from worldmodel.counterfactual import Motion
from worldmodel.factory import load_world_model, make_world_model
from worldmodel.interface import WorldModel


def check_video(config: TrainConfig, schema: StoreSchema, run: RunDir | None) -> None:
    """Raise ConfigError where this run, whose stores have `schema`, could not imagine video; see `check_synthetic`."""
    video = config.synthetic.video
    if config.robot.kind is not RobotKind.SIM:
        raise ConfigError("synthetic.model=video: so far only with robot.kind=sim")
    if (video.true_labels or video.executed_share) and config.demos.path is not None:
        raise ConfigError(
            "synthetic.video.true_labels, executed_share: the simulator re-enacts demonstrations from their layout "
            "seeds, which copied ones do not have; drop demos.path, so that the run records its own"
        )
    if config.robot.obs is not ObsKind.PIXELS:
        raise ConfigError("synthetic.model=video: expected robot.obs=pixels; a world model needs cameras")
    longest = config.synthetic.imagination.clip_length
    if max(video.horizon, longest) > video.model.max_horizon:
        raise ConfigError(
            f"synthetic.video.model.max_horizon={video.model.max_horizon}: expected at least video.horizon="
            f"{video.horizon} and imagination.clip_length={longest}; raise it, or imagine in shorter clips"
        )
    if run is not None:
        check_world_model(run, video.world_model)
    for name, path in (("recordings", video.recordings), ("anchors", video.anchors)):
        if path is not None:
            _check_store(name, path, schema)
    if video.recordings is not None:
        _check_recordings(video.recordings, config.demos.path)
    if video.anchors is not None:
        _check_anchors(video.anchors, config, run)
    demos = np.arange(config.demos.episodes)
    if not video.holdout.contains(demos).any():
        raise ConfigError(
            f"synthetic.video.holdout: holds out none of {len(demos)} demonstrations, so no version could be judged; "
            f"set synthetic.video.holdout.every to {max(2, len(demos))} or less, or record more (demos.episodes)"
        )


def _check_store(name: str, path: str, schema: StoreSchema) -> None:
    """Raise ConfigError where the store is of another cell or empty, or where there is none."""
    try:
        reader = StoreReader(Path(path))
    except StoreError as error:
        raise ConfigError(
            f"synthetic.video.{name}: {error}; a run reads it where it lies. Name it where it is now, or go on without "
            f"it: synthetic.video.{name}=null"
        ) from error
    difference = schema.difference(reader.schema)
    if difference is not None:
        field, expected, got = difference
        raise ConfigError(
            f"synthetic.video.{name}={path}: {field} differs: expected {expected!r} as in this run, got {got!r}; name "
            "recordings of this cell, made with the run's robot settings, or drop it"
        )
    if all(info.discarded for info in reader.episodes()):
        raise ConfigError(
            f"synthetic.video.{name}={path}: holds no finished episode; record some, or drop it"
        )


def _check_recordings(path: str, demos: str | None) -> None:
    """Raise ConfigError where nothing can be fitted on them, or where they are the demonstrations in `demos`."""
    reader = StoreReader(Path(path))
    fewest = fewest_transitions(reader.schema.proprio.dim, reader.schema.action_dim)
    if reader.num_settled < fewest:
        raise ConfigError(
            f"synthetic.video.recordings={path}: expected at least {fewest} transitions to fit the arm's readings on, "
            f"got {reader.num_settled}; record more, or drop it"
        )
    if demos is None or not Path(demos).exists():
        return
    known = fingerprints(reader)
    if shared := known & fingerprints(StoreReader(Path(demos))):
        raise ConfigError(
            f"synthetic.video.recordings={path}: {len(shared)} of its {len(known)} episodes are those of demos.path="
            f"{demos}; their replays would be told the readings that really came: name other recordings, or drop it"
        )


def _check_anchors(path: str, config: TrainConfig, run: RunDir | None) -> None:
    """Raise ConfigError where something learns from them."""
    anchors = fingerprints(StoreReader(Path(path)))
    for source, learned in learned_before(run, config):
        if known := anchors.intersection(learned):
            raise ConfigError(
                f"synthetic.video.anchors={path}: {len(known)} of its {len(anchors)} episodes are learned from, by "
                f"{source}; their replays would prove nothing: name other recordings, or drop it"
            )


def make_video(
    run: RunDir,
    config: TrainConfig,
    env: RobotEnv,
    pool: StartPool,
    motion: Motion,
    layout_seed: Callable[[Origin, int], int],
) -> Parts:
    """The parts, from a published world model or a new one, and a trained reward model.

    layout_seed: see OracleImaginer, for clips that the simulator carries out.
    """
    settings, device = config.synthetic.video, torch.device(config.device)
    board = run.board()
    data = ClipData(list(pool.readers.values()), [settings.holdout] * len(pool.readers))
    spec = make_spec(data.schema, settings.model.context_frames, settings.model.max_horizon)
    versions = own_versions(run)
    load = partial(load_world_model, device=device, spec=spec)
    online = pool.readers[Origin.ONLINE]
    first = first_version(run, settings.world_model)
    start = first.path
    lessons = Lessons(
        pool.readers,
        settings.holdout,
        given=start is not None and not first.own,
        # A version of this run that is taken up again may have learned from all that there is by now.
        online=online.num_episodes if first.own else 0,
        inherited=() if start is None else checkpoint.read(start).learned,
    )
    board.set(WORLD_MODEL_GATE, 0)  # what an earlier session measured says nothing of this model
    fresh = partial(make_world_model, settings.model, spec, device=device, seed=config.seed)
    challenger = fresh() if start is None else load(start)
    imaginer = VideoImaginer(
        challenger if start is None else load(start),
        None,
        pool,
        motion,
        control_period=env.robot.timing.control_period,
        max_risk=settings.max_risk,
        draws=settings.proprio.draws,
    )

    def publish(model: WorldModel) -> None:
        imaginer.model = model
        lessons.replaced(online.num_episodes)

    def learned() -> Collection[str] | None:
        return None if lessons.inherited is None else data.learned().union(lessons.inherited)

    def trust(scores: Mapping[str, float]) -> None:
        board.set(WORLD_MODEL_GATE, round(MILLIONTHS * settings.trust.gate(scores)))

    held_out = _held_out(config, data, pool.anchors)
    rng = np.random.default_rng([config.seed, 7])
    adapting = Adapting(
        Champion(
            challenger, versions, held_out, load, settings.champion, learned, settings.trust.following_open
        ),
        settings.schedule,
        data.sampler(Split.TRAIN),
        fitted=start is not None,
        new_episodes=lambda: online.num_episodes,
        published=lambda version: load(versions.path(version)),
        publish=publish,
        trust=trust,
        rng=rng,
    )
    labeller: Labeller = (
        TruthLabeller() if settings.true_labels else _labeller(run, config, data, device, lessons)
    )
    share = 1.0 if settings.true_labels else settings.executed_share
    if share:
        simulator = OracleImaginer(env, pool.readers, layout_seed)
        labeller = ExecutingLabeller(labeller, simulator, share, np.random.default_rng([config.seed, 9]))
    network = fit_network(settings.recordings, settings.proprio)
    refitting = Refitting(imaginer, pool, settings.proprio, network)
    return Parts(imaginer, labeller, adapting.step, refitting.lacks)


def _held_out(config: TrainConfig, data: ClipData, anchors: StoreReader | None) -> HeldOutScores:
    """What versions of the run's world model compete by, and are trusted by."""
    video = config.synthetic.video
    return HeldOutScores(
        data,
        anchors,
        None if video.recordings is None else StoreReader(Path(video.recordings)),
        clips=video.judged_clips,
        horizon=video.horizon,
        seed=config.seed,
    )


def _labeller(
    run: RunDir, config: TrainConfig, data: ClipData, device: torch.device, lessons: Lessons
) -> RewardModelLabeller:
    settings = config.synthetic.video
    names = data.schema.proprio.names
    model, thresholds = load_for_labels(own_reward_model(run), data.schema.task, names, device)
    lessons.judge = model.data.get(FINGERPRINTS)
    calibrator = Calibrator(settings.calibration)
    return RewardModelLabeller(
        model, thresholds, calibrator, model.task, lessons.unseen, settings.confidence, names
    )
