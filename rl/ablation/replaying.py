"""One arm and seed: the recording replayed into a run directory of its own, then the learned agent judged."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from rl import checkpoint
from rl.ablation.arms import Arm
from rl.ablation.config import AblateConfig, Imagined
from rl.ablation.judge import Judge
from rl.ablation.recording import Recording
from rl.ablation.relabel import Relabeller
from rl.ablation.replay_actor import ReplayActor
from rl.ablation.replay_imagination import ReplayImagination, moments
from rl.ablation.stream import Stream
from rl.agent.sac import SACAgent
from rl.evaluation import Evaluation
from rl.metrics import read_metrics
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from rl.reward_models.loading import load_classifier, load_for_labels
from rl.runtime.given import own_reward_model, take_reward_model
from rl.runtime.imagining import make_world_model
from rl.runtime.inline import run_inline
from rl.runtime.run_dir import RunDir
from rl.schemas import RuntimeKind
from rl.synthetic import ImaginedBy
from rl.workers.ports import TARGET_ENV_STEPS, Worker
from robot.factory import RobotKind, make_env

TRACE_POINTS = 200  # of the ratio, kept in a result


class Replaying:
    """Replays `recording` to one arm with one seed in the directory `work`, and measures what came of it."""

    def __init__(self, recording: Recording, arm: Arm, seed: int, work: Path, config: AblateConfig) -> None:
        self._recording, self._arm, self._config, self._seed = recording, arm, config, seed
        self._held_out = recording.held_out(config.holdout_every)
        self._relabeller = self._make_relabeller()
        self._run = self._prepare(work)

    def run(self) -> dict[str, Any]:
        """The deterministic part of a result. Raises KeyboardInterrupt where it was interrupted."""
        recorded = self._arm.stream.imagined is Imagined.RECORDED
        code = run_inline(
            self._run,
            lambda: None,
            self._make_actor,
            self._make_imagination if recorded else make_world_model,
        )
        if code:
            raise KeyboardInterrupt
        agent, updates = self._learned()
        return {
            "updates": updates,
            "policy": _digest(agent),
            "shown": self._shown(),
            **self._judged(agent),
            "labels": self._labels(),
            "synthetic": self._synthetic(),
            "success": self._true_success(agent),
        }

    def _prepare(self, work: Path) -> RunDir:
        """A run directory as the learner expects it, with the demonstrations and nothing of the robot's yet."""
        recording = self._recording
        settings = copy.deepcopy(self._arm.settings)
        changes = {
            "seed": self._seed,
            "name": work.name,
            "runs_dir": str(work.parent),
            "runtime.kind": RuntimeKind.INLINE,
            "learner.diagnose_every": 0,  # it is judged at the end, on episodes that it has not seen
        }
        for key, value in changes.items():
            OmegaConf.update(settings, key, value)
        shutil.rmtree(work, ignore_errors=True)
        run = RunDir.create(work, settings)
        run.spec = recording.spec
        shutil.copytree(recording.run.demo, run.demo)
        StoreWriter(run.real, recording.real.schema).close()  # the learner reads it from the start
        if run.config.synthetic.on:
            StoreWriter(run.synthetic, recording.real.schema).close()
        if self._arm.stream.imagined is not Imagined.RECORDED:
            self._take_judge(run)
        run.board().set(TARGET_ENV_STEPS, run.config.actor.max_env_steps)
        return run

    def _take_judge(self, run: RunDir) -> None:
        """The reward model of an arm that imagines video; where it names no other, that of the recorded run."""
        config, recorded = run.config, self._recording.config.synthetic.video.reward_model
        if config.synthetic.model is not ImaginedBy.VIDEO:
            return
        own, given = own_reward_model(self._recording.run), config.synthetic.video.reward_model
        judge = own if given is None or (given == recorded and own.exists()) else Path(given)
        names = self._recording.real.schema.proprio.names
        load_for_labels(judge, config.robot.task, names, torch.device(config.device))
        take_reward_model(run, judge)

    def _make_relabeller(self) -> Relabeller | None:
        stream = self._arm.stream
        if stream.reward_model is None:
            return None
        model = load_classifier(Path(stream.reward_model), torch.device(self._config.device))
        return Relabeller.of(model, stream.success_threshold, self._recording.real)

    def _make_actor(self, run: RunDir) -> Worker:
        stream = Stream(
            self._recording,
            self._held_out,
            corrections=self._arm.shows_corrections,
            relabeller=self._relabeller,
        )
        writer = StoreWriter(run.real, self._recording.real.schema)
        return ReplayActor(stream, writer, run.weights(), run.board())

    def _make_imagination(self, run: RunDir) -> Worker:
        synthetic = self._recording.synthetic
        assert synthetic is not None, "an arm without recorded clips is refused beforehand"
        course = moments(read_metrics(self._recording.run.metrics_path))
        return ReplayImagination(synthetic, course, StoreWriter(run.synthetic, synthetic.schema), run.board())

    def _learned(self) -> tuple[SACAgent, int]:
        """The agent as the learner left it, and its updates."""
        config = self._run.config
        saved = checkpoint.load_latest(self._run.checkpoints)
        assert saved is not None, "a learner that has finished has saved itself"
        agent = SACAgent(config.agent, self._run.spec, device=torch.device(config.device), seed=config.seed)
        agent.load_state(saved.tensors, saved.meta["agent"])
        return agent, saved.updates

    def _judged(self, agent: SACAgent) -> dict[str, Any]:
        judge, fqe = Judge(agent, self._recording.real), self._config.fqe
        episodes = self._recording.episodes
        discount = self._recording.config.agent.discount if fqe.discount is None else fqe.discount
        held_out = [info for info in episodes if info.episode in self._held_out]
        return {
            **judge.measures(held_out),
            "discount": agent.config.discount,
            "fqe": judge.fitted_q(episodes, fqe, discount=discount, seed=self._seed) | {"discount": discount},
        }

    def _shown(self) -> dict[str, int]:
        """What the learner could draw of the robot's, of all that was recorded."""
        return {
            "real_transitions": StoreReader(self._run.real).num_transitions,
            "recorded_transitions": self._recording.env_steps,
            "demo_transitions": self._recording.demo.num_transitions,
        }

    def _labels(self) -> dict[str, Any] | None:
        if self._relabeller is None:
            return None
        return self._relabeller.agreement(self._recording.episodes).as_json()

    def _synthetic(self) -> dict[str, Any] | None:
        """Counts, and the ratio by env steps, thinned out."""
        if not self._run.config.synthetic.on:
            return None
        records = read_metrics(self._run.metrics_path)
        last: dict[str, float] = {}
        for record in records:
            last |= {name: value for name, value in record.items() if value is not None}
        ratio = [
            (int(record["env_steps"]), record["selection/ratio"])
            for record in records
            if record.get("selection/ratio") is not None
        ]
        every = max(1, len(ratio) // TRACE_POINTS)
        return {
            "generated": int(last.get("world_model/generated", 0)),
            "admitted": int(last.get("world_model/admitted", 0)),
            "used": int(last.get("selection/used", 0)),
            "ratio_mean": sum(value for _, value in ratio) / len(ratio) if ratio else 0.0,
            "ratio": ratio[::every],
        }

    def _true_success(self, agent: SACAgent) -> dict[str, Any] | None:
        """Of the policy on the simulated arm, as the run evaluated its own; None for an arm in the world."""
        episodes, robot = self._config.eval_episodes, self._recording.config.robot
        if not episodes or robot.kind is not RobotKind.SIM:
            return None
        env = make_env(robot, seed=self._recording.config.seed)
        try:
            evaluation = Evaluation(env, agent, episodes, self._recording.config.actor.eval_noise)
            while not evaluation.finished:
                evaluation.step()
        finally:
            env.close()
        result = evaluation.result()
        return {name.removeprefix("eval/"): value for name, value in result.as_metrics().items()}


def _digest(agent: SACAgent) -> str:
    """Of every number that the agent has learned: two that agree in it are the same, bit by bit."""
    tensors, scalars = agent.state()
    digest = hashlib.sha256(json.dumps(scalars, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].numpy().tobytes())
    return digest.hexdigest()
