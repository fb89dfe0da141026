"""KeyboardTeleop: corrections by held keys in a pygame window; WithVerdictKeys lends its verdicts to another device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from robot.interfaces import Clock, TeleopCommand, TeleopEvent, TeleopSource
from robot.teleop.hands import Hands, HandsConfig, RawInput, kept_over_reset, opened
from robot.teleop.window import load_pygame, open_window

# Entry of the delta and the keys that move it up and down, by pygame's names of keys.
MOTION_KEYS = (
    (0, "w", "s"),  # x: away, back
    (1, "a", "d"),  # y: left, right
    (2, "r", "f"),  # z: up, down
    (3, "right", "left"),  # about x
    (4, "up", "down"),  # about y
    (5, "q", "e"),  # about z
)
DEAD_MAN_KEY = "space"
GRIPPER_KEY = "g"
EVENT_KEYS = {
    "return": TeleopEvent.SUCCESS,
    "backspace": TeleopEvent.FAILURE,
    "x": TeleopEvent.DISCARD,
    "escape": TeleopEvent.STOP,
}


class EventKeys:
    """The window and its key presses, which it takes off pygame's queue; closing the window is STOP.

    Raises DeviceError where pygame or a display is missing.
    """

    def __init__(self) -> None:
        self.pygame: Any = load_pygame()
        open_window(self.pygame, (480, 120), "Groundhog: click here, then use the keys")
        code = self.pygame.key.key_code
        self._events = {code(key): event for key, event in EVENT_KEYS.items()}

    def poll(self) -> tuple[list[int], list[TeleopEvent]]:
        """Keys pressed and events since the last poll."""
        presses: list[int] = []
        events: list[TeleopEvent] = []
        for event in self.pygame.event.get([self.pygame.KEYDOWN, self.pygame.QUIT]):
            if event.type == self.pygame.QUIT:
                events.append(TeleopEvent.STOP)
                continue
            presses.append(event.key)
            if event.key in self._events:
                events.append(self._events[event.key])
        return presses, events

    def close(self) -> None:
        """Close the window."""
        self.pygame.display.quit()


class WithVerdictKeys:
    """A device with too few buttons: the keyboard's Enter, Backspace, x and Esc join the events of `device`."""

    def __init__(self, device: TeleopSource) -> None:
        self._device = device
        self._keys = EventKeys()
        self._pending: list[TeleopEvent] = []

    def reset(self) -> None:
        """A new episode begins; of what came in between only STOP counts."""
        self._device.reset()
        self.stop_asked()

    def stop_asked(self) -> bool:
        """STOP was said by key or by the device since the last reading; nothing else counts between episodes."""
        self._pending = kept_over_reset([*self._pending, *self._keys.poll()[1]])
        return self._device.stop_asked() or bool(self._pending)

    def read(self) -> TeleopCommand:
        """The device's command, with what was said by key since the last reading; never blocks."""
        command = self._device.read()
        said = (*self._pending, *self._keys.poll()[1])
        self._pending = []
        return replace(command, events=(*command.events, *said))

    def close(self) -> None:
        """Release the device and close the window."""
        self._device.close()
        self._keys.close()


@dataclass(frozen=True)
class KeyboardConfig:
    """How strongly a held key moves the arm."""

    deflection: float = 1.0  # of the action scale, in (0, 1]
    hands: HandsConfig = field(default_factory=lambda: HandsConfig(dead_zone=0.0))  # keys do not drift

    def __post_init__(self) -> None:
        if not 0.0 < self.deflection <= 1.0:
            raise ValueError(f"correction.keyboard.deflection: expected (0, 1], got {self.deflection}")


class KeyboardTeleop:
    """Space held is the dead-man; w s a d r f move, arrows q e turn, g toggles the gripper.

    Enter: success, Backspace: failure, x: discard, Esc or closing the window: stop. Without the focus of the
    window the keyboard is silent. gripper: as in Hands. Raises DeviceError where pygame or a display is missing.
    Call from the thread that created it.
    """

    def __init__(
        self, clock: Clock, config: KeyboardConfig | None = None, gripper: Callable[[], float] = opened
    ) -> None:
        self._config = config or KeyboardConfig()
        self._clock = clock
        self._hands = Hands("keyboard", clock, self._config.hands, gripper)
        self._keys = EventKeys()
        self._pygame = self._keys.pygame
        code = self._pygame.key.key_code
        self._motion = tuple((entry, code(up), code(down)) for entry, up, down in MOTION_KEYS)
        self._dead_man, self._gripper = code(DEAD_MAN_KEY), code(GRIPPER_KEY)
        self._pending: list[TeleopEvent] = []
        self._focused_at = clock.now()

    def reset(self) -> None:
        """A new episode begins: hands off; of what came in between only STOP counts."""
        self._hands.reset()
        self.stop_asked()

    def stop_asked(self) -> bool:
        """STOP was said since the last reading; nothing else counts between episodes."""
        self._pending = kept_over_reset([*self._pending, *self._keys.poll()[1]])
        return bool(self._pending)

    def read(self) -> TeleopCommand:
        """The keys now and all that was pressed since the last reading; never blocks."""
        presses, events = self._keys.poll()
        events = [*self._pending, *events]
        self._pending = []
        held = self._pygame.key.get_pressed()

        def down(key: int) -> bool:
            return bool(held[key]) or key in presses  # a tap between two readings counts for one

        delta = np.zeros(6)
        for entry, up, back in self._motion:
            delta[entry] = self._config.deflection * (float(down(up)) - float(down(back)))
        now = self._clock.now()
        if self._pygame.key.get_focused():
            self._focused_at = now
        return self._hands.command(
            RawInput(
                delta=delta,
                dead_man=down(self._dead_man),
                gripper_presses=presses.count(self._gripper),
                events=tuple(events),
                age=now - self._focused_at,
                remedy="click its window",
            )
        )

    def close(self) -> None:
        """Close the window."""
        self._keys.close()
