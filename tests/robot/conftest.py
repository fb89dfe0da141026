"""Fixtures of the tests of correction devices: pygame without a display, a keyboard that is played."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from robot.clock import VirtualClock
from robot.teleop.keyboard import KeyboardTeleop
from robot.teleop.window import load_pygame
from tests.robot.teleop_devices import Keys


@pytest.fixture
def pygame(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")
    module: ModuleType = load_pygame()
    yield module
    module.quit()


@pytest.fixture
def keyboard(
    pygame: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> tuple[KeyboardTeleop, Keys, VirtualClock]:
    clock = VirtualClock()
    teleop = KeyboardTeleop(clock)
    return teleop, Keys(pygame, monkeypatch), clock
