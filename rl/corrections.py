"""Correction devices by name, scripted or held in a hand, and the window in which a person sees the robot."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rl.schemas import CorrectionKind
from robot.arm_env import ArmEnv
from robot.factory import make_corrector
from robot.interfaces import TeleopSource
from robot.types import Observation

WINDOW = 250  # steps over which rates are taken, as in the actor's metrics

OnStep = Callable[[Observation, dict[str, Any]], None]


class Rates:
    """Counters of a session, and over its last steps the share led by hand and the control rate."""

    def __init__(self) -> None:
        self._step = self._episode = self._successes = 0
        self._led: deque[bool] = deque(maxlen=WINDOW)
        self._periods: deque[float] = deque(maxlen=WINDOW)

    def count(self, info: Mapping[str, Any]) -> None:
        """One step, or the beginning of an episode, by its info."""
        if "action" not in info:  # of a reset
            self._episode, self._step = self._episode + 1, 0
            return
        self._step += 1
        self._successes += bool(info["success"])
        self._led.append(bool(info["intervened"]))
        self._periods.append(float(info["period"]))

    def __str__(self) -> str:
        counters = f"step {self._step}   episode {self._episode}   successes {self._successes}"
        if not self._periods:
            return counters
        return f"{counters}   by hand {np.mean(self._led):.0%}   {1.0 / np.mean(self._periods):.1f} Hz"


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
    """Shows each step to a person who corrects by hand: the views, who is in charge, the rates."""
    if not kind.by_hand:
        return lambda _observation, _info: None
    from robot.teleop.viewer import Viewer

    viewer, rates = Viewer(), Rates()

    def show(observation: Observation, info: dict[str, Any]) -> None:
        rates.count(info)
        viewer.show(
            observation.images,
            intervened=bool(info.get("intervened")),
            success=info.get("success"),
            warning="DEVICE SILENT" if info.get("device_silent") else "",
            counters=str(rates),
        )

    return show
