"""Recording goes on after an attempt that the robot ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl.build import make_samplers, make_schema
from rl.demonstrations import record_demonstrations
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from rl.schemas import CorrectionConfig, DemosConfig
from robot.factory import ObsKind, RobotConfig, make_robot_env
from robot.interfaces import DeviceError
from robot.sim.arm import SimFaults


def test_a_fault_costs_the_attempt_and_not_the_recording(tmp_path: Path) -> None:
    faults = SimFaults()
    env = make_robot_env(RobotConfig(image_px=32), faults=faults)
    reset, step = env.reset, env.step

    def stalling(action: Any) -> Any:
        if StoreReader(tmp_path).num_rows > 4 and not StoreReader(tmp_path).episodes():
            faults.stalled_views.add("wrist")
        return step(action)

    def healing(**options: Any) -> Any:
        faults.stalled_views.clear()
        return reset(**options)

    env.step, env.reset = stalling, healing  # type: ignore[method-assign]
    config = DemosConfig(episodes=1, noise=0.0)
    attempts = list(record_demonstrations(tmp_path, env, config, CorrectionConfig(), seed=0))
    first, last = attempts[0], attempts[-1]
    assert first.info.discarded and "stale_frame" in first.describe() and "wrist" in first.describe()
    assert last.info.success and last.demonstrations == 1
    env.close()


STATE = RobotConfig(obs=ObsKind.STATE)
ONE = DemosConfig(episodes=1, noise=0.0)


def test_an_error_discards_the_attempt_with_its_reason_and_keeps_its_rows(tmp_path: Path) -> None:
    env = make_robot_env(STATE)
    step, calls, held = env.step, [], []

    def failing(action: Any) -> Any:
        calls.append(action)
        if len(calls) == 4:
            raise DeviceError("arm: nobody follows the targets")
        return step(action)

    env.step = failing  # type: ignore[method-assign]
    env.end_episode = lambda: held.append(StoreReader(tmp_path).num_episodes)  # type: ignore[method-assign, func-returns-value]
    with pytest.raises(DeviceError):
        list(record_demonstrations(tmp_path, env, ONE, CorrectionConfig(), seed=0))
    assert held == [0]  # the arm holds before the episode is stored
    reader = StoreReader(tmp_path)
    (info,) = reader.episodes()
    assert info.outcome == EpisodeOutcome(EndReason.DISCARDED, "DeviceError: arm: nobody follows the targets")
    assert info.num_transitions == 3 and len(reader.episode(0)) == 3
    assert reader.num_transitions == 0
    env.close()


def test_a_success_is_kept_though_the_arm_fails_to_hold_after_it(tmp_path: Path) -> None:
    env = make_robot_env(STATE)
    step = env.step

    def last(action: Any) -> Any:
        result = step(action)
        if result[2]:
            env.robot.hold = env.end_episode = fail  # type: ignore[method-assign]
        return result

    def fail() -> None:
        raise DeviceError("arm: gone")

    env.step = last  # type: ignore[method-assign]
    with pytest.raises(DeviceError, match="gone"):
        list(record_demonstrations(tmp_path, env, ONE, CorrectionConfig(), seed=0))
    (info,) = StoreReader(tmp_path).episodes()
    assert info.success and info.outcome.reason is EndReason.SUCCESS


@pytest.mark.parametrize("reason", [EndReason.STOPPED, EndReason.RECOVERED])
def test_of_a_store_from_before_a_demonstration_that_broke_off_is_not_sampled(
    tmp_path: Path, reason: EndReason
) -> None:
    demo, real = tmp_path / "demo", tmp_path / "real"
    env = make_robot_env(STATE)
    list(record_demonstrations(demo, env, ONE, CorrectionConfig(), seed=0))
    whole = StoreReader(demo).episode(0)
    imported = EpisodeOutcome(EndReason.STOPPED, "the dataset holds no reward: outcome unknown")
    with StoreWriter(real, make_schema(env)), StoreWriter(demo, make_schema(env)) as writer:
        for outcome in (EpisodeOutcome(reason), imported):
            writer.begin_episode(whole.observation(0))
            for transition in list(whole.transitions())[:5]:
                writer.add(transition)
            writer.end_episode(outcome)
    reader = StoreReader(demo)
    assert [info.discarded for info in reader.episodes()] == [False, True, False]
    assert len(reader.episode(1)) == 5  # still there to be looked at
    shares = make_samplers(real, demo, "demo", "online")
    assert shares["demo"].size == len(whole) + 5
    env.close()


def test_a_writer_that_is_closed_in_mid_demonstration_discards_it(tmp_path: Path) -> None:
    env = make_robot_env(STATE)
    list(record_demonstrations(tmp_path, env, ONE, CorrectionConfig(), seed=0))
    whole = StoreReader(tmp_path).episode(0)
    for steps in (3, len(whole)):
        with StoreWriter(tmp_path, make_schema(env)) as writer:
            writer.begin_episode(whole.observation(0))
            for transition in list(whole.transitions())[:steps]:
                writer.add(transition)
    _, broken, complete = StoreReader(tmp_path).episodes()
    assert broken.outcome == EpisodeOutcome(EndReason.DISCARDED, "stopped: an unfinished demonstration")
    assert complete.success and not complete.discarded
    env.close()
