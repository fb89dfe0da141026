"""VendorTopics: the vendor's ROS 2 topics over DDS, without ROS. The only user of `cyclonedds` beside its messages."""

from __future__ import annotations

import time
from xml.sax.saxutils import quoteattr

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.internal import InvalidSample
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from robot.arms.a1x_config import A1XConfig
from robot.arms.a1x_messages import Header, JointState, Time
from robot.types import Array

WRITE_TIMEOUT = duration(milliseconds=20)
NEWEST = Policy.History.KeepLast(1)
COMMAND = Qos(Policy.Reliability.Reliable(WRITE_TIMEOUT), NEWEST)
# A reader that asks for less matches reliable and best-effort writers alike.
FEEDBACK = Qos(Policy.Reliability.BestEffort, NEWEST)
OTHERS = Qos(Policy.Reliability.BestEffort, NEWEST, Policy.IgnoreLocal.Participant)


class Participation:
    """Membership in a DDS domain; it ends, with all readers and writers, when the last reference goes."""

    def __init__(self, config: A1XConfig) -> None:
        settings = network_settings(config)
        # Without settings CycloneDDS goes by CYCLONEDDS_URI, as the vendor's own programs do.
        self._domain = None if settings is None else Domain(config.domain_id, settings)
        self.participant = DomainParticipant(config.domain_id)

    def topic(self, name: str) -> Topic[JointState]:
        """The DDS topic behind ROS topic /`name`."""
        return Topic(self.participant, f"rt{name}", JointState)


class VendorTopics:
    """What the driver reads and writes. Every call returns at once."""

    def __init__(self, config: A1XConfig) -> None:
        self._config = config
        self._participation = Participation(config)
        participant, topic = self._participation.participant, self._participation.topic
        targets = topic(config.target_topic)
        self._targets = DataWriter(participant, targets, qos=COMMAND)
        self._gripper_targets = DataWriter(participant, topic(config.gripper_topic), qos=COMMAND)
        self._feedback = DataReader(participant, topic(config.feedback_topic), qos=FEEDBACK)
        self._gripper = DataReader(participant, topic(config.gripper_feedback_topic), qos=FEEDBACK)
        self._others = DataReader(participant, targets, qos=OTHERS)

    def feedback(self) -> JointState | None:
        """The newest measured joints since the last call; None without any."""
        return _newest(self._feedback)

    def gripper(self) -> JointState | None:
        """The newest measured gripper since the last call; None without any."""
        return _newest(self._gripper)

    def send_joints(self, joint_positions: Array) -> None:
        """Target (6,) [rad] of the vendor's joint tracker, with the speeds that it must not exceed."""
        config = self._config
        self._targets.write(
            JointState(
                header=_header(),
                name=list(config.joint_names),
                position=joint_positions.tolist(),
                velocity=list(config.max_joint_velocities),
            )
        )

    def send_gripper(self, percent: float) -> None:
        """Target of the vendor's gripper controller, 0 closed to 100 open."""
        self._gripper_targets.write(JointState(header=_header(), name=["gripper"], position=[percent]))

    def unheard(self) -> list[str]:
        """Command topics that nobody subscribes to."""
        writers = {
            self._config.target_topic: self._targets,
            self._config.gripper_topic: self._gripper_targets,
        }
        return [name for name, writer in writers.items() if not writer.get_matched_subscriptions()]

    def contested(self) -> bool:
        """Somebody else publishes joint targets too."""
        return bool(self._others.get_matched_publications())


def network_settings(config: A1XConfig) -> str | None:
    """CycloneDDS settings as XML, None where the config leaves the network to it."""
    if config.interface is None and not config.peers:
        return None
    network, discovery = "", ""
    if config.interface is not None:
        name = quoteattr(config.interface)
        network += f"<Interfaces><NetworkInterface name={name}/></Interfaces>"
    if config.peers:
        network += "<AllowMulticast>false</AllowMulticast>"
        peers = "".join(f"<Peer Address={quoteattr(peer)}/>" for peer in config.peers)
        discovery = f"<Discovery><ParticipantIndex>auto</ParticipantIndex><Peers>{peers}</Peers></Discovery>"
    return f"<CycloneDDS><Domain><General>{network}</General>{discovery}</Domain></CycloneDDS>"


def _newest(reader: DataReader[JointState]) -> JointState | None:
    # A writer that leaves shows as an invalid sample.
    samples = [sample for sample in reader.take(N=8) if not isinstance(sample, InvalidSample)]
    return samples[-1] if samples else None


def _header() -> Header:
    # ROS stamps are seconds since 1970; the robot's clock counts from elsewhere.
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    return Header(stamp=Time(sec=seconds, nanosec=nanoseconds))
