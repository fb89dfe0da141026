"""Correction devices by name, scripted or held in a hand, and the window in which a person sees the robot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rl.config import CorrectionKind
from robot.arm_env import ArmEnv
from robot.factory import make_corrector
from robot.interfaces import TeleopSource
from robot.types import Observation

OnStep = Callable[[Observation, dict[str, Any]], None]


def make_teleop(kind: CorrectionKind, env: ArmEnv, rng: np.random.Generator) -> TeleopSource | None:
    """The device of this kind, None for NONE; raises DeviceError where it is not there. `rng` drives a scripted one."""
    match kind:
        case CorrectionKind.NONE:
            return None
        case CorrectionKind.SCRIPTED:
            return make_corrector(env, rng)
        case CorrectionKind.KEYBOARD:
            from robot.teleop.keyboard import KeyboardTeleop

            return KeyboardTeleop(env.clock)
        case CorrectionKind.GAMEPAD:
            from robot.teleop.gamepad import GamepadTeleop

            return GamepadTeleop(env.clock)
        case CorrectionKind.SPACEMOUSE:
            from robot.teleop.keyboard import WithVerdictKeys
            from robot.teleop.spacemouse import SpaceMouseTeleop

            return WithVerdictKeys(SpaceMouseTeleop(env.clock))


def make_window(kind: CorrectionKind) -> OnStep:
    """Shows each step to a person who corrects by hand: the views, who is in charge, the counters."""
    if not kind.by_hand:
        return lambda _observation, _info: None
    from robot.teleop.viewer import Viewer

    viewer = Viewer()
    counts = {"step": 0, "episode": 0, "successes": 0}

    def show(observation: Observation, info: dict[str, Any]) -> None:
        begins = "action" not in info  # the info of a reset
        counts["episode"] += begins
        counts["step"] = 0 if begins else counts["step"] + 1
        counts["successes"] += bool(info.get("success"))
        viewer.show(
            observation.images,
            intervened=bool(info.get("intervened")),
            success=info.get("success"),
            **counts,
        )

    return show
