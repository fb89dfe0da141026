"""SpaceMouse: raw HID reports become exact commands; what cannot be opened, is silent or gone is named."""

from __future__ import annotations

import logging
import struct
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from robot.clock import VirtualClock, WallClock
from robot.interfaces import DeviceError, TeleopCommand, TeleopEvent
from robot.teleop.hands import Buttons, HandsConfig
from robot.teleop.hid import choose, open_spacemouse
from robot.teleop.live import watch
from robot.teleop.puck import PuckState
from robot.teleop.scripted import ScriptedTeleop
from robot.teleop.spacemouse import SpaceMouseConfig, SpaceMouseTeleop
from tests.robot.teleop_devices import Puck

pytestmark = pytest.mark.wall_clock

BACKEND = "hidraw" if sys.platform == "linux" else "hid"
COMPACT = {"vendor_id": 0x256F, "product_id": 0xC635, "path": b"/dev/hidraw3", "usage_page": 1, "usage": 8}


class Rig:
    """A teleop on a pretended device, read at virtual times."""

    def __init__(self, config: SpaceMouseConfig | None = None, six_axes: bool = True) -> None:
        self.clock = VirtualClock()
        self.puck = Puck(six_axes)
        self.here = True
        self.teleop = SpaceMouseTeleop(self.clock, config, open_device=self.open)

    def open(self) -> tuple[str, Puck]:
        if not self.here:
            raise DeviceError("spacemouse: nothing there")
        return "spacemouse Compact", self.puck

    def hear(self, *counts: int, after: float = 0.016) -> None:
        """One report of the axes, taken in `after` seconds after the last."""
        self.clock.advance(after)
        self.puck.axes(*counts)
        self.teleop._poll()


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.teleop.close()


@pytest.mark.parametrize("six_axes", [True, False])
def test_every_axis_by_its_direction(six_axes: bool) -> None:
    rig = Rig(six_axes=six_axes)
    # Raw axes are right, back, down and the right-handed turns about them.
    expected = {0: (1, -1), 1: (0, -1), 2: (2, -1), 3: (4, -1), 4: (3, -1), 5: (5, -1)}
    for raw, (entry, sign) in expected.items():
        for counts, value in ((350, 1.0), (-350, -1.0), (500, 1.0)):
            for _ in range(6):
                rig.hear(*(counts * np.eye(6, dtype=int)[raw]))
            delta = rig.teleop.read().delta
            assert delta.tolist() == [sign * value * (i == entry) for i in range(6)], raw
    rig.teleop.close()


def test_the_turns_are_right_handed_about_the_base_axes() -> None:
    """The mapping of the turns is that of the translations, and a rotation, no mirror."""
    columns = [PuckState(350.0 * np.eye(6)[i]).deflection() for i in range(6)]
    matrix = np.stack(columns, axis=1)
    np.testing.assert_array_equal(matrix[:3, :3], matrix[3:, 3:])
    assert np.linalg.det(matrix[:3, :3]) == pytest.approx(1.0)


def test_signs_and_buttons_are_as_configured() -> None:
    hands = HandsConfig(dead_zone=0.1, signs=[-1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    rig = Rig(SpaceMouseConfig(buttons=Buttons(gripper=2, failure=0), hands=hands))
    for _ in range(6):
        rig.hear(0, -350, 0, 0, 0, 0)
    rig.puck.buttons(0, 1, 2)
    command = rig.teleop.read()
    assert command.delta[0] == -1.0 and command.gripper == -1.0
    assert command.events == (TeleopEvent.FAILURE,) and command.buttons == (0, 1, 2)
    rig.puck.buttons(1)
    assert rig.teleop.read().buttons == (1,)
    rig.teleop.close()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"engage_time": -1.0}, "engage_time: expected >= 0 s"),
        ({"product": "c077"}, "product: expected one of c603, .*, got c077"),
    ],
)
def test_what_a_spacemouse_cannot_be(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^correction\.spacemouse\.{message}"):
        SpaceMouseConfig(**wrong)


def test_the_product_asked_for_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    wireless = {**COMPACT, "product_id": 0xC62E, "path": b"/dev/hidraw4"}
    hid = Hid(COMPACT, wireless)
    monkeypatch.setitem(sys.modules, BACKEND, hid)
    SpaceMouseTeleop(VirtualClock(), SpaceMouseConfig(product="C62E")).close()
    assert hid.opened == [b"/dev/hidraw4"]


@pytest.mark.parametrize(
    "report", [b"", b"\x01\x00\x00", b"\x17\x64\x00\x00\x00\x00\x00", b"\x03", b"\x02\x01"]
)
def test_reports_that_say_nothing_change_nothing(report: bytes) -> None:
    assert PuckState(np.arange(6.0), buttons=2).after(report) is None


def test_a_report_of_some_axes_or_the_buttons_keeps_the_others() -> None:
    state = PuckState(np.arange(6.0), buttons=2)
    after = state.after(struct.pack("<B3h", 1, 10, 20, -30))
    assert after is not None and after.counts.tolist() == [10, 20, -30, 3, 4, 5] and after.buttons == 2
    after = after.after(struct.pack("<B3h", 2, 7, 8, 9))
    assert after is not None and after.counts.tolist() == [10, 20, -30, 7, 8, 9]
    after = after.after(b"\x03\x01\x00")
    assert after is not None and after.counts.tolist() == [10, 20, -30, 7, 8, 9] and after.buttons == 1


def test_drift_inside_the_dead_zone_is_no_intervention(rig: Rig) -> None:
    for step in range(60):
        rig.hear(*(34 * (-1) ** step for _ in range(6)))
        command = rig.teleop.read()
        assert not command.engaged and not command.delta.any()
    for _ in range(6):
        rig.hear(0, -36, 0, 0, 0, 0)
    command = rig.teleop.read()
    assert command.engaged and 0.0 < command.delta[0] < 0.01  # it begins at zero, without a jerk


def test_a_knock_at_the_table_is_no_intervention(rig: Rig) -> None:
    for counts in (0, -300, -200, 0, 0):
        rig.hear(0, counts, 0, 0, 0, 0)
        assert not rig.teleop.read().engaged
    for _ in range(3):
        rig.hear(0, -300, 0, 0, 0, 0)
        assert not rig.teleop.read().engaged
    rig.hear(0, -300, 0, 0, 0, 0, after=0.02)
    assert rig.teleop.read().engaged


def test_a_puck_at_rest_may_say_nothing(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        rig.hear(0, -350, 0, 0, 0, 0)
    rig.hear(0, 0, 0, 0, 0, 0)
    rig.clock.advance(600.0)
    command = rig.teleop.read()
    assert command.age == 0.0 and not command.engaged and not caplog.records


def test_silence_in_mid_motion_moves_nothing_and_is_said(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        rig.hear(0, -350, 0, 0, 0, 0)
    assert rig.teleop.read().engaged
    rig.puck.buttons(3)  # buttons alone do not vouch for the axes
    rig.clock.advance(0.25)
    command = rig.teleop.read()
    assert not command.engaged and not command.delta.any() and command.age == pytest.approx(0.25)
    assert "spacemouse Compact has been silent for 0.25 s: the policy is in charge" in caplog.text
    rig.hear(0, -350, 0, 0, 0, 0)
    assert rig.teleop.read().engaged


def test_unplugged_and_back(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        rig.hear(0, -350, 0, 0, 0, 0)
    assert rig.teleop.read().engaged
    rig.puck.gone, rig.here = True, False
    with caplog.at_level(logging.WARNING):
        told = [rig.teleop.read()]
        for _ in range(30):
            rig.clock.advance(0.1)
            told.append(rig.teleop.read())
    assert not any(command.delta.any() for command in told) and not told[-1].engaged
    assert "spacemouse Compact: unplugged (read error)" in caplog.text
    assert "spacemouse Compact has been unplugged for" in caplog.text
    assert rig.puck.closes == 1
    rig.puck, rig.here = Puck(), True
    rig.clock.advance(1.1)
    assert not rig.teleop.read().engaged and "spacemouse Compact: back" in caplog.text
    for _ in range(5):
        rig.hear(0, 350, 0, 0, 0, 0)
    assert rig.teleop.read().delta[0] == -1.0


def test_buttons_are_pressed_once_and_taps_are_not_lost(rig: Rig) -> None:
    rig.puck.buttons(0)
    rig.puck.buttons(0, 1)
    rig.puck.buttons(0, 1)
    rig.puck.buttons()
    rig.puck.buttons(1)
    for _ in range(5):
        rig.hear(0, -350, 0, 0, 0, 0)
    command = rig.teleop.read()
    assert command.gripper == -1.0 and command.events == (TeleopEvent.SUCCESS,) * 2
    assert rig.teleop.read().events == ()


def test_reports_are_taken_in_while_nobody_reads() -> None:
    """Else the system's small queue would keep the oldest, and a released puck would still move the arm."""
    clock, puck = WallClock(), Puck()
    teleop = SpaceMouseTeleop(clock, open_device=lambda: ("spacemouse", puck))
    for _ in range(100):
        puck.axes(0, -350, 0, 0, 0, 0)
    puck.axes(0, 0, 0, 0, 0, 0)
    give_up = clock.now() + 5.0
    while puck._reports and clock.now() < give_up:
        clock.sleep_until(clock.now() + 0.01)
    assert not puck._reports
    assert not teleop.read().engaged
    teleop.close()
    assert puck.closes == 1


# Finding and opening it


class Hid:
    """A pretended hidapi."""

    def __init__(self, *entries: dict[str, Any], refuses: bool = False) -> None:
        self.entries, self.refuses = list(entries), refuses
        self.opened: list[bytes] = []

    def enumerate(self) -> list[dict[str, Any]]:
        return self.entries

    def device(self) -> Any:
        def open_path(path: bytes) -> None:
            if self.refuses:
                raise OSError("open failed")
            self.opened.append(path)

        return SimpleNamespace(
            open_path=open_path, set_nonblocking=lambda _on: None, read=lambda _bytes: [], close=lambda: None
        )


def test_it_opens_the_interface_with_the_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard = COMPACT | {"product_id": 0xC652, "path": b"/dev/hidraw1", "usage_page": 1, "usage": 6}
    axes = keyboard | {"path": b"/dev/hidraw2", "usage": 8}
    mouse = {"vendor_id": 0x046D, "product_id": 0xC077, "path": b"/dev/hidraw0"}
    hid = Hid(mouse, keyboard, axes)
    monkeypatch.setitem(sys.modules, BACKEND, hid)
    assert open_spacemouse()[0] == "spacemouse Universal Receiver" and hid.opened == [b"/dev/hidraw2"]
    assert choose([axes, COMPACT], 0xC635) is COMPACT
    with pytest.raises(DeviceError, match="expected product c62e"):
        choose([axes, COMPACT], 0xC62E)


def test_no_device_lists_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, BACKEND, Hid({"vendor_id": 0x046D, "product_id": 0xC077}))
    with pytest.raises(
        DeviceError, match=r"3Dconnexion device, seen \(vendor:product\): 046d:c077; plug it in"
    ):
        open_spacemouse()


def test_a_device_that_may_not_be_opened_names_the_udev_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, BACKEND, Hid(COMPACT, refuses=True))
    with pytest.raises(
        DeviceError, match=r'(?s)SpaceMouse Compact.*open failed.*KERNELS=="\*:256F:\*"'
    ) as error:
        open_spacemouse()
    assert "/etc/udev/rules.d/" in str(error.value)


def test_without_hidapi_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, BACKEND, None)
    with pytest.raises(DeviceError, match=r"pip install 'groundhog\[teleop\]'"):
        SpaceMouseTeleop(VirtualClock())


def test_the_real_hidapi_finds_none_here_or_opens_one() -> None:
    pytest.importorskip(BACKEND, reason="needs hidapi: pip install -e '.[teleop]'")
    try:
        _, device = open_spacemouse()
    except DeviceError as error:
        assert "spacemouse: " in str(error)
    else:
        device.close()


# The live view


def test_live_shows_every_change_and_that_a_device_says_nothing() -> None:
    said: list[str] = []
    assert not watch(
        ScriptedTeleop([TeleopCommand(age=0.01 * k) for k in range(9)]), VirtualClock(), 2.0, said.append
    )
    assert len(said) == 2 and said[0] == "move every axis, press every button, for 2 s"
    rig = Rig()
    for _ in range(5):
        rig.hear(0, -350, 0, 0, 0, 0)
    rig.puck.buttons(1, 4)
    said.clear()
    assert watch(rig.teleop, rig.clock, 1.0, said.append)
    first, silent = said[1], said[-1]
    assert first.startswith("HUMAN") and "+1.00 +0.00" in first
    assert "SUCCESS" in first and first.endswith("buttons 1 4")
    assert silent.startswith("policy") and "SILENT" in silent
    assert rig.puck.closes == 1
