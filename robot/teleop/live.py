"""What a correction device says, live, line by line, before an arm is told any of it."""

from __future__ import annotations

from collections.abc import Callable

from robot.interfaces import Clock, TeleopCommand, TeleopSource
from robot.teleop.hands import MAX_AGE

PERIOD = 0.1  # s
SILENT = (
    "hold its dead-man (gamepad: RB, keyboard: space, with its window in front) and move it; a SpaceMouse that stays "
    "at zero: another cable, or Bluetooth; stop spacenavd and 3DxWare"
)


def describe(command: TeleopCommand) -> str:
    """Who would be in charge, motion, gripper, events, silence; the axes and buttons of the device itself."""
    who = "HUMAN " if command.engaged else "policy"
    motion = " ".join(f"{value:+.2f}" for value in command.delta)
    gripper = {1.0: "open", -1.0: "close"}.get(command.gripper, "-")
    events = " ".join(event.name for event in command.events) or "-"
    said = f"{who}  x y z rx ry rz {motion}  gripper {gripper:5}  events {events}"
    said += "  SILENT" if command.age > MAX_AGE else ""
    axes = " ".join(f"{number}:{value:+.1f}" for number, value in enumerate(command.axes))
    buttons = " ".join(map(str, command.buttons))
    return said + (f"  axes {axes}" if axes else "") + (f"  buttons {buttons}" if buttons else "")


def watch(device: TeleopSource, clock: Clock, seconds: float, say: Callable[[str], None]) -> bool:
    """Say every change for `seconds`, then close the device; True if it moved or said anything."""
    say(f"move every axis, press every button, for {seconds:.0f} s")
    heard, last = False, ""
    due = clock.now()
    try:
        for _ in range(round(seconds / PERIOD)):
            command = device.read()
            heard = heard or command.engaged or bool(command.events)
            line = describe(command)
            if line != last:
                say(line)
            last, due = line, due + PERIOD
            clock.sleep_until(due)
    finally:
        device.close()
    return heard
