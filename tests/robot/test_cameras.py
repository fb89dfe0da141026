"""What is not of the vendor's library: capture times, bounded recovery, crops, the configuration of views."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from robot.cameras.config import CameraConfig, check_cameras
from robot.cameras.device import CameraDevice, RawFrame, StreamFacts
from robot.cameras.device_clock import DeviceClock
from robot.cameras.repetition import Repetition
from robot.cameras.view import cropped
from robot.clock import VirtualClock, WallClock
from robot.factory import RobotConfig
from robot.interfaces import DeviceError, Frame, RobotFault
from robot.types import Image
from robot.views import Views

pytestmark = pytest.mark.wall_clock

CLOCK = WallClock()


def test_an_image_that_waited_shows_as_older() -> None:
    times = DeviceClock()
    assert times.latency is None
    for k in range(10):
        assert times.captured(1000.0 + k / 30, 5.0 + k / 30, 0.04) == pytest.approx(5.0 + k / 30 - 0.04)
    queued = times.captured(1000.0 + 10 / 30, 5.0 + 10 / 30 + 0.6, 0.04)  # this program slept
    assert queued == pytest.approx(5.0 + 10 / 30 - 0.04)
    assert times.latency == pytest.approx(0.04)


def test_a_clock_that_is_set_back_begins_anew_and_time_never_runs_back() -> None:
    times = DeviceClock()
    last = -np.inf
    for stamp, received in ((100.0, 1.0), (100.1, 1.1), (40.0, 1.2), (40.1, 1.3), (3600.0, 1.4)):
        captured = times.captured(stamp, received, None)
        assert captured == pytest.approx(received) and captured >= last
        last = captured
    assert times.captured(3600.1, 1.5, 0.2) >= last  # it turns out to have been late all the time


def noise(number: int) -> Image:
    return np.random.default_rng(number).integers(0, 256, (48, 64, 3), dtype=np.uint8)


class Scripted:
    """A stream whose openings go as `script` says: True works, False fails, None opens and stays silent.

    frozen: it sends one image under new stamps.
    """

    def __init__(self, *script: bool | None) -> None:
        self._script: Iterator[bool | None] = iter(script)
        self._works: bool | None = False
        self._number = 0
        self.frozen = False
        self.calls: list[str] = []

    def open(self) -> StreamFacts:
        self.calls.append("open")
        self._works = next(self._script)
        if self._works is False:
            raise DeviceError("no such camera")
        return StreamFacts("scripted", None, None, None, None)

    def wait(self, timeout: float) -> RawFrame | None:
        CLOCK.sleep_until(CLOCK.now() + 0.002)
        if not self._works:
            return None
        self._number += 1
        return RawFrame(noise(0 if self.frozen else self._number), self._number, CLOCK.now(), None)

    def reset(self) -> None:
        self.calls.append("reset")

    def close(self) -> None:
        self._works = False

    def fall_silent(self) -> None:
        self._works = None


def device(stream: Scripted, **keys: Any) -> CameraDevice:
    return CameraDevice("side", stream, CameraConfig(serial="1", warm_up=0.0, silence=0.1, **keys), CLOCK)


def test_only_a_second_reconnection_resets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robot.cameras.device.FIRST_IMAGE", 0.05)
    stream = Scripted(True, False, None, True)
    camera = device(stream)
    camera.connect()
    before = camera.newest()
    stream.fall_silent()
    give_up = CLOCK.now() + 5.0
    while camera.reconnected == 0 and CLOCK.now() < give_up:
        camera.newest()  # never blocks, never fails, shows the old time
        CLOCK.sleep_until(CLOCK.now() + 0.002)
    assert stream.calls == ["open", "open", "reset", "open", "reset", "open"]
    assert camera.newest().timestamp > before.timestamp
    camera.close()


def test_lost_after_as_many_tries_as_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Scripted(True, False, False, True)
    camera = device(stream, reconnects=2)
    camera.connect()
    stream.fall_silent()
    with pytest.raises(
        DeviceError, match=r"^camera side: lost, 2 reconnections did not help \(no such camera\)"
    ):
        while True:
            camera.newest()
    assert stream.calls == ["open", "open", "reset", "open"]
    camera.connect()  # a person has mended it
    assert camera.newest() is not None
    camera.close()
    camera.close()
    with pytest.raises(DeviceError, match="not connected"):
        camera.newest()


def test_a_camera_without_images_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robot.cameras.device.FIRST_IMAGE", 0.05)
    with pytest.raises(DeviceError, match="no image comes"):
        device(Scripted(None)).connect()


def test_repeated_frames_are_not_new(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Scripted(True)
    camera = device(stream)
    camera.connect()
    stuck = RawFrame(np.zeros((8, 8, 3), np.uint8), 99, CLOCK.now(), None)
    monkeypatch.setattr(stream, "wait", lambda timeout: stuck)
    CLOCK.sleep_until(CLOCK.now() + 0.03)
    first = camera.newest()
    CLOCK.sleep_until(CLOCK.now() + 0.03)
    assert camera.newest() is first
    camera.close()


def test_equal_images_are_frozen_once_they_have_come_for_longer_than_they_may() -> None:
    repetition, first, last = Repetition(0.1), noise(0), noise(0)
    last[17, 3, 1] ^= 1  # not among the rows that are looked at first
    told = [
        (repetition.add(image, now), repetition.count)
        for now, image in ((0.0, first), (0.05, first.copy()), (0.1, first), (0.2, last), (0.4, last.copy()))
    ]
    assert told == [(False, 0), (False, 1), (True, 2), (False, 2), (True, 3)]
    assert Repetition(0.0).add(first, 0.0) is False
    still = Repetition(math.inf)
    assert not any(still.add(first, 1e3 * k) for k in range(4)) and still.count == 3


def test_only_a_recording_may_stand_still_unless_it_is_said() -> None:
    assert CameraConfig(serial="1").may_repeat == 0.0
    assert CameraConfig(recording="side.db3").may_repeat == math.inf
    assert CameraConfig(recording="side.db3", frozen_after=0.5).may_repeat == 0.5
    assert CameraConfig(serial="1", frozen_after=math.inf).may_repeat == math.inf


def wait_until(condition: Callable[[], bool]) -> None:
    give_up = CLOCK.now() + 5.0
    while not condition():
        assert CLOCK.now() < give_up, "waited in vain"
        CLOCK.sleep_until(CLOCK.now() + 0.002)


def test_an_image_that_does_not_change_grows_old_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    stream = Scripted(True, True)
    camera = CameraDevice(
        "side", stream, CameraConfig(serial="1", warm_up=0.0, silence=0.3, reconnects=1), CLOCK
    )
    camera.connect()
    assert not camera.newest().frozen and camera.repeated == 0
    stream.frozen = True
    wait_until(lambda: camera.newest().frozen)
    stuck = camera.newest()
    wait_until(lambda: CLOCK.now() - stuck.timestamp > 0.15)
    assert camera.newest() is stuck and camera.repeated > 5  # the same object, whose age tells
    wait_until(lambda: len(stream.calls) > 1)
    stream.frozen = False  # as connecting anew has it
    wait_until(lambda: camera.reconnected == 1)
    assert not camera.newest().frozen and camera.newest().timestamp > stuck.timestamp
    camera.close()
    assert [record.getMessage() for record in caplog.records] == [
        "camera side: the image does not change for 0.3 s; reconnection 1 of 1",
        "camera side: back",
    ]


def test_a_camera_that_stays_frozen_is_lost_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robot.cameras.device.FIRST_IMAGE", 0.05)
    stream = Scripted(*[True] * 3)
    camera = device(stream, reconnects=1)
    camera.connect()
    stream.frozen = True
    with pytest.raises(DeviceError, match=r"lost, 1 reconnections did not help .*the image does not change"):
        while True:
            camera.newest()
    with pytest.raises(DeviceError, match="it starts, but the image does not change within"):
        camera.connect()


def test_a_time_in_which_an_image_may_come_again() -> None:
    stream = Scripted(True)
    camera = device(stream, frozen_after=0.1)
    camera.connect()
    stream.frozen = True
    began = CLOCK.now()
    wait_until(lambda: camera.newest().frozen)
    assert 0.1 <= CLOCK.now() - began < 1.0 and camera.newest().timestamp >= began + 0.05
    camera.close()


class Still:
    """A camera whose newest image is of time 0."""

    height = width = 8

    def __init__(self, name: str, frozen: bool) -> None:
        self.name = name
        self._frame = Frame(np.zeros((8, 8, 3), np.uint8), 0.0, frozen)

    def connect(self) -> None: ...

    def read(self) -> Frame:
        return self._frame

    def close(self) -> None: ...


def test_a_stale_view_is_named_with_its_reason_when_the_arm_holds_and_when_it_gives_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, holds = VirtualClock(), []
    clock.advance(0.4)
    cameras = [Still("side", frozen=True), Still("wrist", frozen=False)]
    views = Views(cameras, clock, lambda: holds.append(clock.now()), max_age=0.3, poll=0.1)
    with pytest.raises(RobotFault) as fault:
        views.fresh(1.0)
    assert holds == [0.4] and fault.value.name == "stale_frame"
    side, wrist = "side (1.40 s old, the image does not change)", "wrist (1.40 s old)"
    assert f"got {side}, {wrist} after waiting 1.0 s; the camera hangs" in fault.value.detail
    assert "holds for a fresh image: side (0.40 s old, the image does not change), wrist" in caplog.text
    with pytest.raises(RobotFault, match=r"wrist \(2\.40 s old\) .*cable"):
        Views(cameras[1:], clock, lambda: None, max_age=0.3, poll=0.1).fresh(1.0)


def test_a_crop_is_a_mean_over_its_pixels() -> None:
    image = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    expected = image[8:40, 16:48].reshape(8, 4, 8, 4, 3).mean((1, 3))
    np.testing.assert_allclose(cropped(image, (16, 8, 32), 8), expected, atol=1.0)  # rounded twice


def test_the_default_crop_is_the_middle() -> None:
    assert CameraConfig(serial="1").square(640, 480) == (80, 0, 480)
    assert CameraConfig(serial="1", crop=[1, 2, 30]).square(640, 480) == (1, 2, 30)


@pytest.mark.parametrize(
    "wrong",
    [
        {"fps": 10},
        {"exposure": 0},
        {"warm_up": -1.0},
        {"silence": 0.0},
        {"frozen_after": -0.1},
        {"frozen_after": math.nan},
        {"crop": [1, 2]},
        {"crop": [0, -1, 9]},
    ],
)
def test_ranges(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"robot\.cameras: expected"):
        CameraConfig(**wrong)


SIDE, WRIST = CameraConfig(serial="1"), CameraConfig(serial="2")
ZOOM = CameraConfig(device_of="wrist", crop=[0, 0, 100])


@pytest.mark.parametrize(
    ("cameras", "message"),
    [
        ({"side": SIDE}, r"none for \['wrist'\]"),
        ({"side": SIDE, "wrist": CameraConfig()}, r"wrist\.serial: expected the serial number"),
        (
            {"side": SIDE, "wrist": SIDE},
            r"1 is the device of side already; use robot\.cameras\.wrist\.device_of",
        ),
        ({"side": SIDE, "wrist": CameraConfig(device_of="other")}, "a view that has a device of its own"),
        ({"side": SIDE, "wrist": CameraConfig(device_of="wrist")}, "a view that has a device of its own"),
        ({"side": SIDE, "wrist": CameraConfig(device_of="side", fps=15)}, "set all but crop in that entry"),
        ({"side": SIDE, "wrist": CameraConfig(serial="2", crop=[600, 0, 100])}, "a square within 640x480 px"),
        ({"side": SIDE, "wrist": CameraConfig(serial="2", crop=[0, 0, 63])}, "at least robot.image_px=64"),
    ],
)
def test_a_set_of_views_that_cannot_be(cameras: dict[str, CameraConfig], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_cameras(cameras, ["side", "wrist"], 64)


def test_a_simulated_arm_has_no_cameras_to_configure() -> None:
    with pytest.raises(ValueError, match=r"robot\.cameras: robot\.kind=sim brings its own views"):
        RobotConfig(cameras={"side": SIDE})


def test_views_and_crops_of_one_device() -> None:
    check_cameras({"side": SIDE, "wrist": WRIST, "zoom": ZOOM}, ["wrist", "zoom"], 64)
    check_cameras({"wrist": WRIST, "zoom": ZOOM}, ["zoom"], 64)  # the wide view itself need not be shown
