"""Puts the world-model worker and the learner's synthetic share together from a run directory."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import torch

from rl.agent.acting import ActingPolicy
from rl.agent.distribution import Certainty
from rl.agent.sac import SACAgent
from rl.agent.value import ValueModel
from rl.build import make_schema
from rl.config import ConfigError, RuntimeKind, TrainConfig
from rl.demonstrations import DEMO_SEED
from rl.imagination.clip import Origin
from rl.imagination.imagine import Imagination
from rl.imagination.labels import TruthLabeller
from rl.imagination.oracle import OracleImaginer
from rl.imagination.starts import StartPool
from rl.imagination.valuing import ClipValues
from rl.replay.arrays import empty_batch
from rl.replay.reader import StoreReader
from rl.replay.sampler import TransitionSampler
from rl.replay.writer import StoreWriter
from rl.runtime.run_dir import RunDir
from rl.selection.admission import Selection, SelectionMode
from rl.selection.queues import SyntheticQueues
from rl.workers.ports import CALIBRATION_GATE, MILLIONTHS, WORLD_MODEL_GATE, StepResult
from rl.workers.synthetic import SyntheticShare
from rl.workers.world_model import WorldModelWorker
from robot.factory import RobotKind, make_robot_env
from worldmodel.counterfactual import Motion

TRAIN_SEED = 2_000_000  # layouts of training: TRAIN_SEED + 1_000_000 * seed + episode
CERTAINTY_STATES = 256
STALLED_S = 30.0  # a world-model worker that has been silent for so long imagines nothing worth using
WORKER_STATE = "world_model.json"


def layout_seed(config: TrainConfig) -> Callable[[Origin, int], int]:
    """The seed of the layout that an episode of this run began with."""

    def of(origin: Origin, episode: int) -> int:
        match origin:
            case Origin.DEMO:
                return DEMO_SEED + 1000 * config.seed + episode
            case Origin.ONLINE:
                return TRAIN_SEED + 1_000_000 * config.seed + episode

    return of


def check_synthetic(config: TrainConfig) -> None:
    """Raise ConfigError where this run could not imagine what it is asked to."""
    if not config.synthetic.on:
        return
    if config.robot.kind is not RobotKind.SIM:
        raise ConfigError(
            "synthetic.model=oracle: the simulator can only be the world model of the simulated arm"
        )
    if config.demos.path is not None:
        raise ConfigError(
            "synthetic.model=oracle: it re-enacts demonstrations from their layout seeds, which copied ones do not "
            "have; drop demos.path, so that the run records its own"
        )


def make_share(
    run: RunDir, config: TrainConfig, agent: SACAgent, online: TransitionSampler, demo: TransitionSampler
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

    balanced = config.synthetic.selection.mode is not SelectionMode.NONE
    queues = SyntheticQueues(StoreReader(run.synthetic), config.synthetic.queues, balanced=balanced)
    share = SyntheticShare(
        queues,
        board,
        config.synthetic.share,
        action_dim=agent.spec.policy_dim,
        certainty=certainty,
        alive=alive,
    )
    return queues, share


class WorldModelProcess:
    """A WorldModelWorker with the simulator in which it imagines, and its state on disk."""

    def __init__(self, worker: WorldModelWorker, run: RunDir, close: Callable[[], None]) -> None:
        self._worker, self._run, self._close = worker, run, close

    def step(self) -> StepResult:
        return self._worker.step()

    def close(self) -> None:
        try:
            self._worker.close()
            self._run.write_json(WORKER_STATE, json.loads(json.dumps(self._worker.state())))
        finally:
            self._close()


def make_world_model(run: RunDir) -> WorldModelProcess:
    """The world-model worker of a run."""
    config, board = run.config, run.board()
    synthetic = config.synthetic
    env = make_robot_env(config.robot, seed=config.seed)
    policy = ActingPolicy(config.agent, run.spec, device=torch.device(config.device), seed=config.seed + 1)
    demo, online = StoreReader(run.demo), StoreReader(run.real)
    pool = StartPool(demo, online, synthetic.imagination.starts)
    oracle = OracleImaginer(env, {Origin.DEMO: demo, Origin.ONLINE: online}, layout_seed(config))
    motion = Motion.of(env.robot.spec, env.robot.frames.action)
    rng = np.random.default_rng([config.seed, 6])
    value, values = ValueModel(config.agent, policy), run.values()
    selects = synthetic.selection.mode is not SelectionMode.NONE
    board.set(WORLD_MODEL_GATE, MILLIONTHS)  # the simulator and its labels are the truth
    board.set(CALIBRATION_GATE, MILLIONTHS)
    worker = WorldModelWorker(
        Imagination(pool, oracle, motion, synthetic.imagination, rng),
        TruthLabeller(),
        Selection(synthetic.selection),
        ClipValues(value, pool, demo.schema) if selects else None,
        policy,
        StoreWriter(run.synthetic, make_schema(env)),
        run.weights(),
        board,
        synthetic.worker,
        first_update=config.learner.bc_updates
        if synthetic.worker.before_first_step
        else config.learner.all_warm_updates,
        discount=config.agent.discount,
        refresh=pool.refresh,
        on_policy=(lambda: value.load_tensors(values.load().tensors)) if selects else (lambda: None),
    )
    saved = run.read_json(WORKER_STATE)
    if saved is not None:
        worker.load_state(saved)
    return WorldModelProcess(worker, run, oracle.close)
