"""Hands: what every correction device shares: dead zone, hold-off of the dead-man, silence, gripper."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from robot.interfaces import Clock, TeleopCommand, TeleopEvent
from robot.types import Array

MAX_AGE = 0.2  # s; a device silent for longer is let go of
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HandsConfig:
    """How raw input becomes a command.

    signs: -1 turns a motion of (x, y, z, about x, about y, about z) round; [-1, -1, 1, -1, -1, 1] is for a person who
    faces the arm.
    """

    dead_zone: float = 0.05  # of full deflection; rest drift below it is no motion
    release_time: float = 0.3  # s that the dead-man must be up before the policy is back in charge
    signs: list[float] = field(default_factory=lambda: [1.0] * 6)

    def __post_init__(self) -> None:
        if not (0.0 <= self.dead_zone < 1.0 and self.release_time >= 0.0):
            raise ValueError(
                "correction.<device>.hands: expected dead_zone in [0, 1), release_time >= 0 s, got "
                f"{self.dead_zone}, {self.release_time}"
            )
        if len(self.signs) != 6 or not set(self.signs) <= {-1.0, 1.0}:
            raise ValueError(
                f"correction.<device>.hands.signs: expected six of -1 and 1, got {list(self.signs)}"
            )


@dataclass(frozen=True)
class Buttons:
    """Numbers of a device's buttons, from 0; None where it has none for that."""

    gripper: int | None = None
    success: int | None = None
    failure: int | None = None
    discard: int | None = None
    stop: int | None = None

    def __post_init__(self) -> None:
        check_numbers("correction.<device>.buttons", vars(self))

    @property
    def numbers(self) -> list[int]:
        """Of all buttons that it has."""
        return [number for number in vars(self).values() if number is not None]

    @property
    def events(self) -> dict[int, TeleopEvent]:
        """What each button says."""
        numbers = {event: getattr(self, event.value) for event in TeleopEvent}
        return {number: event for event, number in numbers.items() if number is not None}


def check_numbers(key: str, numbers: Mapping[str, int | None]) -> None:
    """Raise ValueError where one of `numbers`, by name, is negative, or two are the same; None is no number."""
    taken: dict[int, str] = {}
    for name, number in numbers.items():
        if number is None:
            continue
        if number < 0:
            raise ValueError(f"{key}: expected {name} of at least 0, got {number}")
        if number in taken:
            raise ValueError(
                f"{key}: expected each number once, got {number} for {taken[number]} and for {name}; "
                "`groundhog check-correction` shows the numbers of what is pressed and moved"
            )
        taken[number] = name


@dataclass(frozen=True, slots=True)
class RawInput:
    """What a device shows at one reading.

    delta: (6,) deflections in [-1, 1]. dead_man: held now, or pressed since the last reading.
    gripper_presses: how often the gripper key went down. events: in the order in which they came.
    age: s since the device spoke. attached: it is still plugged in. remedy: what makes it speak again, where that is
    known. axes, buttons: as in TeleopCommand.
    """

    delta: Array
    dead_man: bool
    gripper_presses: int
    events: tuple[TeleopEvent, ...]
    age: float
    attached: bool = True
    remedy: str = ""
    axes: tuple[float, ...] = ()
    buttons: tuple[int, ...] = ()


def opened() -> float:
    """The held gripper command where there is no arm."""
    return 1.0


class Hands:
    """Turns the raw input of the device called `name` into commands, by the same rules for every device.

    gripper: the held gripper command of the arm, +1 open, -1 closed, which the first press of a correction turns round.
    """

    def __init__(self, name: str, clock: Clock, config: HandsConfig, gripper: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._config = config
        self._held_gripper = gripper
        self._signs = np.array(config.signs)
        self._pressed_at = -math.inf
        self._gripper = 0.0  # what the person wants; 0 is no opinion
        self._silent = False

    def reset(self) -> None:
        """Hands off: the next episode starts with the policy in charge."""
        self._pressed_at = -math.inf
        self._gripper = 0.0

    def command(self, raw: RawInput) -> TeleopCommand:
        """The command; events are passed on whatever the state of the dead-man."""
        now = self._clock.now()
        if raw.age > MAX_AGE:
            self._warn_once(raw)
            self.reset()
            return TeleopCommand(events=raw.events, age=raw.age, axes=raw.axes, buttons=raw.buttons)
        self._silent = False
        if raw.dead_man:
            self._pressed_at = now
        engaged = now - self._pressed_at < self._config.release_time or raw.dead_man
        if not engaged:
            # An opinion of an earlier correction must not move the gripper when the next one begins.
            self._gripper = 0.0
        elif raw.gripper_presses % 2 == 1:
            self._gripper = -(self._gripper or self._held_gripper())
        delta = self._outside_dead_zone(raw.delta) if raw.dead_man else np.zeros(6)
        return TeleopCommand(delta, self._gripper, engaged, raw.events, raw.age, raw.axes, raw.buttons)

    def _outside_dead_zone(self, delta: Array) -> Array:
        # Rescaled, so that motion begins at zero at the edge of the zone and full deflection stays full.
        size = np.maximum(np.abs(delta) - self._config.dead_zone, 0.0) / (1.0 - self._config.dead_zone)
        return self._signs * np.sign(delta) * np.minimum(size, 1.0)

    def _warn_once(self, raw: RawInput) -> None:
        if not self._silent:
            what = "silent" if raw.attached else "unplugged"
            _log.warning(
                "%s has been %s for %.2f s: the policy is in charge until it is back%s",
                self._name,
                what,
                raw.age,
                raw.remedy and f"; {raw.remedy}",
            )
        self._silent = True


def kept_over_reset(events: Iterable[TeleopEvent]) -> list[TeleopEvent]:
    """Of the events that came between episodes those that still count: a verdict was on the last episode."""
    return [event for event in events if event is TeleopEvent.STOP]
