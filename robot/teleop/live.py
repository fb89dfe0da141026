"""Shows what a correction device says, live, before an arm is told any of it.

    python -m robot.teleop.live gamepad|spacemouse|keyboard [--seconds 30]

Move every axis, press every button. A device that says nothing in that time is refused, with exit code 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from robot.clock import WallClock
from robot.interfaces import Clock, DeviceError, TeleopCommand, TeleopSource
from robot.teleop.gamepad import GamepadTeleop
from robot.teleop.keyboard import KeyboardTeleop
from robot.teleop.spacemouse import SpaceMouseTeleop

PERIOD = 0.1  # s
DEVICES: dict[str, Callable[[Clock], TeleopSource]] = {
    "gamepad": GamepadTeleop,
    "keyboard": KeyboardTeleop,
    "spacemouse": SpaceMouseTeleop,
}


def describe(command: TeleopCommand) -> str:
    """One line: who would be in charge, the motion, the gripper, the events, the age."""
    who = "HUMAN " if command.engaged else "policy"
    motion = " ".join(f"{value:+.2f}" for value in command.delta)
    gripper = {1.0: "open", -1.0: "close"}.get(command.gripper, "-")
    events = " ".join(event.name for event in command.events) or "-"
    return f"{who}  x y z rx ry rz {motion}  gripper {gripper:5}  events {events}  age {command.age:.2f} s"


def watch(device: TeleopSource, clock: Clock, seconds: float, say: Callable[[str], None]) -> bool:
    """Say every change for `seconds`; True if the device moved or said anything."""
    heard, last = False, ""
    due = clock.now()
    for _ in range(round(seconds / PERIOD)):
        command = device.read()
        heard = heard or command.engaged or bool(command.events)
        line = describe(command)
        if line != last:
            say(line)
        last, due = line, due + PERIOD
        clock.sleep_until(due)
    return heard


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("device", choices=sorted(DEVICES))
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args(argv)
    clock = WallClock()
    try:
        device = DEVICES[options.device](clock)
    except DeviceError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        if watch(device, clock, options.seconds, lambda line: print(line, flush=True)):
            return 0
    finally:
        device.close()
    print(
        f"{options.device}: nobody was in charge and nothing was pressed for {options.seconds:.0f} s. Was the dead-man "
        "held (gamepad: RB, keyboard: space)? A SpaceMouse that stays at zero: another cable, or Bluetooth; stop "
        "spacenavd and 3DxWare",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
