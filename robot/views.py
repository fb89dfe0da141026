"""Views: the cameras of a robot as one; their images are fresh, or the arm holds until they are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from robot.feedback import Reason
from robot.interfaces import Camera, Clock, DeviceError, Frame, RobotFault

_log = logging.getLogger(__name__)


class Views:
    """What stands between cameras and a policy. hold: makes the arm hold, at any moment."""

    def __init__(
        self,
        cameras: Sequence[Camera],
        clock: Clock,
        hold: Callable[[], None],
        *,
        max_age: float,
        poll: float,
    ) -> None:
        """max_age [s]: an image that is older, or as far in the future, is not shown.

        poll: seconds between two looks for a fresher one.
        """
        self.cameras = tuple(cameras)
        self._clock, self._hold = clock, hold
        self._max_age, self._poll = max_age, poll

    def fresh(self, timeout: float) -> dict[str, Frame]:
        """The newest image of each view, holding while one is stale.

        Raises RobotFault `stale_frame` after `timeout` [s], `camera_lost` where a device is gone.
        """
        give_up: float | None = None
        while True:
            frames = self._read()
            now = self._clock.now()
            # NaN, and a stamp in the future, are as unusable as an old one.
            stale = {
                v: frame for v, frame in frames.items() if not abs(now - frame.timestamp) <= self._max_age
            }
            if not stale:
                return frames
            if give_up is None:
                self._hold()
                give_up = now + timeout
                _log.warning("the arm holds for a fresh image: %s", _described(stale, now))
            elif now >= give_up:
                raise RobotFault(
                    Reason.STALE_FRAME,
                    f"expected images younger than {self._max_age} s, got {_described(stale, now)} after waiting "
                    f"{timeout} s; {_remedy(stale, now)}",
                )
            self._clock.sleep_until(now + self._poll)

    def _read(self) -> dict[str, Frame]:
        try:
            return {camera.name: camera.read() for camera in self.cameras}
        except DeviceError as error:
            self._hold()
            raise RobotFault(Reason.CAMERA_LOST, str(error)) from error


def _described(stale: Mapping[str, Frame], now: float) -> str:
    return ", ".join(
        f"{view} ({now - frame.timestamp:.2f} s old{', the image does not change' if frame.frozen else ''})"
        for view, frame in stale.items()
    )


def _remedy(stale: Mapping[str, Frame], now: float) -> str:
    if not all(frame.timestamp <= now for frame in stale.values()):
        return "the camera stamps its images with another clock than the robot's: connect it anew, report it"
    if any(frame.frozen for frame in stale.values()):
        return "the camera hangs, or its lens is covered: look at it, and unplug it for a few seconds"
    return "check the camera's cable and its USB port"
