"""The cameras on the vendor's real library: recordings through its pipeline, settings on its own sensor objects."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("libusb_package", reason="needs the realsense extra: pip install -e '.[realsense]'")

from robot.cameras import realsense
from robot.cameras.config import CameraConfig
from robot.cameras.realsense import RealSenseStream
from robot.cameras.sdk import load_sdk
from robot.cameras.view import CameraView, make_views
from robot.clock import VirtualClock, WallClock
from robot.interfaces import DeviceError, RobotFault
from robot.readiness.finding import Verdict
from robot.readiness.sensors import _repetition
from robot.sim.d435i import SyntheticD435i
from robot.views import Views
from tests.robot.recorded_d435i import FPS, SIZE, make_recording

pytestmark = pytest.mark.wall_clock

rs = load_sdk()
SECONDS = 1.0
CLOCK = WallClock()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_recording(tmp_path_factory.mktemp("camera") / "side.db3", SECONDS)


def view(name: str = "side", **keys: Any) -> CameraView:
    (made,) = make_views({name: CameraConfig(**SIZE | keys)}, [name], 64, CLOCK)
    return made


def wait_until(condition: Callable[[], bool], timeout: float = 5.0) -> float:
    """Seconds until it held."""
    began = CLOCK.now()
    while not condition():
        assert CLOCK.now() < began + timeout, "waited in vain"
        CLOCK.sleep_until(CLOCK.now() + 0.005)
    return CLOCK.now() - began


def refused(**keys: Any) -> str:
    """What a camera says that cannot be connected; nothing of it may stay open."""
    camera = view(**keys)
    with pytest.raises(DeviceError) as raised:
        camera.connect()
    with pytest.raises(DeviceError, match="not connected"):
        camera.read()
    return str(raised.value)


def test_images_their_ages_and_settings_as_recorded(recording: Path) -> None:
    camera = view(recording=str(recording))
    camera.connect()
    frames, ages, began = [], [], CLOCK.now()
    while CLOCK.now() < began + 0.8:
        frame = camera.read()
        ages.append(CLOCK.now() - frame.timestamp)
        if not frames or frame is not frames[-1]:
            frames.append(frame)
        CLOCK.sleep_until(CLOCK.now() + 0.005)
    camera.close()
    assert len(frames) == pytest.approx(0.8 * FPS, abs=8)
    assert (np.diff([frame.timestamp for frame in frames]) > 0.0).all()
    # Recorded with 30 ms from capture to arrival; what is newest is at most one frame older.
    assert 0.028 < np.median(ages) < 0.03 + 2 / FPS
    assert camera.device.latency == pytest.approx(0.03, abs=2e-3)
    image = frames[-1].image
    assert image.shape == (64, 64, 3) and image[0, 0, 0] == 40 and image[0, -1, 0] == 200  # RGB, unmirrored
    facts = camera.device.facts
    assert facts is not None and (facts.exposure, facts.gain, facts.white_balance) == (156, 64, 4600)
    assert facts.usb == "3.2" and facts.device == str(recording)


def test_two_views_of_one_device_open_it_once(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_stream = RealSenseStream.open
    monkeypatch.setattr(
        RealSenseStream, "open", lambda self: (opened.append(self._name), open_stream(self))[1]
    )
    cameras = {
        "wrist": CameraConfig(recording=str(recording), crop=[0, 0, 240], **SIZE),
        "wrist_zoom": CameraConfig(device_of="wrist", crop=[200, 0, 100]),
    }
    wide, zoom = make_views(cameras, ["wrist", "wrist_zoom"], 32, CLOCK)
    for camera in (wide, zoom):
        camera.connect()
    assert opened == ["camera wrist"]
    assert wide.read().image[0, 0, 0] == 40 and zoom.read().image[0, 0, 0] == 200
    wide.close()
    with pytest.raises(DeviceError, match="not connected"):
        zoom.read()
    zoom.connect()
    assert zoom.read().image.shape == (32, 32, 3) and len(opened) == 2
    zoom.close()


def test_the_end_of_a_recording_is_a_silent_camera_that_comes_back(recording: Path) -> None:
    camera = view(recording=str(recording), repeat=False, silence=0.4)
    camera.connect()
    wait_until(lambda: CLOCK.now() - camera.read().timestamp > 0.3, timeout=SECONDS + 2)
    silent = camera.read()
    assert camera.read() is silent and camera.device.reconnected == 0  # it shows by its age, and stays
    wait_until(lambda: camera.read() is not silent)
    assert camera.device.reconnected == 1 and CLOCK.now() - camera.read().timestamp < 0.2
    camera.close()


def test_an_image_that_does_not_change_ends_the_episode_in_words(tmp_path: Path) -> None:
    played = {"recording": str(make_recording(tmp_path / "frozen.db3", 2.5, frozen=2.0)), "repeat": False}
    camera, held = view(**played, frozen_after=0.0, silence=5.0), Event()
    views = Views([camera], CLOCK, held.set, max_age=0.3, poll=0.01)
    camera.connect()
    with pytest.raises(RobotFault, match=r"stale_frame.*side \(\d\.\d+ s old, the image does not change\)"):
        while True:
            assert CLOCK.now() - views.fresh(0.5)["side"].timestamp < 0.3 + 0.05
    assert held.is_set()
    finding = _repetition(camera)
    assert finding.verdict is Verdict.FAIL and "counts as none after 0 s" in finding.measured
    camera.close()


def test_a_recording_may_stand_still(tmp_path: Path) -> None:
    played = {"recording": str(make_recording(tmp_path / "still.db3", 1.5, frozen=1.2)), "repeat": False}
    camera = view(**played)
    camera.connect()
    wait_until(lambda: camera.device.repeated > 20)
    assert CLOCK.now() - camera.read().timestamp < 0.2 and not camera.read().frozen
    finding = _repetition(camera)
    assert finding.verdict is Verdict.PASS and "equal to the one before; an image" in finding.measured
    camera.close()


def test_reconnecting_is_bounded_and_ends_in_words(recording: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db3"
    shutil.copy(recording, copy)
    camera = view(recording=str(copy), repeat=False, silence=0.2, reconnects=2)
    camera.connect()
    copy.unlink()

    def lost() -> bool:
        try:
            camera.read()
        except DeviceError as error:
            assert "2 reconnections did not help" in str(error) and "plug it in again" in str(error)
            return True
        return False

    wait_until(lost, timeout=SECONDS + 3)
    with pytest.raises(DeviceError, match="no such recording"):
        camera.connect()
    shutil.copy(recording, copy)  # as if it were plugged in again
    camera.connect()
    assert CLOCK.now() - camera.read().timestamp < 0.2
    camera.close()


def test_what_does_not_fit_is_refused_in_words(recording: Path, tmp_path: Path) -> None:
    played = {"recording": str(recording)}
    assert "recorded with 999000000001, expected serial 4711" in refused(**played, serial="4711")
    assert "no colour mode 320x240 px at 15 Hz" in refused(**played, fps=15)
    assert "320x240 at 30" in refused(**played, width=640, height=480)
    assert "white_balance 3000 was asked for, 4600 is read back" in refused(**played, white_balance=3000)
    (tmp_path / "torn.db3").write_bytes(b"x" * 1000)
    assert "no recording of a RealSense" in refused(recording=str(tmp_path / "torn.db3"))
    assert "no such recording" in refused(recording=str(tmp_path / "none.db3"))


def test_usb_2_is_refused_until_it_is_allowed(tmp_path: Path) -> None:
    slow = make_recording(tmp_path / "slow.db3", 0.5, SyntheticD435i(usb="2.1"))
    assert "connected as USB 2.1" in refused(recording=str(slow))
    camera = view(recording=str(slow), allow_usb2=True)
    camera.connect()
    assert camera.device.facts is not None and camera.device.facts.usb == "2.1"
    camera.close()


def test_a_camera_that_is_not_there_names_those_that_are() -> None:
    assert "serial number 000000000000 is attached; found: " in refused(serial="000000000000")


def test_the_list_is_one_line_each_or_says_why_it_is_empty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> list[str]:
        raise DeviceError("cameras: the package pyrealsense2 is missing")

    for listed, code in ((lambda: ["a", "b"], 0), (list, 1), (missing, 1)):
        monkeypatch.setattr(realsense, "list_attached", listed)
        assert realsense.main() == code
    shown = capsys.readouterr()
    assert shown.out.startswith("a\nb\nno RealSense is attached") and shown.err.count("\n") == 1


def sensor(read_only_white_balance: bool = False) -> Any:
    """A colour sensor of the library's own, with the options of a D435i."""
    made = rs.software_device().add_sensor("RGB Camera")
    for option, limits in (
        (rs.option.enable_auto_exposure, (0, 1, 1, 1)),
        (rs.option.exposure, (1, 10_000, 1, 156)),
        (rs.option.gain, (0, 128, 64, 1)),
    ):
        span = rs.option_range()
        span.min, span.max, span.default, span.step = limits
        span.step = 1
        made.add_option(option, span)
    span = rs.option_range()
    span.min, span.max, span.default, span.step = 2800, 6500, 4600, 10
    if read_only_white_balance:
        made.add_read_only_option(rs.option.white_balance, 4500)
    else:
        made.add_option(rs.option.white_balance, span)
    span.min, span.max, span.default, span.step = 0, 1, 1, 1
    made.add_option(rs.option.enable_auto_white_balance, span)
    return made


def settle(colour: Any, **keys: Any) -> dict[str, float | None]:
    return RealSenseStream("side", CameraConfig(**keys), CLOCK).settle(colour, adjustable=True)


def test_exposure_and_white_balance_are_fixed_and_read_back() -> None:
    colour = sensor()
    read = settle(colour, exposure=300, gain=20, white_balance=5000)
    assert read == {"exposure": 300.0, "gain": 20.0, "white_balance": 5000.0}
    assert colour.get_option(rs.option.exposure) == 300.0
    assert colour.get_option(rs.option.enable_auto_exposure) == 0.0
    assert colour.get_option(rs.option.enable_auto_white_balance) == 0.0


def test_a_setting_that_is_refused_or_missing_is_an_error() -> None:
    with pytest.raises(DeviceError, match=r"exposure=20000 is refused .* expected 1 to 10000"):
        settle(sensor(), exposure=20_000)
    with pytest.raises(DeviceError, match=r"white_balance=4600 is refused .*read-only"):
        settle(sensor(read_only_white_balance=True))
    with pytest.raises(DeviceError, match="has no enable_auto_exposure"):
        settle(rs.software_device().add_sensor("RGB Camera"))


def test_a_setting_that_does_not_stay_is_an_error() -> None:
    class Drifting:
        """Somebody else's program sets the exposure back."""

        def __init__(self) -> None:
            self._sensor = sensor()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._sensor, name)

        def get_option(self, option: Any) -> float:
            return 156.0 if option == rs.option.exposure else float(self._sensor.get_option(option))

    with pytest.raises(DeviceError, match="exposure 300 was asked for, 156 is read back"):
        settle(Drifting(), exposure=300)


def test_a_model_without_a_colour_sensor_is_refused() -> None:
    device = rs.software_device()
    device.add_sensor("Stereo Module")
    with pytest.raises(DeviceError, match="no colour sensor of its own"):
        RealSenseStream("side", CameraConfig(serial="1"), CLOCK)._colour_sensor(device)


class Bus:
    """Two cameras on the bus, which the library cannot simulate; `away`: looks for which a reset one is missing."""

    def __init__(self, away: int) -> None:
        self.resets: list[str] = []
        self._away = away

    def query_devices(self) -> list[Any]:
        missing = self.resets and self._away > 0
        if missing:
            self._away -= 1
        return [self._device(serial) for serial in ("1", "2") if not (missing and serial == self.resets[-1])]

    def _device(self, serial: str) -> Any:
        return SimpleNamespace(
            supports=lambda key: True,
            get_info=lambda key: serial,
            hardware_reset=lambda: self.resets.append(serial),
        )


def test_a_reset_is_for_that_camera_alone_and_waits_for_its_return() -> None:
    clock, bus = VirtualClock(), Bus(away=10)
    stream = RealSenseStream("side", CameraConfig(serial="2"), clock)
    stream._context = bus
    stream.reset()
    assert bus.resets == ["2"] and clock.now() == pytest.approx(
        realsense.LEAVING + 10 * realsense.LOOK, abs=0.5
    )
    stream._context = Bus(away=10_000)
    with pytest.raises(DeviceError, match="not back"):
        stream.reset()


def test_a_call_that_hangs_does_not_hang_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realsense, "PATIENCE", 0.05)
    released = Event()
    stream = RealSenseStream("side", CameraConfig(serial="2"), CLOCK)
    with pytest.raises(DeviceError, match=r"stop has not returned within .* plug it in again"):
        stream._bounded("stop", released.wait)
    released.set()
