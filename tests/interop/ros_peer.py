"""The vendor's side of an A1X as a ROS 2 node (rclpy), needs nothing of this project: follows targets, feeds back.

Started by ros_drive.py in an environment with ROS 2 Jazzy; a line on the standard input makes it tell, as one line of
JSON, what it has received.
"""

from __future__ import annotations

import json
import select
import statistics
import sys
import time

import rclpy
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import JointState

PERIOD = 0.005  # s, the vendor's 200 Hz
TARGETS, GRIPPER_TARGETS = "/motion_target/target_joint_state_arm", "/motion_target/target_position_gripper"
START = [0.05, 1.3, -0.7, 0.1, 0.0, 0.0]  # rad


class Vendor(Node):
    """Joint driver, tracker and gripper controller around an arm that reaches its target at the message's speeds."""

    def __init__(self) -> None:
        super().__init__("hdas")
        self.positions, self.velocities = list(START), [0.0] * 6
        self.target: JointState | None = None
        self.opening = 40.0
        self.latencies: list[float] = []
        self.gripper_targets: list[float] = []
        self.published = 0
        best_effort = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self.create_subscription(JointState, TARGETS, self.hear, 10)
        self.create_subscription(JointState, GRIPPER_TARGETS, self.hear_gripper, best_effort)
        self.arm = self.create_publisher(JointState, "/hdas/feedback_arm", 10)
        self.gripper = self.create_publisher(JointState, "/hdas/feedback_gripper", best_effort)
        self.create_timer(PERIOD, self.tick)

    def hear(self, message: JointState) -> None:
        sent = message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec
        self.latencies.append(time.time() - sent)
        self.target = message

    def hear_gripper(self, message: JointState) -> None:
        self.gripper_targets.append(message.position[0])
        self.opening = message.position[0]

    def tick(self) -> None:
        if self.target is not None:
            for joint, (goal, speed) in enumerate(
                zip(self.target.position, self.target.velocity, strict=True)
            ):
                step = max(-speed * PERIOD, min(speed * PERIOD, goal - self.positions[joint]))
                self.positions[joint] += step
                self.velocities[joint] = step / PERIOD
        self.published += 1
        now = self.get_clock().now().to_msg()
        message = JointState(name=[*(f"arm_joint{joint}" for joint in range(1, 7)), "gripper"])
        message.header.stamp = now
        message.position = [*self.positions, -0.0283 * self.opening]
        message.velocity = [*self.velocities, 0.0]
        message.effort = [1e-6 * self.published, *[0.0] * 6]  # a sensor's noise: the feedback is alive
        self.arm.publish(message)
        message = JointState(name=["gripper"], position=[self.opening])
        message.header.stamp = now
        self.gripper.publish(message)

    def report(self) -> dict[str, object]:
        return {
            "targets": len(self.latencies),
            "latency_ms_p50": 1e3 * statistics.median(self.latencies) if self.latencies else None,
            "latency_ms_p99": 1e3 * sorted(self.latencies)[int(0.99 * len(self.latencies))]
            if self.latencies
            else None,
            "target_names": list(self.target.name) if self.target else [],
            "target_position": list(self.target.position) if self.target else [],
            "target_velocity": list(self.target.velocity) if self.target else [],
            "gripper_targets": self.gripper_targets,
            "published": self.published,
            "position": self.positions,
            "publishers_of_targets": len(self.get_publishers_info_by_topic(TARGETS)),
            "types": dict(self.get_topic_names_and_types()).get(TARGETS, []),
        }


def main() -> None:
    rclpy.init()
    vendor = Vendor()
    print("ready", flush=True)
    while True:
        rclpy.spin_once(vendor, timeout_sec=0.01)
        if select.select([sys.stdin], [], [], 0.0)[0]:
            if not sys.stdin.readline():
                return
            print(json.dumps(vendor.report()), flush=True)


if __name__ == "__main__":
    main()
