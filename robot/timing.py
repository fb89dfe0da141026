"""TimingConfig: the period of the control loop, and how old an image or an observation may be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TimingConfig:
    """Times of the control loop, in seconds."""

    control_period: float = 0.1
    late_frame_age: float = 0.1  # an older image is reported as late
    max_frame_age: float = 0.3  # an older image is not shown to a policy
    max_observation_age: float = 0.75  # of an older observation no action is taken any more
    frame_timeout: float = 1.0  # how long to hold and wait for a fresh one
    camera_recovery: float = 40.0  # how long to wait between episodes while a camera is connected anew
    frame_poll: float = 0.01

    def __post_init__(self) -> None:
        if not 0.02 <= self.control_period <= 1.0:
            raise ValueError(f"TimingConfig.control_period: expected 0.02 to 1 s, got {self.control_period}")
        if not (0 < self.late_frame_age <= self.max_frame_age):
            raise ValueError(
                "TimingConfig: expected 0 < late_frame_age <= max_frame_age, got "
                f"{self.late_frame_age} and {self.max_frame_age} s"
            )
        if not (self.frame_timeout > 0 and self.frame_poll > 0 and self.camera_recovery > 0):
            raise ValueError("TimingConfig: frame_timeout, frame_poll and camera_recovery must be > 0 s")
        if not self.max_observation_age > 0:
            raise ValueError(
                f"TimingConfig.max_observation_age: expected more than 0 s, got {self.max_observation_age}"
            )
