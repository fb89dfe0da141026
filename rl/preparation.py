"""Before the first step of a run: demonstrations in place, sizes that agree, memory that suffices."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from reward_model.interface import check_known
from rl.agent.features import ProprioFeatures
from rl.agent.spec import AgentSpec
from rl.build import make_schema, make_spec
from rl.config import ConfigError
from rl.corrections import make_teleop
from rl.demonstrations import record_demonstrations
from rl.replay import memory_plan
from rl.replay.copying import copy_episodes
from rl.replay.errors import CorruptStoreError
from rl.replay.reader import StoreReader
from rl.replay.schema import StoreSchema
from rl.replay.writer import StoreWriter
from rl.reward_models.fitting import fit_on_store, summary
from rl.reward_models.loading import load_for_labels
from rl.runtime.given import judges, own_reward_model, take_reward_model
from rl.runtime.imagining import WORKER_STATE, check_synthetic
from rl.runtime.interrupt import InterruptFlag
from rl.runtime.run_dir import RunDir
from rl.schemas import CorrectionConfig, TrainConfig
from rl.synthetic import ImaginedBy
from rl.workers.ports import (
    ACTOR_DONE,
    ALIVE,
    COLLECTED,
    ENV_STEPS,
    HOLD,
    LEARNER_DONE,
    OPERATOR_STOP,
    STOP,
    TARGET_ENV_STEPS,
)
from robot.arm_env import ArmEnv
from robot.factory import make_env


def prepare(run: RunDir, config: TrainConfig, say: Callable[[str], None]) -> None:
    """Make a new run ready, or check one that continues; nothing recorded is ever removed."""
    env = make_env(config.robot, seed=config.seed)
    try:
        if config.correction.kind.by_hand:  # its device must be there before anything is recorded
            device = make_teleop(config.correction, env, np.random.default_rng(0))
            assert device is not None
            device.close()
        spec = _agent_spec(env, config)
        check_synthetic(config, make_schema(env), run)
        given = _given_reward_model(run, config, env.proprio_spec.names, say)
        if config.synthetic.on:
            _synthetic_store(run.synthetic, make_schema(env), say)
        with StoreWriter(run.real, make_schema(env)) as real:  # the learner reads it from the start
            recorded = real.num_transitions
            if not real.recovery.clean:
                say(f"{run.real}: {real.recovery}")
        _plan_memory(run, config, env, say)
        if not (run.path / "spec.json").exists():
            _demonstrations(run, config, env, say)
            run.spec = spec
        elif spec.to_json() != run.spec.to_json():
            raise ConfigError(
                f"{run.path}: this run was started with other cameras, image sizes, proprio, goal or gripper; "
                "continue it without those overrides, or start a new run"
            )
    finally:
        env.close()
    demos = StoreReader(run.demo)
    for store in (demos, StoreReader(run.real)):
        store.verify_all()  # nothing damaged is learned from
    if demos.num_transitions == 0:
        raise ConfigError(
            f"{run.demo}: holds no demonstration; record some with `groundhog record`, or drop demos.path"
        )
    _reward_model(run, config, given, say)
    board = run.board()
    for name in (
        ALIVE,
        COLLECTED,
        ACTOR_DONE,
        OPERATOR_STOP,
        LEARNER_DONE,
        HOLD,
        STOP,
    ):  # of the session before
        board.set(name, 0)
    board.set(TARGET_ENV_STEPS, config.actor.max_env_steps)
    board.set(ENV_STEPS, recorded)
    run.commit_config()
    usable = sum(1 for info in demos.episodes() if not info.discarded)
    say(f"{usable} demonstrations, {demos.num_transitions} transitions; {recorded} recorded by the actor")


def _synthetic_store(path: Path, schema: StoreSchema, say: Callable[[str], None]) -> None:
    """It exists before the learner looks into it. It was never waited for, so a loss of power may have damaged it."""
    try:
        with StoreWriter(path, schema, durable=False):
            pass
        StoreReader(path).verify_all()
    except CorruptStoreError as error:
        say(f"{error}; what was imagined is removed and imagined anew")
        shutil.rmtree(path)
        with StoreWriter(path, schema, durable=False):
            pass


def _given_reward_model(
    run: RunDir, config: TrainConfig, proprio_names: Sequence[str], say: Callable[[str], None]
) -> Path | None:
    """The judge that the run has to take; None where it was given none, or has its copy and needs the file no more.

    What another one has labelled goes, with what is known of its labels. Raises RewardModelError where the given one,
    or one that is yet to be trained cannot judge this run.
    """
    path = config.synthetic.video.reward_model
    if config.synthetic.model is not ImaginedBy.VIDEO:
        return None
    if path is None:  # the run trains one on its demonstrations
        check_known(config.synthetic.video.reward_fit.classifier.readings, proprio_names)
        return None
    given = Path(path)
    if not given.exists() and own_reward_model(run).exists():
        say(f"synthetic.video.reward_model={given}: no such file; the run's own copy goes on judging")
        return None
    load_for_labels(given, config.robot.task, proprio_names, torch.device(config.device))
    if judges(run, given):
        return None
    if run.synthetic.exists():
        say(
            f"synthetic.video.reward_model={given}: not known to have judged in this run; what was imagined and "
            "labelled so far is removed, and calibration begins anew"
        )
        (run.path / WORKER_STATE).unlink(missing_ok=True)
        shutil.rmtree(run.synthetic)
    return given


def _reward_model(run: RunDir, config: TrainConfig, given: Path | None, say: Callable[[str], None]) -> None:
    """Take the given judge of imagined frames, or train one on the demonstrations where none is there and needed."""
    if given is not None:
        take_reward_model(run, given)
    video, out = config.synthetic.video, own_reward_model(run)
    if config.synthetic.model is not ImaginedBy.VIDEO or video.reward_model is not None or out.exists():
        return
    model = fit_on_store(
        run.demo,
        out,
        video.reward_fit,
        seed=config.seed,
        device=torch.device(config.device),
        say=lambda text: None,
    )
    say(summary(out, model))


def _agent_spec(env: ArmEnv, config: TrainConfig) -> AgentSpec:
    spec = make_spec(env, config.gripper)
    try:
        config.agent.hindsight.check(spec)
        ProprioFeatures(spec.proprio, config.agent.encoder.unseen)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return spec


def _plan_memory(run: RunDir, config: TrainConfig, env: ArmEnv, say: Callable[[str], None]) -> None:
    budget = int(config.runtime.memory_budget_gb * 1e9)
    transitions = max(1, config.actor.max_env_steps)
    say(str(memory_plan.plan(make_schema(env), transitions, budget, run.real)))


def _demonstrations(run: RunDir, config: TrainConfig, env: ArmEnv, say: Callable[[str], None]) -> None:
    if config.demos.path is not None:
        source = Path(config.demos.path)
        if not source.exists():
            raise ConfigError(
                f"demos.path={source}: no such directory; record with `groundhog record out={source}`"
            )
        if not run.demo.exists():
            # Copied beside and renamed: a copy that was cut short is never taken for a small set.
            part = run.path / "demo.part"
            shutil.rmtree(part, ignore_errors=True)
            with StoreWriter(part, make_schema(env)) as writer:
                copied = copy_episodes(source, writer)
            part.rename(run.demo)
            say(f"copied {copied} demonstrations from {source}")
        return
    interrupted = InterruptFlag()
    try:
        for attempt in record_demonstrations(
            run.demo,
            env,
            config.demos,
            CorrectionConfig(),
            seed=config.seed,
            stop=lambda: interrupted.seen,
        ):
            if attempt.demonstrations % 5 == 0 or not attempt.info.success:
                say(attempt.describe())
    finally:
        interrupted.restore()
    if interrupted.seen:
        raise KeyboardInterrupt
