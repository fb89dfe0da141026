"""What is not of the vendor's library: capture times, bounded recovery, crops, the configuration of views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from robot.cameras.config import CameraConfig, check_cameras
from robot.cameras.device import CameraDevice, RawFrame, StreamFacts
from robot.cameras.device_clock import DeviceClock
from robot.cameras.view import cropped
from robot.clock import WallClock
from robot.factory import RobotConfig
from robot.interfaces import DeviceError

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


class Scripted:
    """A stream whose openings go as `script` says: True works, False fails, None opens and stays silent."""

    def __init__(self, *script: bool | None) -> None:
        self._script: Iterator[bool | None] = iter(script)
        self._works: bool | None = False
        self._number = 0
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
        return RawFrame(np.zeros((8, 8, 3), np.uint8), self._number, CLOCK.now(), None)

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
