"""Recordings of RealSense D435i cameras that look at the simulated arm, made with RealSense's own library.

    python -m robot.sim.d435i <folder> [--task press] [--views side wrist] [--seconds 6]

writes <folder>/<view>.db3, to try everything behind a camera without one: robot.cameras.<view>.recording=<file>. They
show a simulated arm that sways above its task at the time of recording, not the arm that moves while they are played.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robot.cameras.config import CameraConfig
from robot.cameras.sdk import load_sdk
from robot.clock import VirtualClock, WallClock
from robot.factory import TASKS, make_task
from robot.interfaces import Clock
from robot.sim.camera import SimCameras
from robot.sim.scene import SIDE_VIEW, WRIST_VIEW, build_scene
from robot.sim.world import SimWorld
from robot.types import Image

rs = load_sdk()

SWAY = np.array([0.15, 0.05, 0.0, 0.0, 0.0, 0.3])  # rad
SWAY_PERIOD = 3.0  # s
WIDTH, HEIGHT, FPS = 320, 240, 30


@dataclass(frozen=True)
class SyntheticD435i:
    """What the recorded camera says of itself. latency: from capture to arrival, as its frames tell it [s]."""

    serial: str = "999000000001"
    usb: str = "3.2"
    exposure: float = float(CameraConfig.exposure)
    gain: float = float(CameraConfig.gain)
    white_balance: float = float(CameraConfig.white_balance)
    latency: float = 0.03


def record(path: Path, images: Sequence[Image], fps: int, camera: SyntheticD435i, clock: Clock) -> None:
    """Write images (H, W, 3) to a new .db3 file, in real time: the library stamps them as it gets them."""
    path.unlink(missing_ok=True)
    device, sensor, profile = _device(images[0], fps, camera)
    with _recording(path, device) as arrived:
        began = clock.now()
        for number, image in enumerate(images):
            clock.sleep_until(began + number / fps)
            stamp = 1e3 * clock.now()
            frame = rs.software_video_frame()
            frame.stride, frame.bpp, frame.profile = image.shape[1] * 3, 3, profile.as_video_stream_profile()
            frame.timestamp, frame.domain = stamp, rs.timestamp_domain.global_time
            frame.frame_number, frame.pixels = number + 1, np.ascontiguousarray(image)
            arrival = round(stamp + 1e3 * camera.latency)
            sensor.set_metadata(rs.frame_metadata_value.time_of_arrival, arrival)
            sensor.on_video_frame(frame)
            arrived.wait_for_frame(1000)


def _device(image: Image, fps: int, camera: SyntheticD435i) -> tuple[Any, Any, Any]:
    """The library's own software device, its colour sensor, and the profile of its images."""
    device = rs.software_device()
    for key, word in (
        (rs.camera_info.name, "Intel RealSense D435I"),
        (rs.camera_info.serial_number, camera.serial),
        (rs.camera_info.usb_type_descriptor, camera.usb),
        (rs.camera_info.product_line, "D400"),
        (rs.camera_info.physical_port, f"synthetic-{camera.serial}"),
    ):
        device.register_info(key, word)
    device.add_sensor("Stereo Module")
    sensor = device.add_sensor("RGB Camera")
    stream, optics = rs.video_stream(), rs.intrinsics()
    optics.height, optics.width = stream.height, stream.width = image.shape[:2]
    optics.fx = optics.fy = 0.95 * optics.width
    optics.ppx, optics.ppy, optics.model = optics.width / 2, optics.height / 2, rs.distortion.none
    optics.coeffs = [0.0] * 5
    stream.type, stream.index, stream.uid, stream.fps = rs.stream.color, 0, 1, fps
    stream.bpp, stream.fmt, stream.intrinsics = 3, rs.format.rgb8, optics
    profile = sensor.add_video_stream(stream)
    for option, low, high, step, value in (
        (rs.option.exposure, 1, 10_000, 1, camera.exposure),
        (rs.option.gain, 0, 128, 1, camera.gain),
        (rs.option.white_balance, 2800, 6500, 10, camera.white_balance),
        (rs.option.enable_auto_exposure, 0, 1, 1, 0),
        (rs.option.enable_auto_white_balance, 0, 1, 1, 0),
    ):
        limits = rs.option_range()
        limits.min, limits.max, limits.step, limits.default = low, high, step, value
        sensor.add_option(option, limits)
    return device, sensor, profile


@contextmanager
def _recording(path: Path, device: Any) -> Iterator[Any]:
    """A queue of what the recorder has taken; the file is complete on leaving."""
    recorder, taken = rs.recorder(str(path), device), rs.frame_queue(4)
    sensor = next(s for s in recorder.query_sensors() if s.get_stream_profiles())
    sensor.open(sensor.get_stream_profiles())
    sensor.start(taken)
    try:
        yield taken
    finally:
        sensor.stop()
        sensor.close()
        recorder.pause()


def swaying(task_name: str, views: Sequence[str], seconds: float) -> dict[str, list[Image]]:
    """Images (HEIGHT, WIDTH, 3) of each view at FPS, the simulated view in the square in their middle."""
    task, clock = make_task(task_name), VirtualClock()
    world = SimWorld(build_scene(task.objects(), task.scene), clock)
    world.place_arm(task.spec.reset_joints, task.spec.initial_gripper)
    cameras = SimCameras(world, views, HEIGHT).cameras
    shown: dict[str, list[Image]] = {view: [] for view in views}
    margin = (WIDTH - HEIGHT) // 2
    for number in range(round(seconds * FPS)):
        sway = SWAY * np.sin(2 * np.pi * number / FPS / SWAY_PERIOD)
        world.move_joints(task.spec.reset_joints + sway, 1 / FPS)
        clock.advance(1 / FPS)
        for camera in cameras:
            square = camera.read().image
            shown[camera.name].append(np.pad(square, ((0, 0), (margin, margin), (0, 0)), mode="edge"))
    cameras[0].close()
    return shown


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", default="press", choices=TASKS)
    parser.add_argument("--views", nargs="+", default=[SIDE_VIEW, WRIST_VIEW])
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args(argv)
    options.folder.mkdir(parents=True, exist_ok=True)
    shown = swaying(options.task, options.views, options.seconds)
    with ThreadPoolExecutor(len(shown)) as threads:
        jobs = [
            threads.submit(
                record,
                options.folder / f"{view}.db3",
                images,
                FPS,
                SyntheticD435i(serial=f"99900000000{index}"),
                WallClock(),
            )
            for index, (view, images) in enumerate(shown.items(), 1)
        ]
        for job in jobs:
            job.result()
    print(f"recorded {', '.join(f'{view}.db3' for view in shown)} in {options.folder}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
