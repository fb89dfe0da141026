"""Devices by name, and what the person sees: mode, rates, warning."""

from __future__ import annotations

import numpy as np
import pytest

from rl import corrections
from rl.corrections import Rates, make_teleop, make_window
from rl.schemas import CorrectionConfig, CorrectionKind
from robot.factory import ObsKind, RobotConfig, make_robot_env
from robot.interfaces import DeviceError, TeleopCommand
from robot.teleop.keyboard import WithVerdictKeys
from robot.teleop.scripted import ScriptedTeleop
from robot.wrappers import HumanIntervention
from tests.robot.teleop_devices import Puck


def test_every_kind_is_made_or_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = make_robot_env(RobotConfig(obs=ObsKind.STATE))
    rng = np.random.default_rng(0)
    for kind in CorrectionKind:
        try:
            device = make_teleop(CorrectionConfig(kind), env, rng)
        except DeviceError as error:
            assert kind in (CorrectionKind.GAMEPAD, CorrectionKind.SPACEMOUSE) and kind.value in str(error)
        else:
            assert (device is None) == (kind is CorrectionKind.NONE)
            if device is not None:
                device.close()
    env.close()


def test_the_spacemouse_comes_with_the_keyboards_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    puck = Puck()
    monkeypatch.setattr("robot.teleop.spacemouse.open_spacemouse", lambda _product: ("spacemouse", puck))
    env = make_robot_env(RobotConfig(obs=ObsKind.STATE))
    device = make_teleop(CorrectionConfig(CorrectionKind.SPACEMOUSE), env, np.random.default_rng(0))
    assert isinstance(device, WithVerdictKeys) and not device.read().engaged
    assert env.gripper_command == -1.0  # press keeps it closed, so that the first press opens
    for _ in range(2):
        puck.axes(0, -350, 0, 0, 0, 0)
        puck.buttons(0)
        puck.buttons()
        command = device.read()
        env.clock.sleep_until(env.clock.now() + 0.1)
    assert command.engaged and command.gripper == 1.0
    device.close()
    assert puck.closes == 1
    env.close()


@pytest.mark.parametrize(
    ("kind", "warning"),
    [(CorrectionKind.GAMEPAD, "DEVICE SILENT"), (CorrectionKind.KEYBOARD, "CLICK THIS WINDOW")],
)
def test_the_window_shows_who_leads_the_rates_and_a_silent_device(
    kind: CorrectionKind, warning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[bool, str, str]] = []

    class Screen:
        def show(self, images, *, intervened, success, warning, counters):  # type: ignore[no-untyped-def]
            shown.append((intervened, warning, counters))

    monkeypatch.setattr(corrections, "Viewer", Screen)
    hand = TeleopCommand(delta=np.array([0, 0.2, 0, 0, 0, 0]), engaged=True)
    script = [TeleopCommand(), hand, hand, TeleopCommand(age=0.5)]
    env = HumanIntervention(make_robot_env(RobotConfig(obs=ObsKind.STATE)), ScriptedTeleop(script))
    show = make_window(kind)
    _, info = env.reset(seed=0)
    observation = env.unwrapped.robot.observe()
    show(observation, info)
    for _ in script:
        *_, info = env.step(np.zeros(7, np.float32))
        show(observation, info)
    assert [(led, said) for led, said, _ in shown[1:]] == [
        (False, ""),
        (True, ""),
        (True, ""),
        (False, warning),
    ]
    assert shown[-1][2] == "step 4   episode 1   successes 0   by hand 50%   10.0 Hz"
    env.close()


def test_rates_are_of_the_last_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corrections, "WINDOW", 4)
    rates = Rates()
    for step in range(8):
        rates.count({"action": 0, "success": step == 7, "intervened": step >= 4, "period": 0.2})
    assert str(rates) == "step 8   episode 0   successes 1   by hand 100%   5.0 Hz"


def test_nobody_needs_a_window_where_nobody_steers() -> None:
    make_window(CorrectionKind.SCRIPTED)(None, {})  # type: ignore[arg-type]
