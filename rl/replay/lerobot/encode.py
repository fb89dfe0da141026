"""Video files of a dataset: an episode's images encoded, or the packets of another dataset's video carried over."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path

import av
import av.error
import numpy as np
from numpy.typing import NDArray

from rl.replay.lerobot.errors import DatasetError
from rl.replay.lerobot.layout import VideoSpan
from robot.types import Array


class VideoCodec(Enum):
    """How videos are encoded."""

    H264 = "h264"
    AV1 = "av1"  # LeRobot's own default
    LOSSLESS = "lossless"  # H.264 in RGB, every pixel kept; about ten times the size


@dataclass(frozen=True)
class Encoding:
    """crf: quality of h264 and av1, 0 best to 51 (av1: 63) worst."""

    codec: VideoCodec = VideoCodec.H264
    crf: int = 18

    def __post_init__(self) -> None:
        if not 0 <= self.crf <= 63:
            raise ValueError(f"crf: expected 0 to 63, got {self.crf}")


@dataclass(frozen=True)
class _Encoder:
    name: str
    pixels: str
    options: dict[str, str]


def _encoder(encoding: Encoding) -> _Encoder:
    crf = str(encoding.crf)
    # A key frame every second frame makes any frame cheap to reach; without B-frames it is half the price again.
    match encoding.codec:
        case VideoCodec.H264:
            options = {"g": "2", "bf": "0", "tune": "fastdecode", "crf": crf}
            return _Encoder("libx264", "yuv420p", options)
        case VideoCodec.AV1:
            return _Encoder("libsvtav1", "yuv420p", {"g": "2", "preset": "8", "crf": crf})
        case VideoCodec.LOSSLESS:
            return _Encoder("libx264rgb", "rgb24", {"g": "2", "bf": "0", "crf": "0"})


def encode(path: Path, images: NDArray[np.uint8], fps: int, encoding: Encoding) -> None:
    """Write (N, H, W, 3) RGB images as an mp4 whose frame i is shown at i / fps seconds."""
    height, width = images.shape[1:3]
    encoder = _encoder(encoding)
    if encoder.pixels == "yuv420p" and (height % 2 or width % 2):
        raise DatasetError(
            f"{path.name}: {height} x {width} px: {encoding.codec.value} needs even sizes; use codec=lossless"
        )
    os.environ.setdefault("SVT_LOG", "1")  # errors only: the AV1 encoder tells its settings for every file
    with av.open(str(path), "w") as container:
        stream = container.add_stream(encoder.name, rate=Fraction(fps), options=encoder.options)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = width, height, encoder.pixels
        stream.thread_count = 1
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def carry(span: VideoSpan, times: Array, tolerance: float, path: Path, *, alone: bool) -> None:
    """Write the frames shown at `times` after the span's start as their own file, without re-encoding.

    alone: no other episode lies in the span's file; starting at its first frame, it is copied byte for byte.
    Raises DatasetError where the frames do not begin with a key frame, so that they cannot stand alone.
    """
    first, last = span.start + times[0] - tolerance, span.start + times[-1] + tolerance
    with av.open(str(span.path)) as source:
        stream = source.streams.video[0]
        assert stream.time_base is not None
        packets = [packet for packet in source.demux(stream) if packet.pts is not None]
        shown = [float((packet.pts or 0) * stream.time_base) for packet in packets]
        inside = [place for place, at in enumerate(shown) if first <= at <= last]
        if len(inside) != len(times):
            raise DatasetError(
                f"{span.path}: expected {len(times)} frames from {first:.3f} to {last:.3f} s, got {len(inside)}"
            )
        if alone and inside[0] == 0:
            shutil.copyfile(span.path, path)
            return
        # In the order of decoding: frames between these may be shown later and still be needed by them.
        packets = packets[inside[0] : inside[-1] + 1]
        shift = packets[0].pts
        if not packets[0].is_keyframe or shift is None or min(shown[inside[0] : inside[-1] + 1]) < first:
            raise DatasetError(
                f"{span.path}: the frame at {span.start + times[0]:.3f} s is no key frame, so its episode cannot be "
                "cut out without re-encoding; export without videos_from"
            )
        with av.open(str(path), "w") as target:
            copy = target.add_stream_from_template(stream)
            for packet in packets:
                assert packet.pts is not None and packet.dts is not None
                packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
                packet.stream = copy
                target.mux(packet)


def video_info(path: Path, fps: int) -> dict[str, object]:
    """A video's properties as info.json lists them."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        return {
            "video.height": stream.height,
            "video.width": stream.width,
            "video.codec": {"libdav1d": "av1"}.get(stream.codec.name, stream.codec.name),
            "video.pix_fmt": stream.pix_fmt,
            "video.is_depth_map": False,
            "video.fps": fps,
            "video.channels": 3,
            "has_audio": False,
        }
