"""CameraConfig: one view of a physical arm's policy and the RealSense it comes from; a part of RobotConfig."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

FRAME_RATES = (6, 15, 30, 60)  # Hz, those of a D400's colour sensor


@dataclass  # not frozen: OmegaConf would refuse to set a key of an entry of a mapping
class CameraConfig:
    """One view: a square of a RealSense's colour image, scaled to `robot.image_px`.

    serial: the device (`python -m robot.cameras.realsense` lists them). recording: a .db3 file of such a device, played
    back in its place. device_of: this is one more crop of the device of that view; all keys but `crop` are read there.
    """

    serial: str | None = None
    recording: str | None = None
    repeat: bool = True  # a recording begins again at its end; else it falls silent there
    device_of: str | None = None
    crop: list[int] | None = None  # [left, top, side] px; None: the largest square in the middle
    width: int = 640  # px, of the device's image
    height: int = 480  # px
    fps: int = 30
    exposure: int = 156  # 100 us, fixed
    gain: int = 64
    white_balance: int = 4600  # K, fixed
    allow_usb2: bool = False  # it is slower there, and drops frames
    warm_up: float = 1.0  # s of images that are thrown away after the start
    silence: float = 1.0  # s without an image until it is connected anew
    frozen_after: float | None = None  # s; see `may_repeat`
    reconnects: int = 3  # in a row, with a reset of this device before all but the first

    def __post_init__(self) -> None:
        if self.fps not in FRAME_RATES:
            raise ValueError(
                f"robot.cameras: expected fps among {FRAME_RATES}, which is what a RealSense offers, got {self.fps}"
            )
        if not (
            1 <= self.exposure <= 165_000 and 0 <= self.gain <= 248 and 2000 <= self.white_balance <= 10_000
        ):
            raise ValueError(
                "robot.cameras: expected exposure 1 to 165000, gain 0 to 248, white_balance 2000 to 10000 K, got "
                f"{self.exposure}, {self.gain}, {self.white_balance}"
            )
        if not (0.0 <= self.warm_up <= 60.0 and 0.1 <= self.silence <= 60.0 and 0 <= self.reconnects <= 20):
            raise ValueError(
                "robot.cameras: expected warm_up 0 to 60 s, silence 0.1 to 60 s, reconnects 0 to 20, got "
                f"{self.warm_up}, {self.silence}, {self.reconnects}"
            )
        if self.frozen_after is not None and not self.frozen_after >= 0.0:
            raise ValueError(
                f"robot.cameras: expected frozen_after of at least 0 s, or null, got {self.frozen_after}"
            )
        if self.crop is not None:
            left, top, side = self.crop if len(self.crop) == 3 else (-1, -1, -1)
            if min(left, top) < 0 or side < 1:
                raise ValueError(f"robot.cameras: expected crop=[left, top, side] px, got {list(self.crop)}")

    @property
    def may_repeat(self) -> float:
        """Seconds for which an image may come again, byte for byte, before it counts as none; infinite: for ever.

        Where `frozen_after` is not set: 0 for a device, for its sensor has noise; for ever for a recording, which may
        be of a synthetic scene that stands still.
        """
        if self.frozen_after is not None:
            return self.frozen_after
        return 0.0 if self.recording is None else math.inf

    def square(self, width: int, height: int) -> tuple[int, int, int]:
        """(left, top, side) [px] of the crop in an image of that size."""
        if self.crop is not None:
            left, top, side = self.crop
            return left, top, side
        side = min(width, height)
        return (width - side) // 2, (height - side) // 2, side


def device_view(cameras: Mapping[str, CameraConfig], view: str) -> str:
    """The view under which the device of `view` is configured."""
    return cameras[view].device_of or view


def check_cameras(cameras: Mapping[str, CameraConfig], views: Sequence[str], image_px: int) -> None:
    """Raise ValueError where a view has no device, two devices are the same, or a crop does not fit."""
    missing = [view for view in views if view not in cameras]
    if missing:
        raise ValueError(
            f"robot.cameras: expected an entry for each of robot.views={list(views)}, none for {missing}; give its "
            "serial (`python -m robot.cameras.realsense` lists them), or use robot.obs=state"
        )
    seen: dict[str, str] = {}
    for view in views:
        config, name = cameras[view], f"robot.cameras.{view}"
        owner = cameras.get(device_view(cameras, view))
        if owner is None or owner.device_of is not None:
            raise ValueError(
                f"{name}.device_of={config.device_of}: expected a view that has a device of its own"
            )
        if config.device_of is not None:
            if replace(config, device_of=None, crop=None) != CameraConfig():
                raise ValueError(
                    f"{name}: it shows the device of {config.device_of}, so set all but crop in that entry"
                )
        elif config.serial is None and config.recording is None:
            raise ValueError(
                f"{name}.serial: expected the serial number of a RealSense "
                "(`python -m robot.cameras.realsense` lists them), or a recording in its place"
            )
        else:
            source = config.recording or str(config.serial)
            if source in seen:
                raise ValueError(
                    f"{name}: {source} is the device of {seen[source]} already; use {name}.device_of={seen[source]}"
                )
            seen[source] = view
        left, top, side = config.square(owner.width, owner.height)
        if left + side > owner.width or top + side > owner.height or side < image_px:
            raise ValueError(
                f"{name}.crop: expected a square within {owner.width}x{owner.height} px, of at least "
                f"robot.image_px={image_px} px, got [{left}, {top}, {side}]"
            )
