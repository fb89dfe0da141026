"""CameraView: one square crop of a camera's image at the size that the policy sees; what the robot reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image as Picture

from robot.cameras.config import CameraConfig, device_view
from robot.cameras.device import CameraDevice, CapturedFrame
from robot.cameras.realsense import RealSenseStream
from robot.interfaces import Clock, Frame
from robot.types import Image


class CameraView:
    """A Camera. Several may share a device, which is opened once and closed by whichever is closed first."""

    def __init__(self, name: str, device: CameraDevice, square: tuple[int, int, int], size: int) -> None:
        """square: (left, top, side) [px] of the device's image."""
        self.name = name
        self.height = self.width = size
        self.device = device
        self._square = square
        self._source: CapturedFrame | None = None
        self._frame: Frame | None = None

    def connect(self) -> None:
        """Start the device, unless another view has; raises DeviceError with the remedy."""
        self.device.connect()

    def read(self) -> Frame:
        """The newest image, cropped and scaled; DeviceError where the device is lost or not connected."""
        newest = self.device.newest()
        if newest is not self._source or self._frame is None:
            image = cropped(newest.image, self._square, self.height)
            self._frame = Frame(image, newest.timestamp, newest.frozen)
            self._source = newest
        return self._frame

    def close(self) -> None:
        """Release the device."""
        self.device.close()


def cropped(image: Image, square: tuple[int, int, int], size: int) -> Image:
    """The square (left, top, side) [px] of an image (H, W, 3), each pixel of the result the mean of those it covers."""
    left, top, side = square
    scaled = Picture.fromarray(image).resize(
        (size, size), Picture.Resampling.BOX, box=(left, top, left + side, top + side)
    )
    return np.array(scaled)


def make_views(
    cameras: Mapping[str, CameraConfig], views: Sequence[str], size: int, clock: Clock
) -> list[CameraView]:
    """The cameras of these views, not connected yet; each device once."""
    devices: dict[str, CameraDevice] = {}
    made = []
    for view in views:
        owner = device_view(cameras, view)
        config = cameras[owner]
        if owner not in devices:
            devices[owner] = CameraDevice(owner, RealSenseStream(owner, config, clock), config, clock)
        made.append(CameraView(view, devices[owner], cameras[view].square(config.width, config.height), size))
    return made
