"""The actor against counting fakes: what it stores, when it waits, when it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl.replay.journal import EndReason
from rl.replay.reader import StoreReader
from rl.replay.schema import StoreSchema
from rl.replay.writer import StoreWriter
from rl.runtime.board import Board
from rl.runtime.weights import WeightsDirectory
from rl.workers.actor import ActorConfig, ActorWorker
from rl.workers.pacing import ActorWaits, PacingConfig
from rl.workers.ports import (
    ACTOR_DONE,
    ENV_STEPS,
    HOLD,
    LEARNER_DONE,
    OPERATOR_STOP,
    TARGET_ENV_STEPS,
    UPDATES,
)
from robot.interfaces import DeviceError, RobotFault
from robot.types import Float32, Observation, ProprioSpec, Source

LENGTH = 5  # steps of an episode of the fake


class FakeEnv(gym.Env[Any, Any]):
    """Counts; episodes truncate after LENGTH steps; `script` overrides what single steps say."""

    def __init__(self, script: dict[int, dict[str, Any]] | None = None) -> None:
        self.script = script or {}
        self.seeds: list[int | None] = []
        self.reset_faults: list[str] = []  # of the next resets
        self.actions: list[Float32] = []
        self.now, self.t = 0.0, 0

    def _observe(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self.now += 0.1
        info = {"timestamp": self.now, "image_timestamps": {}}
        return {"proprio": np.array([self.now, self.t], np.float32)}, info

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.seeds.append(seed)
        if self.reset_faults:
            raise RobotFault(self.reset_faults.pop(0), "as scripted")
        self.t = 0
        return self._observe()

    def step(self, action: Float32) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        said = self.script.get(len(self.actions), {})
        self.actions.append(action)
        if "fault" in said:
            raise RobotFault(said["fault"], "as scripted")
        self.t += 1
        values, info = self._observe()
        success = bool(said.get("success"))
        executed = np.asarray(said.get("action", action), np.float32)
        info |= {
            "action": executed,
            "requested_action": action,
            "intervened": bool(said.get("intervened")),
            "gripper_changed": False,
            "success": success,
            "period": 0.1,
            "overrun": False,
            **said.get("info", {}),
        }
        return values, float(success), success, self.t >= LENGTH and not success, info


class FakeAgent:
    """Acts with its version, so that a stored action tells which policy made it."""

    def __init__(self) -> None:
        self.value = -1.0
        self.noise: list[Float32 | None] = []

    def act(self, observation: Observation, *, noise: Float32 | None = None) -> Float32:
        self.noise.append(noise)
        return np.full(7, self.value, np.float32)

    def load_tensors(self, tensors: Any) -> None:
        self.value = float(tensors["v"])


class Rig:
    """An actor with everything around it."""

    def __init__(self, path: Path, script: dict[int, dict[str, Any]] | None = None, **config: Any) -> None:
        spec = ProprioSpec(("time", "t"), *(np.ones(2, np.float32) for _ in range(3)))
        self.store = path / "real"
        self.board = Board(path / "board.bin", lambda: 1.0)
        self.weights = WeightsDirectory(path / "weights")
        self.env, self.eval_env, self.agent = FakeEnv(script), FakeEnv(), FakeAgent()
        self.holds = 0
        waits = config.pop("actor_waits", ActorWaits.STEP)
        settings = ActorConfig(
            **({"eval_every_env_steps": 0, "final_eval_episodes": 2, "max_env_steps": 20} | config)
        )
        self.board.set(TARGET_ENV_STEPS, settings.max_env_steps)
        self.actor = ActorWorker(
            self.env,
            self.eval_env,
            self.agent,
            StoreWriter(self.store, StoreSchema(task="fake", views={}, proprio=spec)),
            self.weights,
            self.board,
            settings,
            PacingConfig(utd_ratio=1.0, slack_steps=2, actor_waits=waits),
            warm_updates=0,
            first_seed=500,
            hold=self._hold,
            save_state=lambda _state: None,
        )

    def _hold(self) -> None:
        self.holds += 1

    def publish(self, value: float) -> int:
        return self.weights.publish({"v": torch.tensor(value)}, updates=int(value * 100))

    def run(self, steps: int) -> None:
        self.board.set(UPDATES, 10_000)
        for _ in range(steps):
            self.actor.step()

    def reader(self) -> StoreReader:
        self.actor.close()
        return StoreReader(self.store)


def test_it_waits_for_the_first_policy_and_holds(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert "first policy" in rig.actor.step().waiting
    assert rig.holds == 1 and rig.env.seeds == []


def test_each_step_is_stored_at_once_with_its_policy_version(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    first = rig.publish(0.1)
    rig.run(1 + 3)
    second = rig.publish(0.2)
    rig.run(2)
    reader = StoreReader(rig.store)  # a reader beside the open writer
    assert reader.num_transitions == rig.board.get(ENV_STEPS) == 5
    episode = rig.reader().episode(0)
    assert episode.policy_version.tolist() == [first] * 3 + [second] * 2
    np.testing.assert_allclose(episode.action[:, 0], [0.1] * 3 + [0.2] * 2)
    assert rig.agent.noise == [None] * 5


def test_time_limit_is_truncation_and_success_is_termination(tmp_path: Path) -> None:
    rig = Rig(tmp_path, script={6: {"success": True}})
    rig.publish(0.1)
    rig.run(1 + LENGTH + 1 + 2)
    reader = rig.reader()
    timeout, success = reader.episode(0), reader.episode(1)
    assert timeout.truncated[-1] and not timeout.terminated.any()
    assert success.terminated[-1] and not success.truncated.any() and success.success
    reasons = [info.outcome.reason for info in reader.episodes()]
    assert reasons == [EndReason.TIMEOUT, EndReason.SUCCESS]
    assert reader.num_episodes == 2


def test_a_correction_is_stored_as_executed_with_its_flag(tmp_path: Path) -> None:
    human = np.full(7, -0.5)
    rig = Rig(
        tmp_path, script={1: {"intervened": True, "action": human}, 2: {"intervened": True, "action": human}}
    )
    rig.publish(0.1)
    rig.run(1 + LENGTH)
    episode = rig.reader().episode(0)
    assert episode.intervened.tolist() == [False, True, True, False, False]
    assert [Source(s) for s in episode.source[:3]] == [Source.REAL, Source.CORRECTION, Source.CORRECTION]
    np.testing.assert_allclose(episode.action[1], human)
    np.testing.assert_allclose(episode.requested_action[1], 0.1)


def test_it_never_runs_ahead_of_the_learner_by_more_than_the_slack(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.publish(0.1)
    rig.board.set(UPDATES, 1)
    for _ in range(20):
        result = rig.actor.step()
    assert rig.board.get(ENV_STEPS) == 1 + 2 + 1  # one update, two steps of slack, the step that crosses
    assert "learner" in result.waiting
    assert (
        rig.holds == 0
    )  # virtual time stands still: a hold would make the episode depend on the learner's speed


def test_on_a_wall_clock_it_waits_between_episodes_only(tmp_path: Path) -> None:
    rig = Rig(tmp_path, actor_waits=ActorWaits.EPISODE)
    rig.publish(0.1)
    for _ in range(20):
        rig.actor.step()
    assert rig.board.get(ENV_STEPS) == LENGTH
    assert len(rig.env.seeds) == 1


def test_hold_stops_the_arm_within_one_step_and_keeps_the_episode(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.publish(0.1)
    rig.run(1 + 3)
    rig.board.set(HOLD, 1)
    assert "worker is down" in rig.actor.step().waiting
    assert rig.holds > 0 and len(rig.env.actions) == 3
    rig.board.set(HOLD, 0)
    rig.run(2)
    reader = rig.reader()
    first = reader.episodes()[0]
    assert first.outcome.reason is EndReason.STOPPED and first.num_transitions == 3
    assert reader.episode(0).truncated[-1] and not reader.episode(0).terminated.any()


def test_an_evaluation_that_was_held_begins_its_episode_anew(tmp_path: Path) -> None:
    rig = Rig(tmp_path, eval_every_env_steps=5, eval_episodes=2)
    rig.publish(0.1)
    rig.board.set(UPDATES, 10_000)
    while rig.eval_env.t < 2:
        rig.actor.step()
    rig.board.set(HOLD, 1)
    rig.actor.step()
    assert rig.holds == 1 and len(rig.eval_env.actions) == 2
    rig.board.set(HOLD, 0)
    rig.actor.step()
    assert (
        len(rig.eval_env.actions) == 2 and rig.eval_env.t == 0
    )  # a reset, no action on what was seen before
    metrics: dict[str, float] = {}
    while "eval/episodes" not in metrics:
        metrics |= rig.actor.step().metrics
    assert metrics["eval/episodes"] == 2 and metrics["eval/mean_steps"] == LENGTH
    first, again, second = rig.eval_env.seeds
    assert first is not None and again == first and second == first + 1


def test_the_store_is_closed_though_the_arm_fails_to_hold(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.publish(0.1)
    rig.run(1 + 3)

    def gone() -> None:
        raise DeviceError("arm: gone")

    rig.actor._hold = gone
    with pytest.raises(DeviceError):
        rig.actor.close()
    reader = StoreReader(rig.store)
    assert [info.outcome.reason for info in reader.episodes()] == [EndReason.STOPPED]
    with StoreWriter(rig.store, reader.schema) as writer:  # its lock is free
        assert writer.recovery.clean


def test_a_robot_fault_ends_the_episode_by_name_and_the_run_goes_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path, script={3: {"fault": "stale_frame"}})
    rig.publish(0.1)
    rig.run(1 + 3)
    assert "stale_frame" in rig.actor.step().waiting
    rig.run(1 + LENGTH)
    reader = rig.reader()
    first, second = reader.episodes()[:2]
    assert first.outcome.reason is EndReason.FAULT and "stale_frame" in first.outcome.detail
    assert first.num_transitions == 3 and second.num_transitions == LENGTH


def test_too_many_faults_end_the_run_with_the_last_one_named(tmp_path: Path) -> None:
    rig = Rig(tmp_path, script={i: {"fault": "nan_feedback"} for i in range(10)}, max_faults=2)
    rig.publish(0.1)
    with pytest.raises(RobotFault, match="nan_feedback: more than 2 faults in a row"):
        rig.run(20)


def test_faults_count_in_a_row(tmp_path: Path) -> None:
    rig = Rig(tmp_path, script={i: {"fault": "stale_frame"} for i in range(0, 20, LENGTH + 1)}, max_faults=1)
    rig.publish(0.1)
    rig.run(40)
    assert [info.num_transitions for info in rig.reader().episodes()] == [0, LENGTH] * 4


@pytest.mark.parametrize("final", [False, True])
def test_a_stop_on_the_way_to_an_episode_ends_the_run(tmp_path: Path, final: bool) -> None:
    rig = Rig(tmp_path, max_env_steps=0 if final else 20)
    rig.board.set(LEARNER_DONE, 1)
    rig.publish(0.1)
    (rig.eval_env if final else rig.env).reset_faults = ["operator_stop"]
    rig.run(3)
    assert rig.board.get(OPERATOR_STOP) == 1 and rig.holds == 1
    assert len(rig.env.seeds + rig.eval_env.seeds) == 1  # and nothing moves any more


@pytest.mark.parametrize("final", [False, True])
def test_an_interruption_on_the_way_to_an_episode_is_no_fault(tmp_path: Path, final: bool) -> None:
    rig = Rig(tmp_path, max_faults=0, max_env_steps=0 if final else 20)
    rig.board.set(LEARNER_DONE, 1)
    rig.publish(0.1)
    env = rig.eval_env if final else rig.env
    env.reset_faults = ["interrupted"]
    rig.run(2 if final else 1)
    rig.board.set(HOLD, 1)
    assert "worker is down" in rig.actor.step().waiting and rig.holds == 1
    rig.board.set(HOLD, 0)
    rig.run(2)
    assert len(env.seeds) == 2 and env.seeds[0] == env.seeds[1]  # the same layout once more


def test_events_of_the_operator(tmp_path: Path) -> None:
    rig = Rig(tmp_path, script={4: {"info": {"discard": True}}, 9: {"info": {"stop": True}}})
    rig.publish(0.1)
    rig.run(2 * (1 + LENGTH))
    assert rig.board.get(OPERATOR_STOP) == 1
    reader = rig.reader()
    assert [info.discarded for info in reader.episodes()] == [True, False]
    assert reader.num_transitions == LENGTH  # a discarded episode stays on disk and is never sampled


def test_training_layouts_continue_and_evaluation_does_not_disturb_them(tmp_path: Path) -> None:
    rig = Rig(tmp_path, eval_every_env_steps=5, eval_episodes=2, max_env_steps=15)
    rig.publish(0.1)
    rig.board.set(LEARNER_DONE, 1)
    rig.run(200)
    assert rig.env.seeds == [500, 501, 502]
    assert rig.eval_env.seeds[:2] == rig.eval_env.seeds[2:4]  # the same layouts every time
    assert rig.board.get(ACTOR_DONE) == 1
    assert rig.actor.step().finished


def test_early_stop_needs_consecutive_good_evaluations(tmp_path: Path) -> None:
    rig = Rig(tmp_path, eval_every_env_steps=5, eval_episodes=1, max_env_steps=100, stop_count=2)
    rig.eval_env.script = {i: {"success": True} for i in range(1000)}
    rig.publish(0.1)
    rig.run(60)
    assert rig.board.get(TARGET_ENV_STEPS) == 5  # good at 0 and at 5
    rig.board.set(TARGET_ENV_STEPS, 100)
    rig.actor.load_state(rig.actor.state())  # as a resumed run does
    assert rig.board.get(TARGET_ENV_STEPS) == 5
