"""Correction devices: scripted keys and buttons give exact commands, step by step; no display, no device."""

import logging
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from robot.clock import VirtualClock
from robot.interfaces import DeviceError, TeleopCommand, TeleopEvent
from robot.teleop.gamepad import GamepadConfig, GamepadTeleop
from robot.teleop.hands import Buttons, Hands, HandsConfig, RawInput
from robot.teleop.keyboard import KeyboardConfig, KeyboardTeleop
from robot.teleop.scripted import ScriptedTeleop
from robot.teleop.viewer import (
    HUMAN_COLOUR,
    POLICY_COLOUR,
    SUCCESS_COLOUR,
    WARNING_COLOUR,
    Viewer,
    ViewerConfig,
)
from robot.teleop.window import load_pygame
from tests.robot.teleop_devices import Keys, VirtualPad


@pytest.fixture
def pygame(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")
    module: ModuleType = load_pygame()
    yield module
    module.quit()


def raw(dead_man: bool = True, presses: int = 0, age: float = 0.0, **axes: float) -> RawInput:
    delta = np.array([axes.get(name, 0.0) for name in ("x", "y", "z", "rx", "ry", "rz")])
    return RawInput(delta, dead_man, presses, (), age)


# What all devices share


def test_dead_zone_is_still_and_full_deflection_stays_full() -> None:
    hands = Hands("test", VirtualClock(), HandsConfig())
    delta = hands.command(raw(x=0.05, y=-0.04, z=1.0, rx=-1.0, ry=0.525)).delta
    np.testing.assert_allclose(delta, [0.0, 0.0, 1.0, -1.0, 0.5, 0.0], atol=1e-12)


def test_release_must_last_before_the_policy_is_back() -> None:
    clock = VirtualClock()
    hands = Hands("test", clock, HandsConfig(release_time=0.3))
    told = []
    for dead_man in (False, True, False, False, True, False, False, False, False):
        command = hands.command(raw(dead_man=dead_man, x=1.0))
        told.append((command.engaged, command.delta[0]))
        clock.advance(0.11)
    # Up for 0.11 and 0.22 s: still a person's; from 0.33 s on the policy's. No motion while it is up.
    assert told == [
        (False, 0.0),
        (True, 1.0),
        (True, 0.0),
        (True, 0.0),
        (True, 1.0),
        (True, 0.0),
        (True, 0.0),
        (False, 0.0),
        (False, 0.0),
    ]


def test_gripper_toggles_and_its_opinion_ends_with_the_correction() -> None:
    clock = VirtualClock()
    hands = Hands("test", clock, HandsConfig(release_time=0.1))
    told = []
    for dead_man, presses in ((True, 0), (True, 1), (True, 0), (True, 2), (False, 0), (True, 0), (True, 1)):
        told.append(hands.command(raw(dead_man=dead_man, presses=presses)).gripper)
        clock.advance(0.2)
    assert told == [0.0, -1.0, -1.0, -1.0, 0.0, 0.0, 1.0]


def test_a_silent_device_is_let_go_of_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    hands = Hands("pad", VirtualClock(), HandsConfig())
    assert hands.command(raw(x=1.0, age=0.2)).engaged
    with caplog.at_level(logging.WARNING):
        for age in (0.21, 0.3, 0.4):
            command = hands.command(raw(x=1.0, age=age))
            assert not command.engaged and not command.delta.any() and command.age == age
        assert hands.command(raw(x=1.0)).engaged
        assert len(caplog.records) == 1 and "pad has been silent for 0.21 s" in caplog.text
        hands.command(raw(age=1.0))
    assert len(caplog.records) == 2


def test_scripted_plays_its_commands_over_episodes_then_lets_go() -> None:
    script = [TeleopCommand(engaged=True), TeleopCommand(events=(TeleopEvent.SUCCESS,))]
    teleop = ScriptedTeleop(script)
    teleop.reset()
    assert teleop.read() is script[0]
    teleop.reset()
    assert teleop.read() is script[1]
    assert not teleop.read().engaged and not teleop.read().events
    teleop.close()


@pytest.mark.parametrize(
    "wrong", [{"dead_zone": 1.0}, {"release_time": -0.1}, {"signs": [1.0] * 5}, {"signs": [0.5] * 6}]
)
def test_bad_configuration_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^correction\.<device>\.hands.*: expected"):
        HandsConfig(**wrong)
    with pytest.raises(ValueError, match=r"correction\.keyboard\.deflection"):
        KeyboardConfig(deflection=1.5)


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


def test_a_motion_can_be_turned_round() -> None:
    hands = Hands(
        "test", VirtualClock(), HandsConfig(dead_zone=0.0, signs=[-1.0, -1.0, 1.0, -1.0, -1.0, 1.0])
    )
    delta = hands.command(raw(x=0.5, y=-1.0, z=0.25, rx=1.0)).delta
    assert delta.tolist() == [-0.5, 1.0, 0.25, -1.0, 0.0, 0.0]


# Keyboard


@pytest.fixture
def keyboard(
    pygame: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> tuple[KeyboardTeleop, Keys, VirtualClock]:
    clock = VirtualClock()
    teleop = KeyboardTeleop(clock)
    return teleop, Keys(pygame, monkeypatch), clock


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


# Gamepad


@pytest.fixture
def pad(pygame: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualPad]:
    monkeypatch.setenv("SDL_JOYSTICK_ALLOW_BACKGROUND_EVENTS", "1")
    device = VirtualPad(pygame)
    yield device
    device.detach()


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


# Viewer


def test_viewer_shows_the_views_and_who_is_in_charge(pygame: ModuleType) -> None:
    viewer = Viewer(ViewerConfig(view_height=96, banner_height=32, footer_height=24))
    wrist = np.zeros((32, 32, 3), dtype=np.uint8)
    wrist[16:, :, 0] = 250
    side = np.full((24, 32, 3), (0, 0, 240), dtype=np.uint8)
    images = {"wrist": wrist, "side": side}
    viewer.show(images, intervened=False)
    frame = viewer.frame()
    assert frame.shape == (32 + 96 + 24, 96 + 128, 3) and frame.dtype == np.uint8
    assert tuple(frame[2, -2]) == POLICY_COLOUR
    assert tuple(frame[32 + 90, 90]) == (250, 0, 0)
    assert tuple(frame[32 + 90, 200]) == (0, 0, 240)
    viewer.show(images, intervened=True)
    human = viewer.frame()
    assert tuple(human[2, -2]) == HUMAN_COLOUR
    viewer.show(images, intervened=True, success=True, counters="step 7   episode 3   successes 2")
    assert tuple(viewer.frame()[2, -2]) == SUCCESS_COLOUR
    assert (viewer.frame()[-24:] != human[-24:]).any()  # the counters
    viewer.show(images, intervened=False, warning="DEVICE SILENT")
    assert tuple(viewer.frame()[2, -2]) == WARNING_COLOUR
    viewer.close()


def test_viewer_leaves_the_keys_to_the_keyboard(
    keyboard: tuple[KeyboardTeleop, Keys, VirtualClock], pygame: ModuleType
) -> None:
    teleop, keys, _ = keyboard
    viewer = Viewer()
    keys.tap("return")
    viewer.show({"wrist": np.zeros((8, 8, 3), dtype=np.uint8)}, intervened=False)
    assert teleop.read().events == (TeleopEvent.SUCCESS,)
