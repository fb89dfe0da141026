"""HumanIntervention: exact per-step attribution, events in the very transition, silence leads nothing."""

from typing import Any

import numpy as np
import pytest

from robot.factory import ObsKind, RobotConfig, make_robot_env
from robot.interfaces import DeviceError, TeleopCommand, TeleopEvent
from robot.safety import GovernorState
from robot.teleop.scripted import ScriptedTeleop
from robot.wrappers import HumanIntervention

POLICY = np.array([0.2, 0, 0, 0, 0, 0, 0], np.float32)
HAND = np.array([0, 0.5, 0, 0, 0, 0])


def play(*commands: TeleopCommand) -> list[tuple[float, bool, bool, dict[str, Any]]]:
    env = HumanIntervention(make_robot_env(RobotConfig(obs=ObsKind.STATE)), ScriptedTeleop(commands))
    env.reset(seed=0)
    return [env.step(POLICY)[1:] for _ in commands]


def test_the_person_leads_for_exactly_the_steps_in_which_the_dead_man_is_held() -> None:
    held, loose = TeleopCommand(delta=HAND, engaged=True), TeleopCommand(delta=HAND)
    infos = [info for *_, info in play(loose, held, held, loose)]
    assert [info["intervened"] for info in infos] == [False, True, True, False]
    for info in infos:
        np.testing.assert_array_equal(info["requested_action"], POLICY)
        expected = [0, 0.5, 0] if info["intervened"] else [0.2, 0, 0]
        np.testing.assert_allclose(info["action"][:3], expected, atol=0.02)


def test_a_silent_device_leads_nothing() -> None:
    ((*_, info),) = play(TeleopCommand(delta=HAND, engaged=True, age=0.5))
    assert not info["intervened"] and info["device_silent"]
    np.testing.assert_allclose(info["action"][:2], [0.2, 0], atol=0.02)


@pytest.mark.parametrize(
    ("events", "reward", "terminated", "truncated"),
    [
        ((TeleopEvent.SUCCESS,), 1.0, True, False),
        ((TeleopEvent.FAILURE,), 0.0, True, False),
        ((TeleopEvent.SUCCESS, TeleopEvent.FAILURE), 0.0, True, False),
        ((TeleopEvent.DISCARD,), 0.0, False, True),
        ((TeleopEvent.STOP,), 0.0, False, True),
    ],
)
def test_events_end_the_very_transition(
    events: tuple[TeleopEvent, ...], reward: float, terminated: bool, truncated: bool
) -> None:
    before, after = play(TeleopCommand(), TeleopCommand(delta=HAND, engaged=True, events=events))
    assert before[:3] == (0.0, False, False) and "stop" not in before[3]
    assert after[:3] == (reward, terminated, truncated)
    info = after[3]
    assert info["success"] == (reward == 1.0)
    assert info.get("stop", False) == (TeleopEvent.STOP in events)
    assert info.get("discard", False) == (TeleopEvent.DISCARD in events)


def test_stop_moves_nothing() -> None:
    ((*_, info),) = play(TeleopCommand(delta=HAND, engaged=True, events=(TeleopEvent.STOP,)))
    assert not info["intervened"] and not info["action"].any()


@pytest.mark.parametrize("event", TeleopEvent)
def test_a_verdict_ends_the_episode_of_the_robot_too(event: TeleopEvent) -> None:
    robot = make_robot_env(RobotConfig(obs=ObsKind.STATE))
    robot._teleport = False  # as in real time, where the arm must be told to hold
    script = [TeleopCommand(), TeleopCommand(events=(event,))]
    env = HumanIntervention(robot, ScriptedTeleop(script))
    env.reset(seed=0)
    env.step(POLICY)
    assert robot.robot._governor.state is GovernorState.READY
    env.step(POLICY)
    assert robot.robot._governor.state is GovernorState.HOLDING
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(POLICY)
    env.close()


class Counting(ScriptedTeleop):
    resets = closes = 0

    def reset(self) -> None:
        self.resets += 1

    def close(self) -> None:
        self.closes += 1


def test_the_device_hears_of_episodes_and_of_the_end() -> None:
    teleop = Counting([])
    env = HumanIntervention(make_robot_env(RobotConfig(obs=ObsKind.STATE)), teleop)
    env.reset(seed=0)
    env.reset()
    env.close()
    assert (teleop.resets, teleop.closes) == (2, 1)


def test_the_robot_is_closed_though_the_device_cannot_be() -> None:
    robot = make_robot_env(RobotConfig(obs=ObsKind.STATE))
    teleop = ScriptedTeleop([])
    teleop.close = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        HumanIntervention(robot, teleop).close()
    with pytest.raises(DeviceError, match="not connected"):
        robot.robot.arm_state()
