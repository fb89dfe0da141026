"""Correction devices by name, scripted or held in a hand, and the window in which a person sees the robot."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rl.config import ConfigError
from rl.schemas import CorrectionConfig, CorrectionKind
from robot.arm_env import ArmEnv
from robot.factory import make_corrector
from robot.interfaces import Clock, TeleopSource
from robot.teleop.gamepad import GamepadTeleop
from robot.teleop.hands import opened
from robot.teleop.keyboard import KeyboardTeleop, WithVerdictKeys
from robot.teleop.spacemouse import SpaceMouseTeleop
from robot.teleop.viewer import Viewer
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


def make_teleop(config: CorrectionConfig, env: ArmEnv, rng: np.random.Generator) -> TeleopSource | None:
    """The device asked for, None for NONE; raises DeviceError where it is not there. `rng` drives a scripted one."""
    match config.kind:
        case CorrectionKind.NONE:
            return None
        case CorrectionKind.SCRIPTED:
            return make_corrector(env, rng)
        case _:
            return make_device(config, env.clock, lambda: env.gripper_command)


def make_device(
    config: CorrectionConfig, clock: Clock, gripper: Callable[[], float] = opened
) -> TeleopSource:
    """The device that a hand works; raises DeviceError where it is not there, ConfigError where none is asked for.

    gripper: the held gripper command of the arm that it moves, as in Hands; without an arm, open.
    """
    match config.kind:
        case CorrectionKind.KEYBOARD:
            return KeyboardTeleop(clock, config.keyboard, gripper)
        case CorrectionKind.GAMEPAD:
            return GamepadTeleop(clock, config.gamepad, gripper)
        case CorrectionKind.SPACEMOUSE:
            return WithVerdictKeys(SpaceMouseTeleop(clock, config.spacemouse, gripper))
        case _:
            raise ConfigError(
                f"correction.kind={config.kind.value}: expected the device in your hand: keyboard, gamepad, spacemouse"
            )


def make_window(kind: CorrectionKind) -> OnStep:
    """Shows each step to a person who corrects by hand: the views, who is in charge, the rates."""
    if not kind.by_hand:
        return lambda _observation, _info: None
    viewer, rates = Viewer(), Rates()
    # Only the window in front hears keys.
    silent = "CLICK THIS WINDOW" if kind is CorrectionKind.KEYBOARD else "DEVICE SILENT"

    def show(observation: Observation, info: dict[str, Any]) -> None:
        rates.count(info)
        viewer.show(
            observation.images,
            intervened=bool(info.get("intervened")),
            success=info.get("success"),
            warning=silent if info.get("device_silent") else "",
            counters=str(rates),
        )

    return show
