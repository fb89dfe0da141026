"""Puts the world-model worker and the learner's synthetic share together from a run directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from rl.agent.acting import ActingPolicy
from rl.agent.adam import load_optimiser
from rl.agent.distribution import Certainty
from rl.agent.sac import SACAgent
from rl.agent.value import ValueModel
from rl.build import make_schema
from rl.config import ConfigError
from rl.demonstrations import DEMO_SEED
from rl.imagination.clip import Origin
from rl.imagination.imagine import Imagination
from rl.imagination.labels import TruthLabeller
from rl.imagination.oracle import OracleImaginer
from rl.imagination.starts import StartPool
from rl.imagination.valuing import ClipValues
from rl.replay.arrays import empty_batch
from rl.replay.reader import Lookahead, StoreReader
from rl.replay.sampler import TransitionSampler
from rl.replay.schema import StoreSchema
from rl.replay.writer import StoreWriter
from rl.runtime.parts import Parts
from rl.runtime.run_dir import RunDir
from rl.runtime.video import check_video, make_video
from rl.schemas import RuntimeKind, TrainConfig
from rl.selection.admission import Selection
from rl.selection.pacing import RATIO_CAP
from rl.selection.pruning import Pruning
from rl.selection.queues import SyntheticQueues
from rl.synthetic import ImaginedBy
from rl.workers.ports import CALIBRATION_GATE, MILLIONTHS, SELECTION_GATE, WORLD_MODEL_GATE, StepResult
from rl.workers.synthetic import SyntheticShare
from rl.workers.world_model import GENERATED_METRIC, TESTED_METRIC, WorldModelWorker
from robot.env import RobotEnv
from robot.factory import RobotKind, make_robot_env
from robot.frames import ProprioFrame
from worldmodel.counterfactual import Motion

TRAIN_SEED = 2_000_000  # layouts of training: TRAIN_SEED + 1_000_000 * seed + episode
CERTAINTY_STATES = 256
STALLED_S = 30.0  # a world-model worker that has been silent for so long imagines nothing worth using
WORKER_STATE = "world_model.json"
GRIPPER_COMMAND = "gripper_command"  # the held command in the proprio
SAVE_EVERY = 20  # batches of imagined clips between two writings of the worker's state


def layout_seed(config: TrainConfig) -> Callable[[Origin, int], int]:
    """The seed of the layout that an episode of this run began with."""

    def of(origin: Origin, episode: int) -> int:
        match origin:
            case Origin.DEMO:
                return DEMO_SEED + 1000 * config.seed + episode
            case Origin.ONLINE:
                return TRAIN_SEED + 1_000_000 * config.seed + episode
            case Origin.ANCHOR:
                raise ValueError(f"anchor {episode}: recorded elsewhere, its layout is not known here")

    return of


def check_synthetic(config: TrainConfig, schema: StoreSchema, run: RunDir | None = None) -> None:
    """Raise ConfigError where this run, whose stores have `schema`, could not imagine what it is asked to.

    run: where it may have models already; None: a new one.
    """
    synthetic = config.synthetic
    perturbs = synthetic.model is ImaginedBy.VIDEO or synthetic.imagination.policy_share < 1.0
    if synthetic.share.pacing.beyond_cap and config.robot.kind is not RobotKind.SIM:
        raise ConfigError(
            f"synthetic.share.pacing.beyond_cap: for comparisons on the simulated arm only; with robot.kind="
            f"{config.robot.kind.value} at most {RATIO_CAP} of a batch is imagined"
        )
    if synthetic.on and perturbs and config.robot.proprio_frame is not ProprioFrame.BASE:
        raise ConfigError(
            "synthetic: expected robot.proprio_frame=base, since the workspace that imagined actions are kept in is "
            f"known there only, got {config.robot.proprio_frame.value}"
        )
    match synthetic.model:
        case ImaginedBy.NONE:
            return
        case ImaginedBy.ORACLE:
            if config.robot.kind is not RobotKind.SIM:
                raise ConfigError(
                    "synthetic.model=oracle: the simulator can only be the world model of the simulated arm"
                )
            if config.demos.path is not None:
                raise ConfigError(
                    "synthetic.model=oracle: it re-enacts demonstrations from their layout seeds, which copied ones do "
                    "not have; drop demos.path, so that the run records its own"
                )
        case ImaginedBy.VIDEO:
            check_video(config, schema, run)


def make_share(
    run: RunDir,
    config: TrainConfig,
    agent: SACAgent,
    ahead: Lookahead,
    *,
    online: TransitionSampler,
    demo: TransitionSampler,
) -> tuple[SyntheticQueues, SyntheticShare]:
    """The learner's side: the queues it draws from, and how much it draws."""
    board = run.board()
    rng = np.random.default_rng([config.seed, 5])
    generator = torch.Generator(agent.device).manual_seed(config.seed)
    batch = empty_batch(online.schema, CERTAINTY_STATES)

    def certainty() -> Certainty | None:
        # Demonstrations are real states too; they stand in until the robot has some of its own.
        sampler = online if online.size >= CERTAINTY_STATES else demo
        return (
            agent.certainty(sampler.sample(CERTAINTY_STATES, rng, batch), generator) if sampler.size else None
        )

    def alive() -> bool:
        inline = config.runtime.kind is RuntimeKind.INLINE
        return inline or board.silence("world_model") < STALLED_S

    mode = config.synthetic.selection.mode
    queues = SyntheticQueues(
        StoreReader(run.synthetic), config.synthetic.queues, ahead, kept=mode.kept, balanced=mode.asks_critic
    )
    share = SyntheticShare(
        queues,
        board,
        config.synthetic.share,
        action_dim=agent.spec.policy_dim,
        certainty=certainty,
        alive=alive,
        policy_version=run.weights().latest_version,
    )
    return queues, share


class WorldModelProcess:
    """A WorldModelWorker with the simulated cell that it looks at, and its state on disk."""

    def __init__(self, worker: WorldModelWorker, run: RunDir, env: RobotEnv) -> None:
        self._worker, self._run, self._env = worker, run, env
        self._batches = 0

    def step(self) -> StepResult:
        result = self._worker.step()
        if GENERATED_METRIC in result.metrics or TESTED_METRIC in result.metrics:
            self._batches += 1
            if self._batches % SAVE_EVERY == 0:
                self._save()
        return result

    def _save(self) -> None:
        self._run.write_json(WORKER_STATE, self._worker.state())

    def close(self) -> None:
        try:
            self._worker.close()
            self._save()
        finally:
            self._env.close()


def make_world_model(run: RunDir) -> WorldModelProcess:
    """The world-model worker of a run."""
    config, board = run.config, run.board()
    synthetic = config.synthetic
    if synthetic.model is ImaginedBy.VIDEO:
        load_optimiser()  # a world model that learns needs it, and it must precede the GL context of the cameras
    env = make_robot_env(config.robot, seed=config.seed)
    policy = ActingPolicy(config.agent, run.spec, device=torch.device(config.device), seed=config.seed + 1)
    writer = StoreWriter(run.synthetic, make_schema(env), durable=False)
    # A worker that starts again must not imagine the clips of its predecessor again.
    policy.generator.manual_seed(config.seed + 1 + writer.num_rows)
    rng = np.random.default_rng([config.seed, 6, writer.num_rows])
    recordings = synthetic.video.anchors if synthetic.model is ImaginedBy.VIDEO else None
    anchors = None if recordings is None else StoreReader(Path(recordings))
    pool = StartPool(StoreReader(run.demo), StoreReader(run.real), synthetic.imagination.starts, anchors)
    motion = Motion.of(env.robot.spec, env.robot.frames.action)
    parts = _parts(run, config, env, pool, motion)
    value = ValueModel(config.agent, run.spec, device=torch.device(config.device))
    values = run.values()
    names, selects = pool.schema.proprio.names, synthetic.selection.mode.asks_critic

    def critics(updates: int) -> bool:
        published = values.load()
        if published.updates == updates:
            value.load_tensors(published.tensors)
        return published.updates == updates

    worker = WorldModelWorker(
        Imagination(pool, parts.imaginer, motion, synthetic.imagination, rng),
        parts.labeller,
        Selection(synthetic.selection),
        ClipValues(
            value,
            pool,
            pool.schema,
            steps=synthetic.imagination.clip_length,
            discount=config.agent.discount,
            half_life=synthetic.selection.half_life,
        )
        if selects
        else None,
        policy,
        writer,
        run.weights(),
        board,
        synthetic.worker,
        first_update=config.learner.bc_updates
        if synthetic.worker.before_first_step
        else config.learner.all_warm_updates,
        discount=config.agent.discount,
        refresh=pool.refresh,
        critics=critics if selects else (lambda updates: True),
        gripper_command=names.index(GRIPPER_COMMAND) if GRIPPER_COMMAND in names else None,
        adapt=parts.adapt,
        lacks=parts.lacks,
        pruning=Pruning(run.synthetic, writer, synthetic.queues),
    )
    saved = run.read_json(WORKER_STATE)
    if saved is not None:
        worker.load_state(saved)
    return WorldModelProcess(worker, run, env)


def _parts(run: RunDir, config: TrainConfig, env: RobotEnv, pool: StartPool, motion: Motion) -> Parts:
    board = run.board()
    board.set(SELECTION_GATE, 0)  # nothing that an earlier worker said opens a gate for this one
    board.set(CALIBRATION_GATE, 0)
    if config.synthetic.model is ImaginedBy.VIDEO:
        return make_video(run, config, env, pool, motion, layout_seed(config))
    board.set(WORLD_MODEL_GATE, MILLIONTHS)  # the simulator is the truth
    return Parts(OracleImaginer(env, pool.readers, layout_seed(config)), TruthLabeller())
