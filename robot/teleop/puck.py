"""What a 3Dconnexion SpaceMouse says over HID: which devices these are, and their reports as deflections."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robot.types import Array

FULL_DEFLECTION = 350.0  # counts at either end of an axis
TRANSLATION, ROTATION, BUTTONS = 1, 2, 3  # report ids; newer devices send all six axes in report 1
THREE_AXES, SIX_AXES = 7, 13  # bytes, the id included

# (vendor, product) -> model. Those of Logitech's time have its vendor number.
MODELS = {
    (0x046D, 0xC603): "SpaceMouse Plus XT",
    (0x046D, 0xC605): "CadMan",
    (0x046D, 0xC606): "SpaceMouse Classic",
    (0x046D, 0xC621): "Spaceball 5000",
    (0x046D, 0xC623): "SpaceTraveler",
    (0x046D, 0xC625): "SpacePilot",
    (0x046D, 0xC626): "SpaceNavigator",
    (0x046D, 0xC627): "SpaceExplorer",
    (0x046D, 0xC628): "SpaceNavigator for Notebooks",
    (0x046D, 0xC629): "SpacePilot Pro",
    (0x046D, 0xC62B): "SpaceMouse Pro",
    (0x256F, 0xC62E): "SpaceMouse Wireless (cable)",
    (0x256F, 0xC62F): "SpaceMouse Wireless (receiver)",
    (0x256F, 0xC631): "SpaceMouse Pro Wireless (cable)",
    (0x256F, 0xC632): "SpaceMouse Pro Wireless (receiver)",
    (0x256F, 0xC633): "SpaceMouse Enterprise",
    (0x256F, 0xC635): "SpaceMouse Compact",
    (0x256F, 0xC636): "SpaceMouse Module",
    (0x256F, 0xC63A): "SpaceMouse Wireless (Bluetooth)",
    (0x256F, 0xC652): "Universal Receiver",
}


@dataclass(frozen=True, slots=True, eq=False)
class PuckState:
    """Raw axes right, back, down and the turns about them, (6,) counts; the buttons held, one bit each."""

    counts: Array
    buttons: int = 0

    @classmethod
    def at_rest(cls) -> PuckState:
        return cls(np.zeros(6))

    def after(self, report: Sequence[int]) -> PuckState | None:
        """The state after this report; None for one that says nothing of axes or buttons, or is cut short."""
        if not report:
            return None
        kind, body, length = report[0], bytes(report), len(report)
        if kind == TRANSLATION and length >= SIX_AXES:
            return PuckState(_axes(body[1:SIX_AXES]), self.buttons)
        if kind == TRANSLATION and length >= THREE_AXES:
            return PuckState(np.append(_axes(body[1:THREE_AXES]), self.counts[3:]), self.buttons)
        if kind == ROTATION and length >= THREE_AXES:
            return PuckState(np.append(self.counts[:3], _axes(body[1:THREE_AXES])), self.buttons)
        if kind == BUTTONS and length >= 2:
            return PuckState(self.counts, int.from_bytes(body[1:5], "little"))
        return None

    def deflection(self) -> Array:
        """(6,) in [-1, 1] along base axes, as seen by a person who looks along base x: away, left, up are positive."""
        away_left_up = [1, 0, 2, 4, 3, 5]
        return -(self.counts[away_left_up] / FULL_DEFLECTION).clip(-1.0, 1.0)


def _axes(body: bytes) -> Array:
    return np.array(struct.unpack(f"<{len(body) // 2}h", body), dtype=np.float64)
