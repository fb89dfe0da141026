"""Puts a post-training run together from its config: environments, demonstrations, policy, world, judge, trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reward_model.calibration.calibrator import Calibrator
from reward_model.calibration.correction import CorrectionLoop
from reward_model.calibration.scorers import ScorerPair
from rl.build import make_schema, views_of
from rl.config import ConfigError
from rl.demonstrations import record_demonstrations
from rl.digests import digest_of
from rl.imagination.proprio import fit_proprio
from rl.imagination.starts import StartPool
from rl.imagination.video import VideoImaginer
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from rl.reward_models.loading import load_for_labels
from rl.schemas import CorrectionConfig, DemosConfig
from rl.vla.config import JudgedBy, PostTrainVLAConfig, WorldKind
from rl.vla.execution import Robot
from rl.vla.factory import load_policy, new_policy
from rl.vla.grpo import GRPO
from rl.vla.imitation import imitate, read_lessons
from rl.vla.inputs import InputBuilder, merge
from rl.vla.judges import CheapScorer, DistortedJudge, Judge, RewardModelJudge, RobotScorer
from rl.vla.openvla.policy import OpenVLAPolicy
from rl.vla.policy import PolicySpec, VLAPolicy
from rl.vla.trainer import Parts, VLATrainer
from rl.vla.worlds import SimulatorWorld, VideoWorld, World
from rl.world_models.data import make_spec
from rl.world_models.inputs import published_path
from robot.arm_env import ArmEnv
from robot.env import RobotEnv
from robot.factory import make_env, make_robot_env
from robot.types import ACTION_DIM
from worldmodel.checkpoint import check_same
from worldmodel.counterfactual import Motion
from worldmodel.factory import load_world_model

Say = Callable[[str], None]


@dataclass(frozen=True)
class Assembled:
    """A run ready to learn: its trainer, and what evaluates the policy between steps."""

    trainer: VLATrainer
    policy: VLAPolicy
    builder: InputBuilder
    envs: Mapping[str, ArmEnv]


def assemble(root: Path, config: PostTrainVLAConfig, stack: ExitStack, say: Say) -> Assembled:
    """All parts of the run in `root`, whose demonstrations are recorded and imitated first where that is not done yet.

    stack: closes environments and stores. Raises ConfigError, PolicyError, WorldModelError, RewardModelError.
    """
    device = torch.device(config.device)
    if config.openvla.checkpoint is not None:
        OpenVLAPolicy.check(config.openvla)  # before minutes of demonstrations
    envs = {task: _open_env(config, task, stack) for task in config.tasks}
    judge = _judge(config, {task: env.proprio_spec.names for task, env in envs.items()}, device)
    demos = _demonstrations(root, config, envs, say)
    policy, builder = _first_policy(root, config, envs, demos, device, say)
    writers = {
        task: stack.enter_context(
            StoreWriter(root / "real" / task, make_schema(env), durable=config.robot.kind.physical)
        )
        for task, env in envs.items()
    }
    world = _world(root, config, envs, demos, stack, device)
    robot = Robot(envs, writers)
    scorers = ScorerPair(CheapScorer(judge, world, config.tasks), RobotScorer(_episode_seconds(envs)))
    grpo = GRPO(policy, policy.reference(), config.grpo)
    calibrator = Calibrator(config.correction.calibration)
    correction = CorrectionLoop(scorers, config.correction, calibrator)
    parts = Parts(policy, grpo, builder, robot, world, judge, correction, _scored_by(config))
    trainer = VLATrainer(parts, config.tasks, config.loop, config.grpo, config.seed)
    return Assembled(trainer, policy, builder, envs)


def _open_env(config: PostTrainVLAConfig, task: str, stack: ExitStack) -> ArmEnv:
    env = make_env(replace(config.robot, task=task), seed=config.seed)
    stack.callback(env.close)
    return env


def _episode_seconds(envs: Mapping[str, ArmEnv]) -> float:
    """Declared cost of one execution: the longest episode of the slowest task, or a minute where nobody says."""
    limits = [
        env.robot.spec.max_steps * env.robot.timing.control_period
        for env in envs.values()
        if isinstance(env, RobotEnv)
    ]
    return max(limits, default=60.0)


def _demonstrations(
    root: Path, config: PostTrainVLAConfig, envs: Mapping[str, ArmEnv], say: Say
) -> dict[str, StoreReader]:
    """The store of each task: the given one, or one that the scripted demonstrator fills up; none if none is needed."""
    given, readers = config.imitation.path, dict[str, StoreReader]()
    if not config.needs_demonstrations:
        return readers
    wanted = DemosConfig(episodes=config.imitation.episodes, noise=config.imitation.noise)
    for task, env in envs.items():
        path = root / "demo" / task if given is None else Path(given) / task
        if given is not None and not (path / "schema.json").exists():
            raise ConfigError(
                f"imitation.path={given}: no store {path}; expected one for each task, record it with "
                f"`groundhog record out={path}`"
            )
        if given is None:
            for attempt in record_demonstrations(path, env, wanted, CorrectionConfig(), seed=config.seed):
                if attempt.demonstrations == attempt.wanted:
                    say(f"{task}: {attempt.describe()}")
        readers[task] = StoreReader(path)
        readers[task].schema.check_compatible(make_schema(env))
    return readers


def _first_policy(
    root: Path,
    config: PostTrainVLAConfig,
    envs: Mapping[str, ArmEnv],
    demos: Mapping[str, StoreReader],
    device: torch.device,
    say: Say,
) -> tuple[VLAPolicy, InputBuilder]:
    """The policy that post-training starts from and is kept near to; made once and kept in `<run>/policy`."""
    kept = root / "policy"
    made = (kept / "policy.json").exists()
    if made:
        policy = load_policy(kept, device)
    elif config.policy is not None:
        policy = load_policy(Path(config.policy), device)
    else:
        spec = _spec(config, envs)
        policy = new_policy(config.small, config.openvla, spec, device, config.seed)
    facts = {task: env.facts.instruction for task, env in envs.items()}
    builder = InputBuilder(policy.spec, facts, {task: env.proprio_spec for task, env in envs.items()})
    if not made:
        if config.imitation.steps:
            lessons = read_lessons(demos, policy.spec, builder)
            for metrics in imitate(
                policy, lessons, config.imitation, np.random.default_rng([config.seed, 12])
            ):
                step, loss = metrics["imitation/step"], metrics["imitation/loss"]
            say(f"imitation: {step:.0f} steps on {len(lessons)} decisions, loss {loss:.3f}")
        policy.save(kept)
    return policy, builder


def _spec(config: PostTrainVLAConfig, envs: Mapping[str, ArmEnv]) -> PolicySpec:
    views = [views_of(env) for env in envs.values()]
    sizes = {size for of in views for size in of.values()} or {(1, 1)}
    if len(sizes) > 1 or any(list(of) != list(views[0]) for of in views):
        raise ConfigError(f"tasks: expected the same cameras of one size in all of them, got {views}")
    return PolicySpec(
        views=tuple(views[0]),
        image_size=sizes.pop(),
        proprio=merge([env.proprio_spec for env in envs.values()]),
        chunk=(config.small if config.openvla.checkpoint is None else config.openvla).chunk,
        tokens=ACTION_DIM,
    )


def _world(
    root: Path,
    config: PostTrainVLAConfig,
    envs: Mapping[str, ArmEnv],
    demos: Mapping[str, StoreReader],
    stack: ExitStack,
    device: torch.device,
) -> World:
    match config.imagination.world:
        case WorldKind.SIMULATOR:
            own = {}
            for task in config.tasks:
                own[task] = make_robot_env(replace(config.robot, task=task), seed=config.seed)
                stack.callback(own[task].close)
            return SimulatorWorld(own)
        case WorldKind.VIDEO:
            return _video_world(root, config, envs, demos, device)


def _video_world(
    root: Path,
    config: PostTrainVLAConfig,
    envs: Mapping[str, ArmEnv],
    demos: Mapping[str, StoreReader],
    device: torch.device,
) -> VideoWorld:
    settings = config.imagination
    imaginers, pools = {}, {}
    for task, env in envs.items():
        if not isinstance(env, RobotEnv):
            raise ConfigError(
                "imagination.world=video: so far only with an arm of ours, not robot.kind=foreign"
            )
        path = published_path(Path(settings.world_models[task]))
        model = load_world_model(path, device=device)
        schema = demos[task].schema
        check_same(path, model.spec, make_spec(schema, model.spec.context_frames, model.spec.max_horizon))
        if settings.horizon > model.spec.max_horizon:
            raise ConfigError(
                f"imagination.horizon={settings.horizon}: {path} imagines at most {model.spec.max_horizon} steps"
            )
        pools[task] = StartPool(demos[task], StoreReader(root / "real" / task), settings.starts)
        imaginers[task] = VideoImaginer(
            model,
            fit_proprio([demos[task]], settings.proprio),
            pools[task],
            Motion.of(env.robot.spec, env.robot.frames.action),
            control_period=env.robot.timing.control_period,
            max_risk=settings.max_risk,
        )
    rng = np.random.default_rng([config.seed, 13])
    return VideoWorld(imaginers, pools, horizon=settings.horizon, max_risk=settings.max_risk, rng=rng)


def _judge(
    config: PostTrainVLAConfig, proprio_names: Mapping[str, Sequence[str]], device: torch.device
) -> Judge:
    settings = config.imagination
    match settings.judge:
        case JudgedBy.OUTCOME:
            return DistortedJudge(settings.distortion, np.random.default_rng([config.seed, 14]))
        case JudgedBy.REWARD_MODEL:
            found = {
                task: load_for_labels(Path(settings.reward_models[task]), task, proprio_names[task], device)
                for task in config.tasks
            }
            return RewardModelJudge(
                {task: model for task, (model, _) in found.items()},
                {task: thresholds for task, (_, thresholds) in found.items()},
                proprio_names,
            )


def _scored_by(config: PostTrainVLAConfig) -> dict[str, Any]:
    """Who imagines and who judges; of models the files, since two trainings may give one version number."""
    settings = config.imagination
    who: dict[str, Any] = {"world": settings.world.value, "judge": settings.judge.value}
    if settings.world is WorldKind.VIDEO:
        worlds = {task: published_path(Path(settings.world_models[task])) for task in config.tasks}
        who["world_models"] = {task: digest_of(path) for task, path in worlds.items()}
    match settings.judge:
        case JudgedBy.OUTCOME:
            who["distortion"] = asdict(settings.distortion)
        case JudgedBy.REWARD_MODEL:
            who["reward_models"] = {
                task: digest_of(Path(settings.reward_models[task])) for task in config.tasks
            }
    return who
