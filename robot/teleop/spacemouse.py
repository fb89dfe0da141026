"""SpaceMouseTeleop: corrections by the six-axis puck of a 3Dconnexion device; moving it takes over."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

import numpy as np

from robot.clock import WallClock
from robot.interfaces import Clock, DeviceError, TeleopCommand, TeleopEvent
from robot.periodic import PeriodicThread
from robot.teleop.hands import Buttons, Hands, HandsConfig, RawInput, kept_over_reset, opened
from robot.teleop.hid import HidDevice, open_spacemouse
from robot.teleop.puck import BUTTONS, MODELS, PuckState
from robot.types import Array

POLL_PERIOD = 0.005  # s; the device speaks every 8 to 16 ms while it is moved
REOPEN_PERIOD = 1.0  # s between two looks for an unplugged device
REPORT_BYTES = 64
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpaceMouseConfig:
    """Which device, which button does what, and how its motion becomes a command."""

    product: str | None = (
        None  # of several that are plugged in, as lsusb shows it behind the colon, such as c635
    )
    buttons: Buttons = field(default_factory=lambda: Buttons(gripper=0, success=1))  # left, right
    engage_time: float = 0.05  # s of motion before a person is in charge; a knock at the table is shorter
    # A hand that rests on the puck presses it a little.
    hands: HandsConfig = field(default_factory=lambda: HandsConfig(dead_zone=0.1))

    def __post_init__(self) -> None:
        if not self.engage_time >= 0.0:
            raise ValueError(f"correction.spacemouse.engage_time: expected >= 0 s, got {self.engage_time}")
        known = sorted(f"{product:04x}" for _, product in MODELS)
        if self.product is not None and self.product.lower() not in known:
            raise ValueError(
                f"correction.spacemouse.product: expected one of {', '.join(known)}, got {self.product}"
            )


class SpaceMouseTeleop:
    """Moving the puck beyond the dead zone is the dead-man; by default the left button: gripper, the right: success.

    Away, left and up, seen by a person who looks along base x, are +x, +y and +z. A thread takes every report in, so
    that the newest counts however long the control loop is busy. A puck at rest says nothing; one that falls silent
    while it is deflected, or is unplugged, moves nothing, and is taken up again when it comes back. Raises DeviceError
    where hidapi, the device or the right to open it is missing. gripper: as in Hands.
    open_device: gives the name and the open device.
    """

    def __init__(
        self,
        clock: Clock,
        config: SpaceMouseConfig | None = None,
        gripper: Callable[[], float] = opened,
        open_device: Callable[[], tuple[str, HidDevice]] | None = None,
    ) -> None:
        self._config = config = config or SpaceMouseConfig()
        self._clock = clock
        product_id = None if config.product is None else int(config.product, 16)
        self._open = open_device or partial(open_spacemouse, product_id)
        self._lock = Lock()  # around all that the thread changes
        self._attached, self._looked_at = False, -math.inf
        self._take(*self._open())
        self._presses: list[int] = []
        self._hands = Hands(self._name, clock, config.hands, gripper)
        self._pending: list[TeleopEvent] = []
        # Reports come in real time, whatever clock they are stamped by.
        self._thread = PeriodicThread("spacemouse", self._poll, WallClock(), POLL_PERIOD)
        self._thread.start()

    def reset(self) -> None:
        """A new episode begins: hands off; of what came in between only STOP counts."""
        self._hands.reset()
        self.stop_asked()

    def stop_asked(self) -> bool:
        """STOP was said since the last reading; nothing else counts between episodes."""
        self._poll()
        self._pending = kept_over_reset([*self._pending, *self._taken()[1]])
        return bool(self._pending)

    def read(self) -> TeleopCommand:
        """The puck now and all that was pressed since the last reading; never blocks."""
        self._thread.check()
        self._poll()
        presses, events = self._taken()
        events = [*self._pending, *events]
        self._pending = []
        with self._lock:
            now = self._clock.now()
            moved = now - self._moving_since if self._attached else -math.inf
            at_rest = self._attached and self._moving_since == math.inf
            raw = RawInput(
                delta=self._deflection,
                dead_man=moved >= self._config.engage_time,
                gripper_presses=sum(button == self._config.buttons.gripper for button in presses),
                events=tuple(events),
                age=0.0 if at_rest else now - self._heard_at,
                attached=self._attached,
                buttons=tuple(sorted({*presses, *_held(self._state.buttons)})),
            )
        return self._hands.command(raw)

    def close(self) -> None:
        """Release the device; may be repeated."""
        self._thread.stop()
        with self._lock:
            if self._attached:
                self._device.close()
            self._attached, self._looked_at = False, math.inf  # and never look for it again

    def _take(self, name: str, device: HidDevice) -> None:
        self._name, self._device, self._attached = name, device, True
        self._state = PuckState.at_rest()
        self._deflection: Array = np.zeros(6)
        self._heard_at = self._clock.now()
        self._moving_since = math.inf

    def _poll(self) -> None:
        """Take in all that has arrived, or look for a device that has gone."""
        with self._lock:
            if not self._attached:
                self._look_again()
                return
            try:
                while report := self._device.read(REPORT_BYTES):
                    self._hear(report)
            except (
                OSError,
                ValueError,
            ) as error:  # hidapi's for a device that is gone, and for one it has closed
                self._device.close()
                self._attached = False
                self._looked_at = self._clock.now()
                _log.warning("%s: unplugged (%s); it is taken up again when it is back", self._name, error)

    def _hear(self, report: Sequence[int]) -> None:
        state = self._state.after(report)
        if state is None:
            return
        pressed = state.buttons & ~self._state.buttons
        self._presses += _held(pressed)
        if report[0] != BUTTONS:
            self._heard_at = self._clock.now()
        self._state = state
        self._deflection = state.deflection()
        moving = float(np.abs(self._deflection).max()) > self._config.hands.dead_zone
        self._moving_since = min(self._moving_since, self._clock.now()) if moving else math.inf

    def _look_again(self) -> None:
        now = self._clock.now()
        if now - self._looked_at < REOPEN_PERIOD:
            return
        self._looked_at = now
        try:
            self._take(*self._open())
        except DeviceError:
            return
        _log.warning("%s: back", self._name)

    def _taken(self) -> tuple[list[int], list[TeleopEvent]]:
        """Buttons pressed and events since the last call."""
        with self._lock:
            presses, self._presses = self._presses, []
        says = self._config.buttons.events
        return presses, [says[button] for button in presses if button in says]


def _held(bits: int) -> list[int]:
    return [button for button in range(32) if bits >> button & 1]
