"""`groundhog check-robot`: a table, and exit code 1 where something failed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl import check_robot, cli
from robot.interfaces import DeviceError, TeleopCommand
from robot.teleop.scripted import ScriptedTeleop

SHORT = ["seconds=0.3", "robot.image_px=32"]


def test_the_simulated_robot_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check-robot", *SHORT]) == 0
    out = capsys.readouterr().out
    assert "camera wrist: images" in out and "stop: hold" in out and "fail" not in out


def test_a_robot_that_cannot_be_connected_fails_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise DeviceError("camera side: no RealSense with serial number 4711 is attached; found: none")

    monkeypatch.setattr(check_robot, "make_env", missing)
    assert cli.main(["check-robot"]) == 1
    out = capsys.readouterr().out
    assert "connect" in out and "4711" in out and "fail" in out


@pytest.mark.parametrize(("moved", "code"), [(0.5, 0), (0.0, 1)])
def test_the_values_of_a_device_are_shown_and_a_silent_one_fails(
    moved: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = TeleopCommand(delta=np.array([moved, 0, 0, 0, 0, 0]), engaged=moved > 0.0)
    monkeypatch.setattr(check_robot, "make_device", lambda *_: ScriptedTeleop([said] * 50))
    asked = ["correction.kind=gamepad", "robot.clock=wall", "robot.obs=state", "motion=false"]
    assert cli.main(["check-robot", *SHORT, *asked]) == code
    out = capsys.readouterr().out
    assert ("+0.50" in out) == (code == 0) and ("silent" in out) == (code == 1)
    assert "arm: motion" not in out
