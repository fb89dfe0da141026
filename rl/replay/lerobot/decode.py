"""Frames of one episode and view, decoded in one pass: from an mp4 by their times, or from images in the rows."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import av
import av.error
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image as PilImage
from PIL import UnidentifiedImageError

from rl.replay.lerobot.errors import EpisodeError
from rl.replay.lerobot.layout import Feature, VideoSpan, explain_unreadable
from rl.replay.lerobot.mapping import View
from rl.replay.lerobot.resize import fit_image
from rl.replay.lerobot.rows import EpisodeRows
from robot.types import Array, Image


def video_frames(span: VideoSpan, times: Array, tolerance: float) -> Iterator[Image]:
    """The frames (H, W, 3) that are shown at `times` (N,), seconds after the span's start, rising.

    A frame belongs to a time if both agree within `tolerance` seconds: frames are never counted, since one that
    is missing would shift all behind it. Raises EpisodeError where a frame is missing or cannot be decoded.
    """
    wanted = span.start + times
    found = 0
    try:
        with av.open(str(span.path)) as container:
            stream = _stream(container, span.path)
            assert stream.time_base is not None
            if wanted[0] > tolerance:
                container.seek(int((wanted[0] - tolerance) / stream.time_base), stream=stream, backward=True)
            nearest = float("inf")
            for frame in container.decode(stream):
                if frame.pts is None:
                    continue
                at = float(frame.pts * stream.time_base)
                if at < wanted[found] - tolerance:
                    nearest = at
                    continue
                if at > wanted[found] + tolerance:
                    around = min((nearest, at), key=lambda t: abs(t - wanted[found]))
                    raise EpisodeError(
                        f"{span.path}: no frame at {wanted[found]:.4f} s, the nearest is at {around:.4f} s; "
                        "its rate or its frames are not those of the rows"
                    )
                yield frame.to_ndarray(format="rgb24").astype(np.uint8, copy=False)
                nearest, found = at, found + 1
                if found == len(wanted):
                    return
    except FileNotFoundError as error:
        raise EpisodeError(f"{span.path}: the video is missing") from error
    except (av.error.FFmpegError, OSError) as error:
        raise EpisodeError(f"{span.path}: {explain_unreadable(span.path, 'a video', error)}") from error
    raise EpisodeError(
        f"{span.path}: it ends before {wanted[found]:.4f} s: {found} of {len(wanted)} frames were found"
    )


def frame_times(path: Path) -> Array:
    """The times [s] of all frames of a video, without decoding them; raises EpisodeError."""
    try:
        with av.open(str(path)) as container:
            stream = _stream(container, path)
            assert stream.time_base is not None
            times = [p.pts * stream.time_base for p in container.demux(stream) if p.pts is not None]
    except FileNotFoundError as error:
        raise EpisodeError(f"{path}: the video is missing") from error
    except (av.error.FFmpegError, OSError) as error:
        raise EpisodeError(f"{path}: {explain_unreadable(path, 'a video', error)}") from error
    return np.sort(np.array(times, np.float64))


def _stream(container: av.container.InputContainer, path: Path) -> av.VideoStream:
    if not container.streams.video:
        raise EpisodeError(f"{path}: no video stream in it")
    stream = container.streams.video[0]
    stream.thread_count = 1  # a pool of threads per file costs more than it gives at these sizes
    return stream


def row_frames(rows: EpisodeRows, name: str) -> Iterator[Image]:
    """The images (H, W, 3) that lie in the rows: encoded ones, or numbers of which 8 bits can be made exactly."""
    feature = rows.features[name]
    if not rows.has(name):
        raise EpisodeError(f"the column {name} is missing from {rows.entry.data}")
    column = rows.table[name]
    if pa.types.is_struct(column.type):
        for cell in column:
            yield _encoded(rows, name, cell.as_py())
        return
    for cell in column:
        yield _numeric(name, feature, np.asarray(cell.as_py()))


def _encoded(rows: EpisodeRows, name: str, cell: dict[str, object] | None) -> Image:
    """A cell {bytes, path} as Hugging Face's datasets write it."""
    data = (cell or {}).get("bytes")
    if not isinstance(data, bytes):
        raise EpisodeError(f"{name}: expected the image's bytes in {rows.entry.data}, got {cell!r:.80}")
    try:
        with PilImage.open(io.BytesIO(data)) as image:
            return np.asarray(image.convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise EpisodeError(f"{name}: an image in {rows.entry.data} cannot be read ({error})") from error


def _numeric(name: str, feature: Feature, values: NDArray[np.generic]) -> Image:
    if values.shape != feature.shape:
        raise EpisodeError(f"{name}: expected an image of {feature.shape}, got {values.shape}")
    if feature.image_size != feature.shape[:2]:
        values = np.moveaxis(values, 0, -1)
    numbers = values.astype(np.float64)
    # 8 bits as floats: 0..255, or divided by 255.
    unit = numbers.dtype.kind == "f" and numbers.max(initial=0.0) <= 1.0 and (numbers % 1 != 0).any()
    scaled = numbers * 255.0 if unit else numbers
    rounded = np.rint(scaled)
    if not np.isfinite(scaled).all() or np.abs(scaled - rounded).max(initial=0.0) > 1e-3:
        raise EpisodeError(f"{name}: expected 0..255, or those divided by 255, got other numbers")
    if rounded.min(initial=0.0) < 0 or rounded.max(initial=0.0) > 255:
        raise EpisodeError(f"{name}: expected 0..255, got {rounded.min():g}..{rounded.max():g}")
    return rounded.astype(np.uint8)


def episode_images(rows: EpisodeRows, view: View, tolerance: float) -> NDArray[np.uint8]:
    """The images (N, H, W, 3) of an episode as the store holds them."""
    feature = rows.features[view.feature]
    if feature.dtype == "video":
        span = rows.entry.videos.get(view.feature)
        if span is None:
            raise EpisodeError(f"{view.feature}: where its frames lie could not be rebuilt")
        frames = video_frames(span, rows.timestamps(), tolerance)
    else:
        frames = row_frames(rows, view.feature)
    images = np.empty((len(rows), view.height, view.width, 3), np.uint8)
    for target, frame in enumerate(frames):
        if frame.shape[:2] != feature.image_size:
            raise EpisodeError(
                f"{view.feature}: info.json announces {feature.image_size} px, the frames are {frame.shape[:2]}"
            )
        images[target] = fit_image(frame, view)
    return images
