"""Correction devices by name: the scripted corrector of the simulated arm, the keyboard, the gamepad."""

from __future__ import annotations

import numpy as np

from rl.config import CorrectionKind
from robot.env import RobotEnv
from robot.factory import make_corrector
from robot.interfaces import TeleopSource


def make_teleop(kind: CorrectionKind, env: RobotEnv, seed: int) -> TeleopSource | None:
    """The device of this kind, None for NONE; raises DeviceError where it is not there."""
    match kind:
        case CorrectionKind.NONE:
            return None
        case CorrectionKind.SCRIPTED:
            return make_corrector(env, np.random.default_rng([seed, 2]))
        case CorrectionKind.KEYBOARD:
            from robot.teleop.keyboard import KeyboardTeleop

            return KeyboardTeleop(env.robot.clock)
        case CorrectionKind.GAMEPAD:
            from robot.teleop.gamepad import GamepadTeleop

            return GamepadTeleop(env.robot.clock)
