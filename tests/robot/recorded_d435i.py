"""Recordings by synthetic D435i cameras, made with the vendor's library, and their failures; tests and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from robot.cameras.device import RawFrame
from robot.cameras.realsense import RealSenseStream
from robot.cameras.repetition import Repetition
from robot.cameras.view import CameraView
from robot.clock import WallClock
from robot.env import RobotEnv
from robot.sim.d435i import SyntheticD435i, record
from robot.types import Image

WIDTH, HEIGHT, FPS = 320, 240, 30
SIZE = {"width": WIDTH, "height": HEIGHT, "warm_up": 0.1}  # keys of a CameraConfig that plays them


def scene(number: int) -> Image:
    """Image `number` of a recording: left half dark, right half bright, and a bar that moves."""
    image = np.full((HEIGHT, WIDTH, 3), 40, np.uint8)
    image[:, WIDTH // 2 :] = 200
    image[100:140, 4 * number % WIDTH :][:, :8] = 255
    return image


def make_recording(
    path: Path, seconds: float, camera: SyntheticD435i | None = None, fps: int = FPS, frozen: float = 0.0
) -> Path:
    """`seconds` of `scene`, in about as long, of which the last `frozen` are one image."""
    last = round((seconds - frozen) * fps)
    images: Sequence[Image] = [scene(min(number, last)) for number in range(round(seconds * fps))]
    record(path, images, fps, camera or SyntheticD435i(), WallClock())
    return path


def camera_of(env: RobotEnv, name: str) -> CameraView:
    camera = next(camera for camera in env.robot.cameras if camera.name == name)
    assert isinstance(camera, CameraView)
    return camera


def stall(env: RobotEnv, name: str, seconds: float) -> float:
    """Lose all that the library delivers for so long, as over a bad cable; returns the time at which it began."""
    stream, clock = camera_of(env, name).device._stream, env.clock
    wait, began = stream.wait, env.clock.now()

    def losing(timeout: float) -> RawFrame | None:
        frame = wait(timeout)
        return None if clock.now() < began + seconds else frame

    stream.wait = losing  # type: ignore[method-assign]
    return began


def freeze(env: RobotEnv, name: str, seconds: float) -> float:
    """Send one image under new stamps for so long, as a camera that hangs; its images are judged from now on."""
    device, clock = camera_of(env, name).device, env.clock
    device.config = replace(device.config, frozen_after=0.0)
    device._repetition = Repetition(device.config.may_repeat)
    stream, stuck, began = device._stream, device.newest().image, clock.now()
    wait = stream.wait

    def repeating(timeout: float) -> RawFrame | None:
        frame = wait(timeout)
        return frame if frame is None or clock.now() >= began + seconds else replace(frame, image=stuck)

    stream.wait = repeating  # type: ignore[method-assign]
    return began


class Unplugged:
    """A camera pulled out: its images stop, and the library is asked in vain for its serial number."""

    def __init__(self, env: RobotEnv, name: str) -> None:
        stream = camera_of(env, name).device._stream
        assert isinstance(stream, RealSenseStream)
        self._stream, self._config, self._wait = stream, stream._config, stream.wait
        self.began = env.clock.now()
        stream.wait = lambda timeout: (self._wait(timeout), None)[1]  # type: ignore[method-assign]
        stream._config = replace(self._config, recording=None, serial="999000000001")

    def plug_in(self) -> None:
        self._stream._config = self._config
        self._stream.wait = self._wait  # type: ignore[method-assign]
