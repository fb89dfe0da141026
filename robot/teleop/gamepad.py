"""GamepadTeleop: corrections by a two-stick gamepad through pygame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robot.interfaces import Clock, DeviceError, TeleopCommand, TeleopEvent
from robot.teleop.hands import Hands, HandsConfig, RawInput, kept_over_reset
from robot.teleop.window import load_pygame, start_display
from robot.types import Array


@dataclass(frozen=True, slots=True)
class GamepadLayout:
    """Axis and button numbers; the defaults are those of Xbox-like pads on Linux."""

    left_x: int = 0  # right is +1
    left_y: int = 1  # down is +1
    left_trigger: int = 2  # released is -1, pressed +1
    right_x: int = 3
    right_y: int = 4
    right_trigger: int = 5
    dead_man: int = 5  # RB
    gripper: int = 4  # LB
    events: Mapping[int, TeleopEvent] = field(
        default_factory=lambda: {
            0: TeleopEvent.SUCCESS,  # A
            1: TeleopEvent.FAILURE,  # B
            2: TeleopEvent.DISCARD,  # X
            7: TeleopEvent.STOP,  # start
        }
    )

    @property
    def num_axes(self) -> int:
        """Axes that a pad must have for this layout."""
        sticks = (self.left_x, self.left_y, self.right_x, self.right_y)
        return 1 + max(*sticks, self.left_trigger, self.right_trigger)

    @property
    def num_buttons(self) -> int:
        """Buttons that a pad must have for this layout."""
        return 1 + max(self.dead_man, self.gripper, *self.events)


@dataclass(frozen=True, slots=True)
class GamepadConfig:
    """Which pad, and how its input becomes a command."""

    layout: GamepadLayout = field(default_factory=GamepadLayout)
    hands: HandsConfig = field(default_factory=HandsConfig)


class GamepadTeleop:
    """RB held is the dead-man; LB toggles the gripper. A: success, B: failure, X: discard, start: stop.

    Left stick: x and y; triggers: z; right stick: about z and y; D-pad left and right: about x. A pad that is
    unplugged counts as silent and is taken up again when it comes back. Raises DeviceError where pygame, a
    display or a fitting pad is missing. Call from the thread that created it.
    """

    def __init__(self, clock: Clock, config: GamepadConfig | None = None) -> None:
        config = config or GamepadConfig()
        self._layout = config.layout
        self._clock = clock
        self._pygame: Any = load_pygame()
        start_display(self._pygame)
        self._pygame.joystick.init()
        seen = [self._pygame.joystick.Joystick(i) for i in range(self._pygame.joystick.get_count())]
        self._pad: Any = next(filter(self._fits, seen), None)
        if self._pad is None:
            names = [
                f"{pad.get_name()} ({pad.get_numaxes()} axes, {pad.get_numbuttons()} buttons)" for pad in seen
            ]
            raise DeviceError(
                f"gamepad: expected a pad with {self._layout.num_axes} axes and {self._layout.num_buttons} "
                f"buttons, seen: {', '.join(names) or 'none'}; connect one, and check access to /dev/input"
            )
        self._hands = Hands(f"gamepad {self._pad.get_name()}", clock, config.hands)
        self._pending: list[TeleopEvent] = []
        self._attached = True
        self._heard_at = clock.now()

    def reset(self) -> None:
        """A new episode begins: hands off; of what came in between only STOP counts."""
        self._hands.reset()
        self._pending = kept_over_reset([*self._pending, *self._poll()[1]])

    def read(self) -> TeleopCommand:
        """The pad now and all that was pressed since the last reading; never blocks."""
        presses, events = self._poll()
        events = [*self._pending, *events]
        self._pending = []
        now = self._clock.now()
        if self._attached:
            self._heard_at = now
        layout = self._layout
        return self._hands.command(
            RawInput(
                delta=self._deflection() if self._attached else np.zeros(6),
                dead_man=self._attached
                and (bool(self._pad.get_button(layout.dead_man)) or layout.dead_man in presses),
                gripper_presses=presses.count(layout.gripper),
                events=tuple(events),
                age=now - self._heard_at,
                attached=self._attached,
            )
        )

    def close(self) -> None:
        """Release the pad."""
        self._pad.quit()

    def _fits(self, pad: Any) -> bool:
        return bool(
            pad.get_numaxes() >= self._layout.num_axes and pad.get_numbuttons() >= self._layout.num_buttons
        )

    def _deflection(self) -> Array:
        layout, axis = self._layout, self._pad.get_axis
        roll = float(self._pad.get_hat(0)[0]) if self._pad.get_numhats() else 0.0
        rise = self._trigger(layout.right_trigger) - self._trigger(layout.left_trigger)
        return np.array(
            [
                -axis(layout.left_y),
                -axis(layout.left_x),
                rise,
                roll,
                -axis(layout.right_y),
                -axis(layout.right_x),
            ]
        )

    def _trigger(self, number: int) -> float:
        value = float(self._pad.get_axis(number))
        # SDL shows exactly 0, which would be half pressed, until a trigger first moves.
        return 0.5 * (value + 1.0) if value != 0.0 else 0.0

    def _poll(self) -> tuple[list[int], list[TeleopEvent]]:
        """Buttons pressed and events since the last poll. Each call takes them off the queue."""
        pygame = self._pygame
        presses: list[int] = []
        for event in pygame.event.get([pygame.JOYBUTTONDOWN, pygame.JOYDEVICEADDED, pygame.JOYDEVICEREMOVED]):
            if event.type == pygame.JOYDEVICEADDED:
                self._take_up(event.device_index)
            elif event.instance_id != self._pad.get_instance_id():
                continue
            elif event.type == pygame.JOYDEVICEREMOVED:
                self._attached = False
            else:
                presses.append(event.button)
        return presses, [self._layout.events[button] for button in presses if button in self._layout.events]

    def _take_up(self, index: int) -> None:
        # SDL also announces the pads that were there at the start.
        if self._attached:
            return
        pad = self._pygame.joystick.Joystick(index)
        if self._fits(pad):
            self._pad, self._attached = pad, True
