"""ROS 2 messages of the A1X's topics as they travel over DDS, by the names that ROS gives their types.

CycloneDDS reads the annotations as types: they must not be postponed to strings.
"""

from dataclasses import dataclass, field

from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import float64, int32, sequence, uint32


@dataclass
class Time(IdlStruct, typename="builtin_interfaces::msg::dds_::Time_"):  # type: ignore[call-arg, misc]
    """Seconds and nanoseconds since 1970."""

    sec: int32 = 0
    nanosec: uint32 = 0


@dataclass
class Header(IdlStruct, typename="std_msgs::msg::dds_::Header_"):  # type: ignore[call-arg, misc]
    """When, and in which frame."""

    stamp: Time = field(default_factory=Time)
    frame_id: str = ""


@dataclass
class JointState(IdlStruct, typename="sensor_msgs::msg::dds_::JointState_"):  # type: ignore[call-arg, misc]
    """Positions [rad], velocities [rad/s], efforts [Nm] of the joints in `name`; each list may be empty."""

    header: Header = field(default_factory=Header)
    name: sequence[str] = field(default_factory=list)
    position: sequence[float64] = field(default_factory=list)
    velocity: sequence[float64] = field(default_factory=list)
    effort: sequence[float64] = field(default_factory=list)
