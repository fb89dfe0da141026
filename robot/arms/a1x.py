"""A1XArm: a Galaxea A1X behind the vendor's ROS 2 topics; joint targets go out at 100 Hz from a thread.

It calls none of the vendor's services: enabling, calibrating and clearing errors stay with the vendor's own tools.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from robot.arms.a1x_config import A1XConfig
from robot.arms.stream import JointStream
from robot.interfaces import ArmState, Clock, DeviceError
from robot.kinematics import JOINT_LIMITS
from robot.types import Array

if TYPE_CHECKING:
    from robot.arms.a1x_messages import JointState
    from robot.arms.a1x_topics import VendorTopics

FRESH = 0.1  # s; older feedback is no place to hold at
POLL = 0.02  # s between looks while connecting


class A1XArm:
    """The physical arm. Its state's timestamp is when the message was received, within one period of the stream.

    max_joint_speed [rad/s]: of every motion, and of what the vendor's tracker may use.
    """

    def __init__(self, config: A1XConfig, clock: Clock, *, max_joint_speed: float) -> None:
        self.joint_limits: Array = JOINT_LIMITS.copy()
        self._config = config.capped(max_joint_speed)
        self._clock = clock
        self._stream = JointStream(
            "a1x stream", self._poll, self._send, clock, hz=config.stream_hz, max_speed=max_joint_speed
        )
        self._lock = Lock()  # around the newest feedback
        self._topics: VendorTopics | None = None
        self._forget()

    def _forget(self) -> None:
        self._feedback: JointState | None = None
        self._received = self._opening_at = -np.inf
        self._opening = np.nan
        self._order: list[int] = []

    def connect(self) -> None:
        """Join the vendor's topics and wait for feedback and subscribers; raises DeviceError with the remedy.

        Nothing is sent: until the first command the arm does as it did before.
        """
        if self._topics is not None:
            return
        try:
            from cyclonedds.core import DDSException

            from robot.arms.a1x_topics import VendorTopics
        except ImportError as error:
            raise DeviceError(
                f"a1x: the package cyclonedds is missing ({error}); pip install 'groundhog[a1x]'"
            ) from error
        self._forget()
        try:
            self._topics = VendorTopics(self._config)
        except DDSException as error:
            raise DeviceError(
                f"a1x: cannot join DDS domain {self._config.domain_id}: {error}; check robot.a1x.interface and "
                "robot.a1x.peers, and that no other arm of this program is connected to the same domain"
            ) from error
        try:
            self._await_vendor(self._topics)
        except DeviceError:
            self._topics = None
            raise
        self._stream.start()

    def state(self) -> ArmState:
        """The newest measured state; DeviceError without connection or where the stream has died.

        What a message leaves out, and a gripper that has been silent for long, is NaN or missing, never made up.
        """
        self._require_topics()
        self._stream.check()
        self._poll()
        with self._lock:
            message, received = self._feedback, self._received
            opening, opening_at = self._opening, self._opening_at
        assert message is not None  # connect() has waited for it
        if self._clock.now() - opening_at > self._config.gripper_max_age:
            opening = np.nan
        return ArmState(
            self._pick(message.position),
            self._pick(message.velocity),
            self._pick(message.effort),
            opening,
            received,
            self._stream.commanded,
        )

    def send_joints(self, joint_positions: Array, duration: float) -> None:
        """Move linearly in joint space to finite (6,) [rad] within `duration` [s], or as fast as allowed.

        Raises DeviceError. The first motion starts at the measured joints, every later one at the present command.
        """
        topics = self._require_topics()
        self._stream.check()
        if joint_positions.shape != (6,) or not np.isfinite(joint_positions).all():
            raise DeviceError(f"a1x: expected six finite joint angles, got {joint_positions}")
        self._require_listeners(topics)
        measured = self.state().joint_positions
        finite = measured.shape == (6,) and bool(np.isfinite(measured).all())
        # Feedback that turned bad since the governor looked is the governor's to judge, a moment later.
        if not finite and self._stream.commanded is None:
            raise DeviceError(f"a1x: expected six finite measured joints to start from, got {measured}")
        self._stream.move(joint_positions, duration, measured)

    def send_gripper(self, opening: float) -> None:
        """Drive the gripper to `opening` in [0, 1]."""
        topics = self._require_topics()
        if not 0.0 <= opening <= 1.0:
            raise DeviceError(f"a1x: expected a gripper opening in [0, 1], got {opening}")
        topics.send_gripper(100.0 * opening)

    def hold(self) -> None:
        """Stop at the measured joints, or where feedback is old at the present command, and stay."""
        if self._topics is not None:
            self._stream.hold()

    def close(self) -> None:
        """Hold, if it has ever been commanded, and leave the topics; the arm stays energised and holds."""
        if self._topics is not None:
            self._stream.finish()
            self._topics = None

    def _send(self, joint_positions: Array) -> None:
        if self._topics is not None:
            self._topics.send_joints(joint_positions)

    def _poll(self) -> Array | None:
        """Take in what has come; returns the measured joints where they are fresh."""
        topics = self._topics
        if topics is None:
            return None
        with self._lock:
            feedback, gripper, now = topics.feedback(), topics.gripper(), self._clock.now()
            if feedback is not None:
                self._feedback, self._received = feedback, now
            if gripper is not None and len(gripper.position):
                # Encoders read a little beyond the ends of the stroke.
                self._opening = float(np.clip(gripper.position[0] / 100.0, 0.0, 1.0))
                self._opening_at = now
            message, received = self._feedback, self._received
        return self._pick(message.position) if message is not None and now - received <= FRESH else None

    def _pick(self, values: Sequence[float]) -> Array:
        """The six joints of a message's list in our order; fewer where it is too short, for the governor to see."""
        return np.array([values[i] for i in self._order if i < len(values)], dtype=np.float64)

    def _require_topics(self) -> VendorTopics:
        if self._topics is None:
            raise DeviceError("a1x: not connected; call connect() first")
        return self._topics

    def _require_listeners(self, topics: VendorTopics) -> None:
        unheard = topics.unheard()
        if unheard:
            raise DeviceError(
                f"a1x: nobody subscribes to {' and '.join(unheard)} in DDS domain {self._config.domain_id}, so "
                "commands would be lost; start the vendor's joint tracker and gripper controller "
                "(ros2 launch mobiman A1x_jointTrackerdemo_launch.py, A1xy_gripperController_launch.py)"
            )
        if topics.contested():
            raise DeviceError(
                f"a1x: another program publishes on {self._config.target_topic} too; two sources would make the "
                "arm jump between them, stop the other one"
            )

    def _await_vendor(self, topics: VendorTopics) -> None:
        give_up = self._clock.now() + self._config.connect_timeout
        while self._clock.now() < give_up:
            self._poll()
            if self._feedback is not None and np.isfinite(self._opening) and not topics.unheard():
                break
            self._clock.sleep_until(self._clock.now() + POLL)
        if self._feedback is None or not np.isfinite(self._opening):
            silent = (
                self._config.feedback_topic if self._feedback is None else self._config.gripper_feedback_topic
            )
            ros = os.environ.get("ROS_DOMAIN_ID", "not set")
            raise DeviceError(
                f"a1x: nothing came on {silent} in DDS domain {self._config.domain_id} within "
                f"{self._config.connect_timeout:.0f} s; start the vendor's driver (ros2 launch HDAS a1xy.py) and "
                f"set robot.a1x.domain_id to its ROS_DOMAIN_ID (here: {ros})"
            )
        self._require_listeners(topics)
        self._order = _joint_order(self._feedback, self._config)


def _joint_order(message: JointState, config: A1XConfig) -> list[int]:
    """Where each of our joints stands in the vendor's lists; raises DeviceError where that is not certain."""
    names = list(message.name)
    if names and not set(config.joint_names) <= set(names):
        raise DeviceError(
            f"a1x: {config.feedback_topic} carries joints {names}, expected {config.joint_names} among them; "
            "set robot.a1x.joint_names"
        )
    order = [names.index(name) for name in config.joint_names] if names else list(range(6))
    lengths = {
        "position": len(message.position),
        "velocity": len(message.velocity),
        "effort": len(message.effort),
    }
    if min(lengths.values()) <= max(order):
        raise DeviceError(
            f"a1x: expected six joints in each list of {config.feedback_topic}, got lengths {lengths}; "
            "check the vendor's driver"
        )
    return order
