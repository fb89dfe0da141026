"""Correction devices without hardware: pretended keys, a joystick inside SDL, a SpaceMouse that speaks HID.

A puppet works one of them as a hand would, so that one suite can test them all.
"""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol

import pytest

from robot.clock import VirtualClock
from robot.interfaces import TeleopEvent, TeleopSource
from robot.teleop.gamepad import GamepadTeleop
from robot.teleop.keyboard import EVENT_KEYS, KeyboardTeleop, WithVerdictKeys
from robot.teleop.puck import BUTTONS, ROTATION, TRANSLATION
from robot.teleop.spacemouse import SpaceMouseTeleop


class Keys:
    """A pretended keyboard: keys held now, key-down events in pygame's queue, focus of the window."""

    def __init__(self, pygame: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pygame = pygame
        self.held: set[str] = set()
        self.focused = True
        monkeypatch.setattr(pygame.key, "get_pressed", lambda: self)
        monkeypatch.setattr(pygame.key, "get_focused", lambda: self.focused)

    def __getitem__(self, code: int) -> bool:
        return self._pygame.key.name(code) in self.held

    def tap(self, *names: str) -> None:
        for name in names:
            code = self._pygame.key.key_code(name)
            self._pygame.event.post(self._pygame.event.Event(self._pygame.KEYDOWN, key=code))

    def hold(self, *names: str) -> None:
        self.tap(*(set(names) - self.held))
        self.held = set(names)


class VirtualPad:
    """A joystick that exists only inside SDL."""

    def __init__(self, pygame: ModuleType, axes: int = 6, buttons: int = 11) -> None:
        library = next((Path(pygame.__file__).parents[1] / "pygame.libs").glob("libSDL2-2*"), None)
        if library is None:
            pytest.skip("this pygame does not bundle SDL2")
        self._sdl = ctypes.CDLL(str(library))
        self._sdl.SDL_JoystickOpen.restype = ctypes.c_void_p
        self._sdl.SDL_JoystickSetVirtualAxis.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int16]
        self._sdl.SDL_JoystickSetVirtualButton.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint8]
        self._sdl.SDL_JoystickSetVirtualHat.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint8]
        pygame.display.init()
        pygame.joystick.init()
        self._pump = pygame.event.pump
        self._size = (axes, buttons)
        self.attach()

    def attach(self) -> None:
        axes, buttons = self._size
        self._index = self._sdl.SDL_JoystickAttachVirtual(1, axes, buttons, 1)
        self._handle = self._sdl.SDL_JoystickOpen(self._index)
        for number in range(axes):
            self.axis(number, 0.0)  # SDL starts its virtual triggers elsewhere

    def detach(self) -> None:
        self._sdl.SDL_JoystickDetachVirtual(self._index)

    def axis(self, number: int, value: float) -> None:
        self._sdl.SDL_JoystickSetVirtualAxis(self._handle, number, round(value * 32767))

    def button(self, number: int, down: bool) -> None:
        self._sdl.SDL_JoystickSetVirtualButton(self._handle, number, down)
        self._pump()  # SDL compares the states at each pump; a tap is two

    def hat_right(self, down: bool) -> None:
        self._sdl.SDL_JoystickSetVirtualHat(self._handle, 0, 2 * down)


class Puck:
    """A SpaceMouse's HID device: reports wait until they are read; unplugged, it fails as hidapi does."""

    def __init__(self, six_axes: bool = True) -> None:
        self._reports: deque[bytes] = deque()
        self._six_axes = six_axes
        self.gone = False
        self.closes = 0

    def read(self, max_length: int) -> Sequence[int]:
        if self.gone:
            raise OSError("read error")
        return list(self._reports.popleft()[:max_length]) if self._reports else []

    def close(self) -> None:
        self.closes += 1

    def say(self, report: bytes) -> None:
        self._reports.append(report)

    def axes(self, *counts: int) -> None:
        """The six raw axes: right, back, down, and the turns about them."""
        if self._six_axes:
            self.say(struct.pack("<B6h", TRANSLATION, *counts))
        else:
            self.say(struct.pack("<B3h", TRANSLATION, *counts[:3]))
            self.say(struct.pack("<B3h", ROTATION, *counts[3:]))

    def buttons(self, *held: int) -> None:
        self.say(struct.pack("<BI", BUTTONS, sum(1 << button for button in held)))


class Puppet(Protocol):
    """A device and the hand on it. `full`: what a full push gives in `delta`."""

    teleop: TeleopSource
    clock: VirtualClock

    def push_away(self) -> None:
        """Take over and push fully along +x, for long enough that it counts."""

    def let_go(self) -> None: ...

    def toggle_gripper(self) -> None: ...

    def say(self, event: TeleopEvent) -> None: ...

    def unplug(self) -> None: ...


class KeyboardPuppet:
    def __init__(self, pygame: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = VirtualClock()
        self.teleop: TeleopSource = KeyboardTeleop(self.clock)
        self._keys = Keys(pygame, monkeypatch)

    def push_away(self) -> None:
        self._keys.hold("space", "w")

    def let_go(self) -> None:
        self._keys.hold()

    def toggle_gripper(self) -> None:
        self._keys.tap("g")

    def say(self, event: TeleopEvent) -> None:
        self._keys.tap(next(key for key, meaning in EVENT_KEYS.items() if meaning is event))

    def unplug(self) -> None:
        self._keys.focused = False


class GamepadPuppet:
    def __init__(self, pygame: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SDL_JOYSTICK_ALLOW_BACKGROUND_EVENTS", "1")
        self.clock = VirtualClock()
        self._pad = VirtualPad(pygame)
        self.teleop: TeleopSource = GamepadTeleop(self.clock)

    def push_away(self) -> None:
        self._pad.axis(1, -1.0)
        self._pad.button(5, True)

    def let_go(self) -> None:
        self._pad.axis(1, 0.0)
        self._pad.button(5, False)

    def toggle_gripper(self) -> None:
        self._tap(4)

    def say(self, event: TeleopEvent) -> None:
        order = (TeleopEvent.SUCCESS, TeleopEvent.FAILURE, TeleopEvent.DISCARD)
        self._tap(order.index(event) if event in order else 7)

    def unplug(self) -> None:
        self._pad.detach()

    def _tap(self, button: int) -> None:
        self._pad.button(button, True)
        self._pad.button(button, False)


class SpaceMousePuppet:
    """With the verdicts of the keyboard, as `correction.kind=spacemouse` has it."""

    def __init__(self, pygame: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = VirtualClock()
        self.puck = Puck()
        self._device = SpaceMouseTeleop(self.clock, open_device=lambda: ("spacemouse", self.puck))
        self.teleop: TeleopSource = WithVerdictKeys(self._device)
        self._keys = Keys(pygame, monkeypatch)

    def push_away(self) -> None:
        for _ in range(4):
            self.puck.axes(0, -350, 0, 0, 0, 0)
            self._device._poll()
            self.clock.advance(0.016)
        self.puck.axes(0, -350, 0, 0, 0, 0)

    def let_go(self) -> None:
        self.puck.axes(0, 0, 0, 0, 0, 0)

    def toggle_gripper(self) -> None:
        self.puck.buttons(0)
        self.puck.buttons()

    def say(self, event: TeleopEvent) -> None:
        self._keys.tap(next(key for key, meaning in EVENT_KEYS.items() if meaning is event))

    def unplug(self) -> None:
        self.puck.gone = True
