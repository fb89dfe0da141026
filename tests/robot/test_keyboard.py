"""The keyboard as a correction device: pretended keys give exact commands, step by step; no display."""

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from robot.clock import VirtualClock
from robot.interfaces import DeviceError, TeleopEvent
from robot.teleop.gamepad import GamepadTeleop
from robot.teleop.keyboard import KeyboardTeleop
from robot.teleop.viewer import Viewer
from robot.teleop.window import load_pygame
from tests.robot.teleop_devices import Keys


def test_every_motion_key(keyboard: tuple[KeyboardTeleop, Keys, VirtualClock]) -> None:
    teleop, keys, clock = keyboard
    for entry, (up, down) in enumerate(
        (("w", "s"), ("a", "d"), ("r", "f"), ("right", "left"), ("up", "down"), ("q", "e"))
    ):
        for held, value in (((up,), 1.0), ((down,), -1.0), ((up, down), 0.0)):
            keys.hold("space", *held)
            assert teleop.read().delta.tolist() == [value * (i == entry) for i in range(6)]
            clock.advance(0.1)


def test_keyboard_episode_step_by_step(keyboard: tuple[KeyboardTeleop, Keys, VirtualClock]) -> None:
    teleop, keys, clock = keyboard
    script: list[tuple[Callable[[], None], tuple[bool, float, float, tuple[TeleopEvent, ...]]]] = [
        (lambda: keys.hold(), (False, 0.0, 0.0, ())),
        (lambda: keys.hold("w"), (False, 0.0, 0.0, ())),  # no dead-man, no motion
        (lambda: keys.hold("w", "space"), (True, 1.0, 0.0, ())),
        (lambda: keys.hold("w", "space", "g"), (True, 1.0, -1.0, ())),
        (lambda: keys.hold("space", "g"), (True, 0.0, -1.0, ())),  # still down: no second toggle
        (lambda: keys.hold("space"), (True, 0.0, -1.0, ())),
        (lambda: keys.tap("g"), (True, 0.0, 1.0, ())),
        (lambda: keys.hold(), (True, 0.0, 1.0, ())),  # up for 0.1 s
        (lambda: keys.hold(), (True, 0.0, 1.0, ())),
        (lambda: keys.hold(), (False, 0.0, 0.0, ())),
        (lambda: keys.tap("space", "s"), (True, -1.0, 0.0, ())),  # down and up between two readings
        (lambda: keys.tap("return"), (True, 0.0, 0.0, (TeleopEvent.SUCCESS,))),
        (lambda: keys.tap("backspace", "x"), (True, 0.0, 0.0, (TeleopEvent.FAILURE, TeleopEvent.DISCARD))),
        (lambda: keys.tap("escape"), (False, 0.0, 0.0, (TeleopEvent.STOP,))),
        (lambda: None, (False, 0.0, 0.0, ())),
    ]
    for i, (do, expected) in enumerate(script):
        do()
        command = teleop.read()
        assert (command.engaged, command.delta[0], command.gripper, command.events) == expected, f"step {i}"
        clock.advance(0.101)


def test_events_wait_for_the_reading(
    keyboard: tuple[KeyboardTeleop, Keys, VirtualClock], pygame: ModuleType
) -> None:
    teleop, keys, clock = keyboard
    keys.tap("return")
    pygame.event.pump()
    clock.advance(5.0)
    keys.tap("escape")
    assert teleop.read().events == (TeleopEvent.SUCCESS, TeleopEvent.STOP)


def test_reset_forgets_late_verdicts_but_not_stop(
    keyboard: tuple[KeyboardTeleop, Keys, VirtualClock],
) -> None:
    teleop, keys, _ = keyboard
    keys.tap("space", "return", "escape")
    teleop.reset()
    teleop.reset()
    command = teleop.read()
    assert command.events == (TeleopEvent.STOP,) and not command.engaged
    assert not teleop.read().events


def test_closing_the_window_stops(
    keyboard: tuple[KeyboardTeleop, Keys, VirtualClock], pygame: ModuleType
) -> None:
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    assert keyboard[0].read().events == (TeleopEvent.STOP,)


def test_without_focus_the_keyboard_is_silent(
    keyboard: tuple[KeyboardTeleop, Keys, VirtualClock], caplog: pytest.LogCaptureFixture
) -> None:
    teleop, keys, clock = keyboard
    keys.hold("space", "w")
    assert teleop.read().engaged
    keys.focused = False
    clock.advance(0.25)
    command = teleop.read()
    assert not command.engaged and not command.delta.any() and command.age == pytest.approx(0.25)
    assert caplog.messages[-1].endswith("the policy is in charge until it is back; click its window")


def test_mouse_motion_does_not_fill_the_queue(
    keyboard: tuple[KeyboardTeleop, Keys, VirtualClock], pygame: ModuleType
) -> None:
    motion = pygame.event.Event(pygame.MOUSEMOTION, pos=(1, 1), rel=(1, 1), buttons=(0, 0, 0))
    pygame.event.post(motion)
    assert not pygame.event.get()


def test_missing_pygame_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    for device in (lambda: KeyboardTeleop(VirtualClock()), lambda: GamepadTeleop(VirtualClock()), Viewer):
        with pytest.raises(DeviceError, match=r"pip install 'groundhog\[teleop\]'"):
            device()


@pytest.mark.skipif(sys.platform != "linux", reason="SDL falls back to a hidden display on Linux only")
def test_missing_display_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    load_pygame().quit()
    for name in ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(DeviceError, match="no display"):
        KeyboardTeleop(VirtualClock())
