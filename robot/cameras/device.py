"""CameraDevice: keeps the newest image of one camera from a thread of its own, and brings a silent camera back."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from threading import Event
from typing import Protocol

from robot.cameras.config import CameraConfig
from robot.cameras.device_clock import DeviceClock
from robot.cameras.repetition import Repetition
from robot.interfaces import Clock, DeviceError
from robot.periodic import PeriodicThread
from robot.types import Image

POLL = 0.05  # s that one wait for an image may take
FIRST_IMAGE = 2.0  # s from the start of a camera to its first image
PAUSE = 0.001  # s between two waits
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class RawFrame:
    """One image as it came. stamp: when, on the device's clock [s]. latency: capture to arrival [s], where known."""

    image: Image
    number: int
    stamp: float
    latency: float | None


@dataclass(frozen=True, slots=True, eq=False)
class CapturedFrame:
    """One image (H, W, 3) and when it was captured, seconds on the robot's clock.

    frozen: the camera goes on sending it, equal byte for byte; its timestamp stays.
    """

    image: Image
    timestamp: float
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What a camera says of itself and of its settings, as read back; None where it does not tell."""

    device: str  # kind and serial, or the recording
    usb: str | None
    exposure: float | None
    gain: float | None
    white_balance: float | None


class ColourStream(Protocol):
    """One camera as its vendor's library gives it."""

    def open(self) -> StreamFacts:
        """Start it with its settings fixed and read back; raises DeviceError with the remedy."""

    def wait(self, timeout: float) -> RawFrame | None:
        """The next image, None after `timeout` [s]; raises DeviceError where the device is gone."""

    def reset(self) -> None:
        """Restart this device and no other, and wait until it is back; raises DeviceError."""

    def close(self) -> None:
        """Stop it; may be repeated."""


class CameraDevice:
    """One camera, shared by its views. `newest` never blocks; a silent camera shows by an old timestamp.

    An image that comes again, equal byte for byte, for longer than it may is no new one. A camera that is silent for
    `silence` s is connected anew from the thread, at most `reconnects` times in a row; then `newest` raises DeviceError
    until `connect` is called again.
    """

    def __init__(self, name: str, stream: ColourStream, config: CameraConfig, clock: Clock) -> None:
        self.name = name
        self.config = config
        self.reconnected = 0
        self.facts: StreamFacts | None = None
        self._stream = stream
        self._clock = clock
        self._thread = PeriodicThread(f"camera {name}", self._work, clock, PAUSE)
        self._closing = Event()
        self._running = False
        self._newest: CapturedFrame | None = None
        self._begin()

    def _begin(self) -> None:
        self._times = DeviceClock()
        self._repetition = Repetition(self.config.may_repeat)
        self._last: tuple[int, float] | None = None
        self._received = self._clock.now()

    @property
    def latency(self) -> float | None:
        """Seconds from capture to arrival at best; None where the camera does not tell."""
        return self._times.latency

    @property
    def repeated(self) -> int:
        """Images since its start that were equal to the one before, byte for byte."""
        return self._repetition.count

    def connect(self) -> None:
        """Start it, warm it up, and begin to read; does nothing where it runs. Raises DeviceError with the remedy."""
        if self._running:
            try:
                self._thread.check()
                return
            except DeviceError:
                self.close()
        self._closing.clear()
        try:
            self._start()
        except DeviceError:
            self._stream.close()
            raise
        self._running = True
        self._thread.start()

    def newest(self) -> CapturedFrame:
        """The newest image, the same object while no other has come; DeviceError if not connected, or lost."""
        newest = self._newest
        if not self._running or newest is None:
            raise DeviceError(f"camera {self.name}: not connected; call connect() first")
        try:
            self._thread.check()
        except DeviceError as stopped:
            if isinstance(stopped.__cause__, DeviceError):  # says more than that a thread has ended
                raise DeviceError(str(stopped.__cause__)) from stopped
            raise
        return newest

    def close(self) -> None:
        """Stop reading and release the device; may be repeated."""
        self._closing.set()
        self._thread.stop()
        self._running = False
        self._newest = None
        self._stream.close()

    def _work(self) -> None:
        try:
            self._newest = self._take() or self._newest
            if self._repetition.frozen and self._newest is not None and not self._newest.frozen:
                self._newest = replace(self._newest, frozen=True)
            if self._clock.now() - self._received <= self.config.silence:
                return
            problem = f"camera {self.name}: {self._complaint} for {self.config.silence:.1f} s"
        except DeviceError as error:
            problem = str(error)
        self._reconnect(problem)

    def _start(self) -> None:
        """Open the stream, wait for its first image, throw away what comes while it warms up, keep the next."""
        self.facts = self._stream.open()
        self._begin()
        self._await_image()
        ready = self._received + self.config.warm_up
        while self._clock.now() < ready and not self._closing.is_set():
            self._take()
        self._newest = self._await_image()

    def _await_image(self) -> CapturedFrame:
        give_up = self._clock.now() + FIRST_IMAGE
        while self._clock.now() < give_up and not self._closing.is_set():
            if (frame := self._take()) is not None:
                return frame
        raise DeviceError(
            f"camera {self.name}: it starts, but {self._complaint} within {FIRST_IMAGE:.0f} s; unplug it for a few "
            "seconds, give it a port of its own rather than a hub, and another cable"
        )

    @property
    def _complaint(self) -> str:
        return "the image does not change" if self._repetition.frozen else "no image comes"

    def _take(self) -> CapturedFrame | None:
        """Wait a little for an image; None where no new one came."""
        raw = self._stream.wait(POLL)
        if raw is None or (raw.number, raw.stamp) == self._last:
            return None
        self._last, now = (raw.number, raw.stamp), self._clock.now()
        captured = self._times.captured(raw.stamp, now, raw.latency)
        if self._repetition.add(raw.image, now):
            return None
        self._received = now
        return CapturedFrame(raw.image, captured)

    def _reconnect(self, problem: str) -> None:
        tries = self.config.reconnects
        for attempt in range(tries):
            if self._closing.is_set():
                return
            _log.warning("%s; reconnection %d of %d", problem, attempt + 1, tries)
            try:
                self._stream.close()
                if attempt:
                    self._stream.reset()
                self._start()
                self.reconnected += 1
                _log.warning("camera %s: back", self.name)
                return
            except DeviceError as error:
                problem = str(error)
        raise DeviceError(
            f"camera {self.name}: lost, {tries} reconnections did not help ({problem}); "
            "plug it in again, its own USB 3 port, another cable"
        )
