"""Views: the cameras of a robot as one; their images are fresh, or the arm holds until they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from robot.interfaces import Camera, Clock, DeviceError, Frame, RobotFault


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
        """max_age [s]: an older image is not shown. poll: seconds between two looks for a fresher one."""
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
            ages = {view: now - frame.timestamp for view, frame in frames.items()}
            stale = [view for view, age in ages.items() if age > self._max_age]
            if not stale:
                return frames
            if give_up is None:
                self._hold()
                give_up = now + timeout
            elif now >= give_up:
                listed = ", ".join(f"{view} ({ages[view]:.2f} s old)" for view in stale)
                raise RobotFault(
                    "stale_frame",
                    f"expected images younger than {self._max_age} s, got {listed} after waiting {timeout} s; check "
                    "the camera's cable and its USB port",
                )
            self._clock.sleep_until(now + self._poll)

    def _read(self) -> dict[str, Frame]:
        try:
            return {camera.name: camera.read() for camera in self.cameras}
        except DeviceError as error:
            self._hold()
            raise RobotFault("camera_lost", str(error)) from error
