"""`groundhog check-correction`: what a device says, by the numbers that are configured; exit code 1 for silence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rl import check_correction, cli
from robot.clock import VirtualClock
from robot.teleop.window import load_pygame
from tests.robot.teleop_devices import VirtualPad

PAD = ["check-correction", "correction=playstation4", "seconds=1"]


@pytest.fixture
def pad(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualPad]:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")
    monkeypatch.setattr(check_correction, "WallClock", VirtualClock)
    pygame = load_pygame()
    yield VirtualPad(pygame, buttons=16)
    pygame.quit()


def test_a_pad_speaks_by_the_numbers_of_its_file_and_of_keys_on_top(
    pad: VirtualPad, capsys: pytest.CaptureFixture[str]
) -> None:
    pad.axis(1, -1.0)
    for button in (10, 6):
        pad.button(button, True)
    assert cli.main(PAD) == 0
    shown = capsys.readouterr().out.splitlines()[1]
    assert shown.startswith("HUMAN   x y z rx ry rz +1.00 ") and "events STOP" in shown
    assert "axes 0:+0.0 1:-1.0" in shown and shown.endswith("buttons 6 10")
    assert cli.main([*PAD, "correction.gamepad.dead_man=12"]) == 1
    out, err = capsys.readouterr()
    assert "policy" in out.splitlines()[1] and "nothing was pressed for 1 s; hold its dead-man" in err


def test_what_cannot_be_watched_is_one_line(pad: VirtualPad, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        ([], "correction.kind=none: expected the device in your hand"),
        (
            ["correction=playstation4", "correction.gamepad.dead_man=20"],
            "expected a pad with 6 axes and 21 buttons",
        ),
    ):
        assert cli.main(["check-correction", *words]) == 2
        err = capsys.readouterr().err
        assert message in err and err.count("\n") == 1
