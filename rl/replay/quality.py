"""What can be wrong with recorded episodes without any checksum failing: gaps, stale, doubled, shifted, frozen data."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rl.replay.errors import StoreError
from robot.types import Array

GAP_PERIODS = 1.5  # a pause between rows beyond which one of them is missing
_BINS = 9
_BARS = " ▁▂▃▄▅▆▇█"
_MOVED = 0.5  # of a typical step: the state moved enough to be seen
_SAME_PICTURE = 0.1  # mean difference of 8-bit pixels; a coded repetition is nearly but not quite equal
_ENOUGH_PX = 64  # rows and columns that are looked at
_MOST_STALE = 0.02  # share of an episode's frames that may repeat while the arm moves
_LAGS = 5
_SHORTEST = 24  # steps from which a shift between two signals can be told
_CLEAR, _MARGIN = 0.5, 0.2  # correlation at a shift, and by how much it must exceed that without shift


@dataclass(frozen=True, eq=False)
class Recording:
    """One episode, from wherever it comes: N observations.

    state: (N, P). action: (T, A), T = N or N - 1. timestamp: (N,) [s]. capture: view -> (N,) [s], where known.
    period: of the control rate [s]. frames: reads the images of a view, (N, H, W, 3).
    """

    number: int
    state: Array
    action: Array
    timestamp: Array
    capture: Mapping[str, Array]
    period: float
    views: Sequence[str]
    frames: Callable[[str], NDArray[np.uint8]]


@dataclass(frozen=True)
class Finding:
    """Something that a person should look at."""

    episode: int  # -1: all of them
    text: str
    note: bool = False  # worth knowing, but often as it should be


def gaps(recording: Recording) -> int:
    """How often more than one and a half periods lie between two rows."""
    return int((np.diff(recording.timestamp) > GAP_PERIODS * recording.period).sum())


def stale_frames(recording: Recording) -> int | None:
    """Rows whose image of some view was captured no later than that of the row before; None where unknown."""
    times = [t for t in recording.capture.values() if np.isfinite(t).all()]
    return max(int((np.diff(t) <= 0).sum()) for t in times) if times else None


def histogram_bars(action: Array, span: Array) -> str:
    """The distribution of all action entries over -span..span as a row of bars; span: (A,)."""
    shares = np.histogram(action / np.maximum(span, 1e-12), bins=_BINS, range=(-1.0, 1.0))[0]
    top = max(int(shares.max()), 1)
    return "".join(_BARS[-(-int(count) * (len(_BARS) - 1) // top)] for count in shares)


def check(recordings: Iterable[Recording]) -> Iterator[Finding]:
    """Everything suspicious, episode by episode; decodes every frame."""
    seen: dict[int, int] = {}
    pictured: dict[tuple[str, int], int] = {}
    read = []
    for recording in recordings:
        read.append(recording)
        number = recording.number
        crc = zlib.crc32(recording.action.tobytes(), zlib.crc32(recording.state.tobytes()))
        if (twin := seen.setdefault(crc, number)) != number:
            yield Finding(number, f"the same states and actions as episode {twin}")
        if count := gaps(recording):
            yield Finding(number, f"{count} gaps: more than {GAP_PERIODS} periods between two rows")
        yield from _constant(recording)
        yield from _capture_times(recording)
        for view in recording.views:
            try:
                frames = recording.frames(view)
            except StoreError as error:
                yield Finding(number, str(error))
                continue
            key = (view, zlib.crc32(frames.tobytes()))
            if (twin := pictured.setdefault(key, number)) != number:
                yield Finding(number, f"{view}: the same pictures as episode {twin}")
            yield from _pictures(recording, view, frames)
    yield from _constant_everywhere(read)


def _constant(recording: Recording) -> Iterator[Finding]:
    if len(recording.state) > 2:
        if recording.state.size and not np.ptp(recording.state, axis=0).any():
            yield Finding(recording.number, "no entry of the state ever changes")
        if recording.action.size and not np.ptp(recording.action, axis=0).any():
            yield Finding(recording.number, "no entry of the action ever changes")


def _constant_everywhere(recordings: Sequence[Recording]) -> Iterator[Finding]:
    if not recordings:
        return
    for name in ("state", "action"):
        values = np.concatenate([getattr(recording, name) for recording in recordings])
        still = np.flatnonzero(np.ptp(values, axis=0) == 0).tolist()
        if still and len(values) > 2:
            yield Finding(-1, f"{name} entries {still} are the same in every row", note=True)


def _capture_times(recording: Recording) -> Iterator[Finding]:
    for view, times in recording.capture.items():
        late = np.abs(recording.timestamp - times) > recording.period
        if late.any():
            yield Finding(
                recording.number, f"{view}: {int(late.sum())} images were taken over a period from their row"
            )


def _pictures(recording: Recording, view: str, frames: NDArray[np.uint8]) -> Iterator[Finding]:
    change = _picture_change(frames)
    moved = _speed(recording.state)
    typical = np.median(moved[moved > 0]) if (moved > 0).any() else 0.0
    if len(change) > 1 and not change.any():
        yield Finding(recording.number, f"{view}: the picture never changes")
        return
    stale = (change < _SAME_PICTURE) & (moved > _MOVED * typical)
    if typical and stale.sum() > max(1.0, _MOST_STALE * len(stale)):
        yield Finding(recording.number, f"{view}: {int(stale.sum())} frames repeat while the arm moves")
    shift = _shift(moved, change)
    if shift:
        order = "behind" if shift > 0 else "ahead of"
        yield Finding(recording.number, f"{view}: the pictures seem {abs(shift)} steps {order} the states")


def _picture_change(frames: NDArray[np.uint8]) -> Array:
    """(N - 1,) mean difference of each frame to the one before."""
    change = np.empty(max(len(frames) - 1, 0))
    step = max(1, frames.shape[1] // _ENOUGH_PX)
    for t in range(len(change)):
        before, after = (frames[at, ::step, ::step].astype(np.int16) for at in (t, t + 1))
        change[t] = np.abs(after - before).mean()
    return change


def _speed(state: Array) -> Array:
    """(N - 1,) length of each step of the state, its entries made comparable; jumps of angles are cut."""
    spread = state.std(axis=0)
    steps = np.diff(state[:, spread > 0] / spread[spread > 0], axis=0)
    speed = np.asarray(np.linalg.norm(steps, axis=1))
    return np.minimum(speed, np.quantile(speed, 0.95)) if len(speed) else speed


def _shift(cause: Array, effect: Array) -> int:
    """By how many steps `effect` clearly follows `cause` later than it should (negative: earlier), 0 if not clear."""
    if len(cause) < _SHORTEST or not (cause.std() > 0 and effect.std() > 0):
        return 0
    fits = {}
    for lag in range(-_LAGS, _LAGS + 1):
        first = cause[max(0, -lag) : len(cause) - max(0, lag)]
        second = effect[max(0, lag) : len(effect) - max(0, -lag)]
        both = first.std() * second.std()
        fits[lag] = float(((first - first.mean()) * (second - second.mean())).mean() / both) if both else 0.0
    best = max(fits, key=lambda lag: fits[lag])
    clear = fits[best] > _CLEAR and fits[best] > fits[0] + _MARGIN
    return best if clear and abs(best) > 1 else 0
