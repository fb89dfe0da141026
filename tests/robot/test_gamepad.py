"""The gamepad as a correction device: a pad inside SDL gives exact commands; no hardware."""

from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest

from robot.clock import VirtualClock
from robot.interfaces import DeviceError, TeleopEvent
from robot.teleop.gamepad import GamepadConfig, GamepadTeleop
from robot.teleop.hands import Buttons
from tests.robot.teleop_devices import VirtualPad


@pytest.fixture
def pad(pygame: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualPad]:
    monkeypatch.setenv("SDL_JOYSTICK_ALLOW_BACKGROUND_EVENTS", "1")
    device = VirtualPad(pygame)
    yield device
    device.detach()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"left_x": 4}, "4 for left_x and for right_y"),
        ({"dead_man": 0}, "0 for dead_man and for success"),
        ({"dead_man": -1}, "dead_man of at least 0, got -1"),
    ],
)
def test_a_number_of_a_pad_means_one_thing(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^correction\.gamepad: expected .*{message}"):
        GamepadConfig(**wrong)
    with pytest.raises(ValueError, match="7 for gripper and for stop"):
        Buttons(gripper=7, stop=7)


def test_no_gamepad_lists_what_was_seen(pygame: ModuleType) -> None:
    with pytest.raises(DeviceError, match="seen: none"):
        GamepadTeleop(VirtualClock())
    pygame.quit()
    fitting = VirtualPad(pygame)
    with pytest.raises(
        DeviceError, match=r"expected a pad called Wheel with .*Virtual.* \(6 axes, 11 buttons\)"
    ):
        GamepadTeleop(VirtualClock(), GamepadConfig(name="Wheel"))
    GamepadTeleop(VirtualClock(), GamepadConfig(name="virtual")).close()
    fitting.detach()
    wheel = VirtualPad(pygame, axes=2, buttons=4)
    with pytest.raises(DeviceError, match=r"expected a pad with 6 axes and 8 buttons.*\(2 axes, 4 buttons\)"):
        GamepadTeleop(VirtualClock())
    wheel.detach()


def test_sticks_and_triggers_move_only_under_the_dead_man(pad: VirtualPad) -> None:
    teleop = GamepadTeleop(VirtualClock())
    pad.axis(0, 0.5)
    pad.axis(1, -1.0)
    command = teleop.read()
    assert not command.engaged and not command.delta.any()
    pad.button(5, True)
    half = (0.5 - 0.05) / 0.95
    # The triggers, not touched yet, read 0, which is not half pressed.
    np.testing.assert_allclose(teleop.read().delta, [1.0, -half, 0, 0, 0, 0], atol=1e-3)
    for axis, value in ((0, 0.04), (1, 0.0), (2, -1.0), (5, 0.0001), (3, -1.0), (4, 1.0)):
        pad.axis(axis, value)
    pad.hat_right(True)
    np.testing.assert_allclose(teleop.read().delta, [0, 0, half, 1.0, -1.0, 1.0], atol=1e-3)
    pad.axis(5, -1.0)
    pad.axis(2, 1.0)
    assert teleop.read().delta[2] == pytest.approx(-1.0, abs=1e-3)


def test_a_pad_with_other_numbers(pad: VirtualPad) -> None:
    config = GamepadConfig(
        right_x=2,
        right_y=3,
        left_trigger=4,
        dead_man=10,
        buttons=Buttons(gripper=9, success=0, failure=1, stop=6),
    )
    teleop = GamepadTeleop(VirtualClock(), config)
    for button in (10, 9):
        pad.button(button, True)
    for axis, value in ((1, -1.0), (2, 1.0), (4, 1.0), (5, -1.0)):
        pad.axis(axis, value)
    command = teleop.read()
    np.testing.assert_allclose(command.delta, [1, 0, -1, 0, 0, -1], atol=1e-3)
    assert command.engaged and command.gripper == -1.0 and command.buttons == (9, 10)
    np.testing.assert_allclose(command.axes, [0, -1, 1, 0, 1, -1], atol=1e-3)
    for button in (2, 5, 6, 7):  # discard and what starts, leads and stops on another pad
        pad.button(button, True)
        pad.button(button, False)
    command = teleop.read()
    assert command.events == (TeleopEvent.STOP,) and command.buttons == (2, 5, 6, 7, 9, 10)
    pad.detach()
    command = teleop.read()
    assert command.axes == () and command.buttons == () and not command.delta.any()
    pad.attach()


def test_pad_buttons_are_events_and_taps_are_not_lost(pad: VirtualPad) -> None:
    clock = VirtualClock()
    teleop = GamepadTeleop(clock)
    for number in (0, 1, 2, 7):
        pad.button(number, True)
        pad.button(number, False)
    command = teleop.read()
    assert command.events == (
        TeleopEvent.SUCCESS,
        TeleopEvent.FAILURE,
        TeleopEvent.DISCARD,
        TeleopEvent.STOP,
    )
    assert not command.engaged and not teleop.read().events
    for number in (5, 4):
        pad.button(number, True)
        pad.button(number, False)
    command = teleop.read()
    assert command.engaged and command.gripper == -1.0
    pad.button(0, True)
    pad.button(7, True)
    teleop.reset()
    command = teleop.read()
    assert command.events == (TeleopEvent.STOP,) and not command.engaged


def test_an_unplugged_pad_is_silent_and_comes_back(pad: VirtualPad) -> None:
    clock = VirtualClock()
    teleop = GamepadTeleop(clock)
    pad.axis(1, -1.0)
    pad.button(5, True)
    assert teleop.read().engaged
    pad.detach()
    for _ in range(3):
        clock.advance(0.1)
        command = teleop.read()
        assert not command.delta.any()
    assert not command.engaged and command.age == pytest.approx(0.3)
    pad.attach()
    pad.axis(1, -1.0)
    pad.button(5, True)
    command = teleop.read()
    assert command.engaged and command.delta[0] > 0.99 and command.age == 0.0
    teleop.close()
