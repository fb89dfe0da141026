"""Puts workers together from a run directory; what a fresh process and a resumed one have in common."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from safetensors.numpy import save_file

from rl import checkpoint
from rl.agent.acting import ActingPolicy
from rl.agent.sac import SACAgent
from rl.batch import SYNTHETIC
from rl.build import make_samplers, make_schema
from rl.corrections import make_teleop, make_window
from rl.diagnostics.failures import FailureSheet
from rl.diagnostics.value import ValueCheck
from rl.pictures import save_film
from rl.replay.arrays import empty_batch
from rl.replay.mixer import Mixer, Sampler
from rl.replay.reader import Lookahead, StoreReader
from rl.replay.writer import StoreWriter
from rl.runtime.imagining import TRAIN_SEED, make_share
from rl.runtime.run_dir import RunDir
from rl.workers.actor import ActorWorker
from rl.workers.learner import DEMO, ONLINE, LearnerWorker
from rl.workers.ports import ENV_STEPS, HOLD, STOP, StepResult, Worker
from robot.factory import make_env
from robot.safety import GovernorTransition
from robot.types import Image
from robot.wrappers import HumanIntervention

FILM = "videos/final.mp4"
FRAMES = "videos/final.safetensors"  # the same frames as the policy saw them, uint8
FAILURES = "diagnostics/failures.png"
ACTOR_STATE = "actor.json"


class ActorProcess:
    """An ActorWorker with the environment that it closes when it ends: correction device and robot."""

    def __init__(self, worker: ActorWorker, env: gym.Env[Any, Any]) -> None:
        self._worker, self._env = worker, env

    def step(self) -> StepResult:
        return self._worker.step()

    def close(self) -> None:
        try:
            self._worker.close()
        finally:
            self._env.close()


def make_learner(run: RunDir) -> Worker:
    """The learner of a run, from its newest complete checkpoint if there is one."""
    config, weights = run.config, run.weights()
    agent = SACAgent(config.agent, run.spec, device=torch.device(config.device), seed=config.seed)

    def save(updates: int, state: Mapping[str, Any]) -> None:
        tensors, scalars = agent.state()
        if int(state["policy_version"]) >= 0:
            weights.pin(int(state["policy_version"]))
        checkpoint.save(run.checkpoints, tensors, {"updates": updates, "learner": state, "agent": scalars})

    ahead = Lookahead(config.agent.n_step, config.agent.discount)
    samplers = make_samplers(run.real, run.demo, DEMO, ONLINE, ahead)
    extra: dict[str, Sampler] = {}
    share = None
    if config.synthetic.on:
        extra[SYNTHETIC], share = make_share(
            run, config, agent, ahead, online=samplers[ONLINE], demo=samplers[DEMO]
        )
    mixer = Mixer(samplers | extra)
    worker = LearnerWorker(
        agent,
        mixer,
        weights,
        run.board(),
        config.learner,
        config.pacing,
        rng=np.random.default_rng([config.seed, 3]),
        batch=empty_batch(mixer.schema, config.learner.batch_size),
        save_checkpoint=save,
        diagnose=ValueCheck(agent, StoreReader(run.real), config.agent.discount).measure,
        synthetic=share,
        values=run.values() if config.synthetic.on else None,
    )
    saved = checkpoint.load_latest(run.checkpoints)
    if saved is not None:
        agent.load_state(saved.tensors, saved.meta["agent"])
        worker.load_state(saved.meta["learner"])
    return worker


def make_actor(run: RunDir) -> Worker:
    """The actor of a run; a store left by a killed one is recovered, its random generators continue.

    Where it cannot be made, whatever was opened for it is closed again.
    """
    with ExitStack() as undo:
        actor = _make_actor(run, undo)
        undo.pop_all()
    return actor


def _make_actor(run: RunDir, undo: ExitStack) -> ActorProcess:
    """`undo` learns how to close what has been opened."""
    config, board = run.config, run.board()

    def keep_waiting(what: str) -> bool:
        # Whoever waits for a person, or for the arm, is alive, for as long as the run goes on.
        board.beat("actor", f"waits for {what}")
        return not (board.get(STOP) or board.get(HOLD))

    env = make_env(config.robot, seed=config.seed, on_transition=_safety_log(run), keep_waiting=keep_waiting)
    undo.callback(env.close)
    rng = np.random.default_rng([config.seed, 2])
    teleop = make_teleop(config.correction, env, rng)
    if teleop is not None:
        undo.callback(teleop.close)
    policy = ActingPolicy(config.agent, run.spec, device=torch.device(config.device), seed=config.seed)
    writer = undo.enter_context(StoreWriter(run.real, make_schema(env)))
    board.set(ENV_STEPS, writer.num_transitions)
    generators = _Generators(policy, rng)
    film: dict[str, list[Image]] = {}
    failures = FailureSheet()

    def save_state(state: dict[str, Any]) -> None:
        run.write_json(ACTOR_STATE, {"worker": state, **generators.state()})

    def keep_frame(images: dict[str, Image]) -> None:
        for view, image in images.items():
            film.setdefault(view, []).append(image)

    def save_pictures() -> None:
        if film:
            save_film(run.path / FILM, film)
            save_file({view: np.stack(frames) for view, frames in film.items()}, run.path / FRAMES)
        failures.save(run.path / FAILURES)

    trained = HumanIntervention(env, teleop) if teleop is not None else env
    # Where a person is there, they also judge what the policy does alone; a physical cell cannot.
    by_hand = teleop is not None and config.correction.kind.by_hand
    judged = HumanIntervention(env, teleop, leads=False) if teleop is not None and by_hand else env
    worker = ActorWorker(
        trained,
        judged,
        policy,
        writer,
        run.weights(),
        board,
        config.actor,
        config.pacing,
        warm_updates=config.learner.all_warm_updates,
        first_seed=TRAIN_SEED + 1_000_000 * config.seed + writer.num_episodes,
        hold=env.hold,
        save_state=save_state,
        before_done=save_pictures,
        on_step=make_window(config.correction.kind),
        on_final_frame=keep_frame,
        on_final_failure=failures.add,
    )
    saved = run.read_json(ACTOR_STATE)
    if saved is not None:
        worker.load_state(saved["worker"])
        generators.load_state(saved)
    return ActorProcess(worker, trained)


def _safety_log(run: RunDir) -> Callable[[GovernorTransition], None]:
    """Every change of the safety governor's state, with its reason and number, as a line of safety.jsonl."""
    path = run.path / "safety.jsonl"

    def write(transition: GovernorTransition) -> None:
        value = None if math.isnan(transition.value) else transition.value
        line = {
            "time": transition.time,
            "before": transition.before.value,
            "after": transition.after.value,
            "reason": transition.reason.value,
            "value": value,
        }
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    return write


class _Generators:
    """The random generators of an actor process, as JSON: the policy's noise and the scripted corrector's choices."""

    def __init__(self, policy: ActingPolicy, corrector: np.random.Generator) -> None:
        self._policy, self._corrector = policy, corrector

    def state(self) -> dict[str, Any]:
        return {
            "policy_rng": self._policy.generator.get_state().tolist(),
            "corrector_rng": self._corrector.bit_generator.state,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._policy.generator.set_state(torch.tensor(state["policy_rng"], dtype=torch.uint8))
        self._corrector.bit_generator.state = state["corrector_rng"]
