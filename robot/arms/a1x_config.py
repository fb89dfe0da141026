"""A1XConfig: where the vendor's software of a Galaxea A1X listens and what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from robot.kinematics import JOINTS

VENDOR_MAX_VELOCITIES = (3.0, 3.0, 3.0, 5.0, 5.0, 5.0)  # rad/s


@dataclass(frozen=True)
class A1XConfig:
    """The vendor's topics and the DDS network on which they live."""

    domain_id: int = 0  # ROS_DOMAIN_ID of the vendor's software
    interface: str | None = None  # network interface towards it; None: as CYCLONEDDS_URI says
    peers: list[str] = field(default_factory=list)  # its addresses, where multicast does not pass
    target_topic: str = "/motion_target/target_joint_state_arm"
    gripper_topic: str = "/motion_target/target_position_gripper"
    feedback_topic: str = "/hdas/feedback_arm"
    gripper_feedback_topic: str = "/hdas/feedback_gripper"
    joint_names: list[str] = field(default_factory=lambda: [joint.name for joint in JOINTS])
    max_joint_velocities: list[float] = field(default_factory=lambda: list(VENDOR_MAX_VELOCITIES))  # rad/s
    stream_hz: float = 100.0
    connect_timeout: float = 5.0  # s
    gripper_max_age: float = 1.0  # s; older gripper feedback reads as unknown

    def __post_init__(self) -> None:
        if not 0 <= self.domain_id <= 232:
            raise ValueError(f"robot.a1x.domain_id: expected 0 to 232, got {self.domain_id}")
        for name in ("target_topic", "gripper_topic", "feedback_topic", "gripper_feedback_topic"):
            if not getattr(self, name).startswith("/"):
                raise ValueError(f"robot.a1x.{name}: expected a name like /topic, got {getattr(self, name)}")
        if len(self.joint_names) != 6 or len(set(self.joint_names)) != 6:
            raise ValueError(f"robot.a1x.joint_names: expected six names, each once, got {self.joint_names}")
        if len(self.max_joint_velocities) != 6 or not all(
            0.0 < velocity <= cap
            for velocity, cap in zip(self.max_joint_velocities, VENDOR_MAX_VELOCITIES, strict=True)
        ):
            raise ValueError(
                f"robot.a1x.max_joint_velocities: expected six speeds > 0, at most {VENDOR_MAX_VELOCITIES} "
                f"rad/s as the vendor allows, got {self.max_joint_velocities}"
            )
        if not 20.0 <= self.stream_hz <= 500.0:
            raise ValueError(f"robot.a1x.stream_hz: expected 20 to 500, got {self.stream_hz}")
        if not (self.connect_timeout > 0.0 and self.gripper_max_age > 0.0):
            raise ValueError("robot.a1x: connect_timeout and gripper_max_age must be > 0 s")

    def capped(self, max_joint_speed: float) -> A1XConfig:
        """As this one, with no joint faster than `max_joint_speed` [rad/s]."""
        speeds = [min(speed, max_joint_speed) for speed in self.max_joint_velocities]
        return replace(self, max_joint_velocities=speeds)
