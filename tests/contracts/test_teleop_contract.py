"""What every TeleopSource must do. Devices that need a window or a stick are tested in tests/robot/test_teleop.py."""

import time
from collections.abc import Callable

import numpy as np
import pytest

from robot.factory import ObsKind, RobotConfig, make_corrector, make_robot_env
from robot.interfaces import TeleopCommand, TeleopEvent, TeleopSource
from robot.teleop.scripted import ScriptedTeleop


def scripted() -> TeleopSource:
    engaged = TeleopCommand(delta=np.full(6, 0.5), gripper=1.0, engaged=True)
    return ScriptedTeleop([engaged, TeleopCommand(), TeleopCommand(events=(TeleopEvent.SUCCESS,))])


def corrector() -> TeleopSource:
    env = make_robot_env(RobotConfig(obs=ObsKind.STATE))
    env.reset(seed=0)
    return make_corrector(env, np.random.default_rng(0))


@pytest.fixture(params=[scripted, corrector])
def teleop(request: pytest.FixtureRequest) -> TeleopSource:
    make: Callable[[], TeleopSource] = request.param
    return make()


def test_commands_are_within_their_ranges_and_hands_are_sometimes_on(teleop: TeleopSource) -> None:
    teleop.reset()
    commands = [teleop.read() for _ in range(30)]
    for command in commands:
        assert command.delta.shape == (6,) and np.abs(command.delta).max() <= 1.0
        assert command.gripper in (-1.0, 0.0, 1.0)
        assert command.age >= 0.0
        assert all(isinstance(event, TeleopEvent) for event in command.events)
    assert {command.engaged for command in commands} == {True, False}


def test_reading_does_not_block(teleop: TeleopSource) -> None:
    start = time.perf_counter()
    for _ in range(20):
        teleop.read()
    assert time.perf_counter() - start < 1.0


def test_close_may_be_repeated(teleop: TeleopSource) -> None:
    teleop.close()
    teleop.close()
