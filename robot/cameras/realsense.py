"""RealSenseStream: the colour sensor of one RealSense, by serial number, or a recording.

`python -m robot.cameras.realsense` lists what is attached.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from robot.cameras.config import CameraConfig
from robot.cameras.device import RawFrame, StreamFacts
from robot.cameras.sdk import load_sdk
from robot.interfaces import Clock, DeviceError

if TYPE_CHECKING:
    import pyrealsense2 as rs

PATIENCE = 10.0  # s that a call into the library may take; a reset after a stop is known to hang
LEAVING = 2.0  # s after a reset in which it may still be listed
RETURN = 10.0  # s after a reset until it is back on the bus
LOOK = 0.2  # s between two looks for it
T = TypeVar("T")


class RealSenseStream:
    """A D400 camera. Exposure, gain and white balance are fixed and read back; depth is not used.

    A recording plays through the same pipeline at the pace at which it was recorded, with the settings it was recorded
    with, which must be those asked for.
    """

    def __init__(self, name: str, config: CameraConfig, clock: Clock) -> None:
        self._name = f"camera {name}"
        self._config = config
        self._clock = clock
        self._context: Any = None
        self._pipeline: Any = None

    def open(self) -> StreamFacts:
        """Start it; raises DeviceError for a missing device, a slow port, a mode it has not, a setting it refuses."""
        rs = load_sdk()
        config = self._config
        if self._context is None:
            self._context = rs.context()
        request = rs.config()
        if config.recording is None:
            self._check_device(self._device())
            request.enable_device(config.serial)
        else:
            self._check_recording(config.recording)
            request.enable_device_from_file(config.recording, config.repeat)
        request.enable_stream(rs.stream.color, config.width, config.height, rs.format.rgb8, config.fps)
        pipeline = rs.pipeline(self._context)
        try:
            profile = self._bounded("start", lambda: pipeline.start(request))
        except RuntimeError as error:
            raise DeviceError(
                f"{self._name}: cannot be started ({error}); close other programs that use it, then plug it in again"
            ) from error
        self._pipeline = pipeline
        device = profile.get_device()
        return StreamFacts(
            device=config.recording or f"{_info(device, 'name')} {config.serial}",
            usb=_info(device, "usb_type_descriptor"),
            **self.settle(self._colour_sensor(device), adjustable=config.recording is None),
        )

    def wait(self, timeout: float) -> RawFrame | None:
        """The next image, None after `timeout` [s]; raises DeviceError where the device is gone."""
        rs = load_sdk()
        if self._pipeline is None:
            raise DeviceError(f"{self._name}: not open")
        try:
            came, frames = self._pipeline.try_wait_for_frames(round(1e3 * timeout))
        except RuntimeError as error:
            raise DeviceError(f"{self._name}: the library gave up on it ({error})") from error
        frame = frames.get_color_frame() if came else None
        if not frame:
            return None
        stamp, latency = 1e-3 * frame.get_timestamp(), None
        arrival = rs.frame_metadata_value.time_of_arrival
        # Only a global stamp is on the clock of the host, as the time of arrival is.
        same_clock = frame.get_frame_timestamp_domain() == rs.timestamp_domain.global_time
        if same_clock and frame.supports_frame_metadata(arrival):
            latency = max(0.0, 1e-3 * frame.get_frame_metadata(arrival) - stamp)
        return RawFrame(np.array(frame.get_data()), frame.get_frame_number(), stamp, latency)

    def reset(self) -> None:
        """Restart the device with this serial number and wait until it is back; a recording needs none."""
        if self._config.recording is not None:
            return
        device = self._device()
        self._bounded("reset", device.hardware_reset)
        began = self._clock.now()
        self._clock.sleep_until(began + LEAVING)
        while self._clock.now() < began + RETURN:
            if self._config.serial in _attached(self._context):
                return
            self._clock.sleep_until(self._clock.now() + LOOK)
        raise DeviceError(f"{self._name}: not back {RETURN:.0f} s after its reset; plug it in again")

    def close(self) -> None:
        """Stop it; may be repeated."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            try:
                self._bounded("stop", pipeline.stop)
            except RuntimeError as error:  # of a device that has left
                raise DeviceError(f"{self._name}: cannot be stopped ({error}); plug it in again") from error

    def settle(self, sensor: Any, *, adjustable: bool) -> dict[str, float | None]:
        """Fix exposure, gain and white balance of a colour sensor; what it then reads back, DeviceError if otherwise.

        adjustable: False for a recording, whose settings can only be compared; None where it does not tell one.
        """
        rs, config = load_sdk(), self._config
        option = rs.option
        if adjustable:
            self._set(sensor, option.enable_auto_exposure, 0.0)
            self._set(sensor, option.enable_auto_white_balance, 0.0)
        values: dict[str, float | None] = {}
        for name in ("exposure", "gain", "white_balance"):
            asked, which = float(getattr(config, name)), getattr(option, name)
            if adjustable:
                self._set(sensor, which, asked)
            values[name] = read = sensor.get_option(which) if sensor.supports(which) else None
            if read is not None and abs(read - asked) > sensor.get_option_range(which).step / 2:
                raise DeviceError(
                    f"{self._name}: {name} {asked:g} was asked for, {read:g} is read back; set "
                    f"robot.cameras.<view>.{name}={read:g}, or close the program that changes it"
                )
        return values

    def _colour_sensor(self, device: Any) -> Any:
        # The first sensor of a D435i is the stereo module, whose exposure is another one.
        try:
            return device.first_color_sensor()
        except RuntimeError as error:
            raise DeviceError(
                f"{self._name}: it has no colour sensor of its own ({error}), as a D405 has none; use another model"
            ) from error

    def _set(self, sensor: Any, which: rs.option, value: float) -> None:
        if not sensor.supports(which):
            raise DeviceError(
                f"{self._name}: its colour sensor has no {which.name}, so images would change their brightness by "
                "themselves; use another model"
            )
        try:
            sensor.set_option(which, value)
        except RuntimeError as error:
            limits = sensor.get_option_range(which)
            raise DeviceError(
                f"{self._name}: {which.name}={value:g} is refused ({error}); expected {limits.min:g} to "
                f"{limits.max:g} in steps of {limits.step:g}"
            ) from error

    def _device(self) -> Any:
        """The device with the serial number asked for; raises DeviceError with those that are there."""
        found = _attached(self._context)
        if self._config.serial not in found:
            listed = ", ".join(f"{serial} ({_info(device, 'name')})" for serial, device in found.items())
            raise DeviceError(
                f"{self._name}: no RealSense with serial number {self._config.serial} is attached; found: "
                f"{listed or 'none'}. Check the cable, and that its udev rules are installed; in YAML a serial number "
                "that begins with 0 needs quotes"
            )
        return found[self._config.serial]

    def _check_recording(self, path: str) -> None:
        if not Path(path).is_file():
            raise DeviceError(f"{self._name}: no such recording: {path}")
        try:
            device = self._context.load_device(path)
        except RuntimeError as error:
            raise DeviceError(f"{self._name}: {path} is no recording of a RealSense ({error})") from error
        try:
            serial = _info(device, "serial_number")
            if self._config.serial not in (None, serial):
                raise DeviceError(
                    f"{self._name}: {path} was recorded with {serial}, expected serial {self._config.serial}"
                )
            self._check_device(device)
        finally:
            self._context.unload_device(path)

    def _check_device(self, device: Any) -> None:
        """Raise DeviceError for a slow port or a mode that its colour sensor has not."""
        config = self._config
        usb = _info(device, "usb_type_descriptor")
        if usb is not None and usb.startswith("2") and not config.allow_usb2:
            raise DeviceError(
                f"{self._name}: it is connected as USB {usb}. Pull it out and plug it in again quickly, into a blue or "
                "SS port, with the cable it came with; robot.cameras.<view>.allow_usb2=true uses it as it is"
            )
        modes = self._modes(device)
        if (config.width, config.height, config.fps) not in modes:
            listed = ", ".join(f"{w}x{h} at {fps}" for w, h, fps in sorted(modes))
            raise DeviceError(
                f"{self._name}: it has no colour mode {config.width}x{config.height} px at {config.fps} Hz"
                f"{f' as USB {usb}' if usb else ''}; set width, height and fps to one of: {listed or 'none'}"
            )

    def _modes(self, device: Any) -> set[tuple[int, int, int]]:
        """(width, height, fps) of the colour modes."""
        rs = load_sdk()
        profiles = [p for sensor in device.query_sensors() for p in sensor.get_stream_profiles()]
        colour = [p.as_video_stream_profile() for p in profiles if p.stream_type() == rs.stream.color]
        return {(p.width(), p.height(), p.fps()) for p in colour if p.format() == rs.format.rgb8}

    def _bounded(self, what: str, call: Callable[[], T]) -> T:
        """The result of a call into the library that may hang; raises DeviceError where it does."""
        results: list[T] = []
        errors: list[RuntimeError] = []

        def run() -> None:
            try:
                results.append(call())
            except RuntimeError as error:
                errors.append(error)

        thread = Thread(target=run, name=f"{self._name} {what}", daemon=True)
        thread.start()
        thread.join(PATIENCE)
        if errors:
            raise errors[0]
        if not results:
            raise DeviceError(
                f"{self._name}: its {what} has not returned within {PATIENCE:.0f} s; plug it in again"
            )
        return results[0]


def list_attached() -> list[str]:
    """The RealSense devices on this machine, one line each; raises DeviceError without the library."""
    return [
        f"{_info(device, 'name')}, serial {serial}, USB {_info(device, 'usb_type_descriptor') or 'unknown'}"
        for serial, device in _attached(load_sdk().context()).items()
    ]


def _attached(context: Any) -> dict[str, Any]:
    """Devices by serial number."""
    return {_info(device, "serial_number") or "unknown": device for device in context.query_devices()}


def _info(device: Any, key: str) -> str | None:
    """One of the device's own words about itself; None where it has none."""
    which = getattr(load_sdk().camera_info, key)
    return str(device.get_info(which)) if device.supports(which) else None


def main() -> int:
    """List what is attached; returns 1 where nothing is."""
    try:
        found = list_attached()
    except DeviceError as error:
        print(error, file=sys.stderr)
        return 1
    nothing = (
        "no RealSense is attached: check the cable, and that its udev rules are installed (docs/robot.md)"
    )
    print("\n".join(found) or nothing)
    return int(not found)


if __name__ == "__main__":
    raise SystemExit(main())
