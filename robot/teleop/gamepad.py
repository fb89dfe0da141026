"""GamepadTeleop: corrections by a two-stick gamepad through pygame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robot.interfaces import Clock, DeviceError, TeleopCommand, TeleopEvent
from robot.teleop.hands import (
    Buttons,
    Hands,
    HandsConfig,
    RawInput,
    check_numbers,
    kept_over_reset,
    opened,
)
from robot.teleop.window import load_pygame, start_display
from robot.types import Array

AXES = ("left_x", "left_y", "left_trigger", "right_x", "right_y", "right_trigger")


@dataclass(frozen=True)
class GamepadConfig:
    """Which pad, the numbers of its axes and buttons, and how its input becomes a command.

    The defaults are those of Xbox-like pads on Linux; others number theirs otherwise.
    """

    name: str | None = None  # a part of it, where several are plugged in
    left_x: int = 0  # right is +1
    left_y: int = 1  # down is +1
    left_trigger: int = 2  # released is -1, pressed +1
    right_x: int = 3
    right_y: int = 4
    right_trigger: int = 5
    dead_man: int = 5  # RB
    buttons: Buttons = field(
        default_factory=lambda: Buttons(gripper=4, success=0, failure=1, discard=2, stop=7)
    )  # LB, A, B, X, start
    hands: HandsConfig = field(default_factory=HandsConfig)

    def __post_init__(self) -> None:
        check_numbers("correction.gamepad", self.axes)
        check_numbers("correction.gamepad", {"dead_man": self.dead_man} | vars(self.buttons))

    @property
    def axes(self) -> dict[str, int]:
        """Numbers of the axes by name."""
        return {name: getattr(self, name) for name in AXES}

    @property
    def num_axes(self) -> int:
        """Axes that a pad must have."""
        return 1 + max(self.axes.values())

    @property
    def num_buttons(self) -> int:
        """Buttons that a pad must have."""
        return 1 + max([self.dead_man, *self.buttons.numbers])


class GamepadTeleop:
    """By default RB held is the dead-man, LB toggles the gripper. A: success, B: failure, X: discard, start: stop.

    Left stick: x and y; triggers: z; right stick: about z and y; D-pad left and right: about x. A pad that is
    unplugged counts as silent and is taken up again when it comes back. gripper: as in Hands. Raises DeviceError
    where pygame, a display or a fitting pad is missing. Call from the thread that created it.
    """

    def __init__(
        self, clock: Clock, config: GamepadConfig | None = None, gripper: Callable[[], float] = opened
    ) -> None:
        self._config = config = config or GamepadConfig()
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
            called = "" if config.name is None else f" called {config.name}"
            raise DeviceError(
                f"gamepad: expected a pad{called} with {config.num_axes} axes and {config.num_buttons} buttons, seen: "
                f"{', '.join(names) or 'none'}; connect one, check access to /dev/input, and that correction.gamepad "
                "has the numbers of this pad"
            )
        self._hands = Hands(f"gamepad {self._pad.get_name()}", clock, config.hands, gripper)
        self._pending: list[TeleopEvent] = []
        self._attached = True
        self._heard_at = clock.now()

    def reset(self) -> None:
        """A new episode begins: hands off; of what came in between only STOP counts."""
        self._hands.reset()
        self.stop_asked()

    def stop_asked(self) -> bool:
        """STOP was said since the last reading; nothing else counts between episodes."""
        self._pending = kept_over_reset([*self._pending, *self._poll()[1]])
        return bool(self._pending)

    def read(self) -> TeleopCommand:
        """The pad now and all that was pressed since the last reading; never blocks."""
        presses, events = self._poll()
        events = [*self._pending, *events]
        self._pending = []
        now = self._clock.now()
        if self._attached:
            self._heard_at = now
        axes, buttons = self._shown(presses)
        return self._hands.command(
            RawInput(
                delta=self._deflection(axes) if self._attached else np.zeros(6),
                dead_man=self._config.dead_man in buttons,
                gripper_presses=sum(button == self._config.buttons.gripper for button in presses),
                events=tuple(events),
                age=now - self._heard_at,
                attached=self._attached,
                axes=axes,
                buttons=buttons,
            )
        )

    def close(self) -> None:
        """Release the pad."""
        self._pad.quit()

    def _fits(self, pad: Any) -> bool:
        config = self._config
        return bool(
            (config.name or "").lower() in pad.get_name().lower()
            and pad.get_numaxes() >= config.num_axes
            and pad.get_numbuttons() >= config.num_buttons
        )

    def _shown(self, presses: Sequence[int]) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """The axes, and the buttons that are down or among `presses`; neither of a pad that is unplugged."""
        if not self._attached:
            return (), ()
        pad = self._pad
        axes = tuple(float(pad.get_axis(number)) for number in range(pad.get_numaxes()))
        down = {number for number in range(pad.get_numbuttons()) if pad.get_button(number)}
        return axes, tuple(sorted(down.union(presses)))

    def _deflection(self, axes: Sequence[float]) -> Array:
        config = self._config
        roll = float(self._pad.get_hat(0)[0]) if self._pad.get_numhats() else 0.0
        rise = _pressed(axes[config.right_trigger]) - _pressed(axes[config.left_trigger])
        away, left = -axes[config.left_y], -axes[config.left_x]
        return np.array([away, left, rise, roll, -axes[config.right_y], -axes[config.right_x]])

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
        says = self._config.buttons.events
        return presses, [says[button] for button in presses if button in says]

    def _take_up(self, index: int) -> None:
        # SDL also announces the pads that were there at the start.
        if self._attached:
            return
        pad = self._pygame.joystick.Joystick(index)
        if self._fits(pad):
            self._pad, self._attached = pad, True


def _pressed(trigger: float) -> float:
    # SDL shows exactly 0, which would be half pressed, until a trigger first moves.
    return 0.5 * (trigger + 1.0) if trigger != 0.0 else 0.0
