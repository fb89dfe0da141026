"""What every TeleopSource must do: those that a hand works, with pretended hardware, and those that a script leads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from robot.factory import ObsKind, RobotConfig, make_corrector, make_robot_env
from robot.interfaces import TeleopCommand, TeleopEvent, TeleopSource
from robot.teleop.scripted import ScriptedTeleop
from robot.teleop.window import load_pygame
from tests.robot.teleop_devices import GamepadPuppet, KeyboardPuppet, Puppet, SpaceMousePuppet

pytestmark = pytest.mark.wall_clock

PERIOD = 0.101  # s between readings
HOLD_OFF = 0.3  # s that a released dead-man keeps the person in charge


def scripted() -> TeleopSource:
    engaged = TeleopCommand(delta=np.full(6, 0.5), gripper=1.0, engaged=True)
    return ScriptedTeleop([engaged, TeleopCommand(), TeleopCommand(events=(TeleopEvent.SUCCESS,))])


def corrector() -> TeleopSource:
    env = make_robot_env(RobotConfig(obs=ObsKind.STATE))
    env.reset(seed=0)
    return make_corrector(env, np.random.default_rng(0))


@pytest.fixture(params=[scripted, corrector])
def script(request: pytest.FixtureRequest) -> TeleopSource:
    make: Callable[[], TeleopSource] = request.param
    return make()


@pytest.fixture(params=[KeyboardPuppet, GamepadPuppet, SpaceMousePuppet])
def puppet(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Puppet]:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")
    pygame = load_pygame()
    hand: Puppet = request.param(pygame, monkeypatch)
    yield hand
    hand.teleop.close()
    pygame.quit()


def test_a_script_stays_within_the_ranges_and_its_hands_are_sometimes_on(script: TeleopSource) -> None:
    script.reset()
    commands = [script.read() for _ in range(30)]
    for command in commands:
        assert command.delta.shape == (6,) and np.abs(command.delta).max() <= 1.0
        assert command.gripper in (-1.0, 0.0, 1.0)
        assert command.age >= 0.0
        assert all(isinstance(event, TeleopEvent) for event in command.events)
    assert {command.engaged for command in commands} == {True, False}


def test_a_script_has_no_stop_key(script: TeleopSource) -> None:
    assert not script.stop_asked()


def test_stop_is_heard_on_the_way_to_an_episode_and_stays_said(puppet: Puppet) -> None:
    teleop = puppet.teleop
    puppet.say(TeleopEvent.SUCCESS)
    assert not teleop.stop_asked()
    puppet.say(TeleopEvent.STOP)
    assert teleop.stop_asked() and teleop.stop_asked()
    teleop.reset()
    assert teleop.read().events == (TeleopEvent.STOP,)
    assert not teleop.stop_asked()


def test_a_script_does_not_block_and_may_be_closed_twice(script: TeleopSource) -> None:
    start = time.perf_counter()
    for _ in range(20):
        script.read()
    assert time.perf_counter() - start < 1.0
    script.close()
    script.close()


def readings(puppet: Puppet, count: int) -> list[TeleopCommand]:
    commands = []
    for _ in range(count):
        commands.append(puppet.teleop.read())
        puppet.clock.advance(PERIOD)
    return commands


def test_hands_off_says_nothing(puppet: Puppet) -> None:
    puppet.teleop.reset()
    for command in readings(puppet, 5):
        assert not command.engaged and not command.delta.any()
        assert command.gripper == 0.0 and command.events == () and command.age == 0.0


def test_a_full_push_is_one_and_along_one_axis(puppet: Puppet) -> None:
    puppet.push_away()
    command = puppet.teleop.read()
    assert command.engaged and command.age == 0.0
    np.testing.assert_allclose(command.delta, [1, 0, 0, 0, 0, 0], atol=1e-3)


def test_letting_go_stops_at_once_and_hands_over_after_the_hold_off(puppet: Puppet) -> None:
    puppet.push_away()
    assert puppet.teleop.read().engaged
    puppet.let_go()
    puppet.clock.advance(PERIOD)
    commands = readings(puppet, 4)
    assert not any(command.delta.any() for command in commands)
    assert [command.engaged for command in commands] == [PERIOD * k < HOLD_OFF for k in (1, 2, 3, 4)]


def test_the_gripper_is_a_held_state_that_ends_with_the_correction(puppet: Puppet) -> None:
    told = []
    for toggles in (0, 1, 0, 0, 1, 0):
        puppet.push_away()
        for _ in range(toggles):
            puppet.toggle_gripper()
        told.append(puppet.teleop.read().gripper)
        puppet.clock.advance(PERIOD)
    assert told == [0.0, -1.0, -1.0, -1.0, 1.0, 1.0]
    puppet.let_go()
    assert readings(puppet, 5)[-1].gripper == 0.0


@pytest.mark.parametrize("leads", [True, False])
def test_each_event_comes_once_in_order_whoever_leads(puppet: Puppet, leads: bool) -> None:
    if leads:
        puppet.push_away()
    for event in TeleopEvent:
        puppet.say(event)
    command = puppet.teleop.read()
    assert command.events == tuple(TeleopEvent) and command.engaged == leads
    assert puppet.teleop.read().events == ()


def test_a_new_episode_begins_with_hands_off_and_without_late_verdicts(puppet: Puppet) -> None:
    puppet.push_away()
    assert puppet.teleop.read().engaged
    puppet.let_go()
    for event in TeleopEvent:
        puppet.say(event)
    puppet.teleop.reset()
    command = puppet.teleop.read()
    assert not command.engaged and command.events == (TeleopEvent.STOP,)


def test_a_device_that_goes_in_mid_correction_moves_nothing_and_is_named(
    puppet: Puppet, caplog: pytest.LogCaptureFixture
) -> None:
    puppet.push_away()
    assert puppet.teleop.read().engaged
    puppet.clock.advance(PERIOD)
    puppet.unplug()
    if isinstance(puppet, KeyboardPuppet):  # keys are released when the window loses the focus
        puppet.let_go()
    commands = readings(puppet, 4)
    assert not any(command.delta.any() for command in commands)
    assert not commands[-1].engaged and commands[-1].age > 0.2
    name = {KeyboardPuppet: "keyboard", GamepadPuppet: "gamepad"}.get(type(puppet), "spacemouse")
    ends = [r.getMessage() for r in caplog.records if "the policy is in charge" in r.getMessage()]
    assert len(ends) == 1 and ends[0].startswith(name)


def test_reading_does_not_block_and_closing_may_be_repeated(puppet: Puppet) -> None:
    start = time.perf_counter()
    for _ in range(20):
        puppet.teleop.read()
    assert time.perf_counter() - start < 1.0
    puppet.teleop.close()
    puppet.teleop.close()
