"""Drives the A1X of a real ROS 2 node through our driver, governor and environment, and compares what both sides saw.

Run by `make test-ros`: python -m tests.interop.ros_drive <interpreter with ROS 2 Jazzy>
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from robot.arms.a1x_config import A1XConfig
from robot.clock import WallClock
from robot.factory import ClockKind, ObsKind, RobotConfig, RobotKind, make_robot_env
from robot.interfaces import RobotFault
from robot.safety import GovernorState, GovernorTransition
from tests.robot.simulated_a1x import CELL, Agreeable

CLOCK = WallClock()
STEPS = 100
FORWARD = np.array([1, 0, 0, 0, 0, 0, 0], np.float32)


class RosVendor:
    """The node of ros_peer.py in its own interpreter, on loopback."""

    def __init__(self, interpreter: str, domain_id: int) -> None:
        self.config = A1XConfig(
            domain_id=domain_id, interface="lo", peers=["127.0.0.1"], connect_timeout=30.0
        )
        self.process = subprocess.Popen(
            [interpreter, str(Path(__file__).with_name("ros_peer.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ
            | {
                "ROS_DOMAIN_ID": str(domain_id),
                "RMW_IMPLEMENTATION": "rmw_fastrtps_cpp",
                "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
                "OMP_NUM_THREADS": "1",
            },
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line != "ready\n":
            raise SystemExit(f"the ROS 2 node did not start: it said {line!r}, exit {self.process.wait()}")

    def report(self) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("report\n")
        self.process.stdin.flush()
        report: dict[str, Any] = json.loads(self.process.stdout.readline())
        return report

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def expect(what: str, holds: bool, seen: object) -> bool:
    print(f"{'ok  ' if holds else 'FAIL'}  {what}: {seen}")
    return holds


def main(interpreter: str) -> int:
    seen: list[tuple[GovernorTransition, float]] = []
    vendor = RosVendor(interpreter, 100 + os.getpid() % 100)
    config = RobotConfig(
        kind=RobotKind.A1X,
        task="reach",
        clock=ClockKind.WALL,
        obs=ObsKind.STATE,
        cell=replace(CELL, max_steps=STEPS + 10),
        a1x=vendor.config,
    )
    env = make_robot_env(
        config, operator=Agreeable(), on_transition=lambda change: seen.append((change, CLOCK.now()))
    )
    try:
        env.reset()
        ages = []
        for step in range(STEPS):
            env.step(FORWARD if step // 10 % 2 == 0 else -FORWARD)
            ages.append(CLOCK.now() - env.robot._arm.state().timestamp)
        env.robot.hold()
        env.robot._arm.send_gripper(0.75)
        CLOCK.sleep_until(CLOCK.now() + 0.5)
        state, told = env.robot._arm.state(), vendor.report()
        speeds = vendor.config.capped(CELL.max_joint_speed).max_joint_velocities
        sent = env.robot._arm._stream._ramp.command()  # type: ignore[attr-defined]
        holds = [
            expect("the node knows the type", told["types"] == ["sensor_msgs/msg/JointState"], told["types"]),
            expect(
                "one publisher of targets", told["publishers_of_targets"] == 1, told["publishers_of_targets"]
            ),
            # 100 Hz for the steps and half a second; a busy machine sends fewer, never more
            expect("targets received", told["targets"] > 50 * STEPS / 10, told["targets"]),
            expect("joints by name", told["target_names"] == vendor.config.joint_names, told["target_names"]),
            expect("speeds", told["target_velocity"] == speeds, "as configured, at most the cell's"),
            expect("the last target, bit for bit", told["target_position"] == sent.tolist(), sent.round(4)),
            expect("gripper", told["gripper_targets"][-1:] == [75.0], told["gripper_targets"]),
            expect("gripper as measured", abs(state.gripper_opening - 0.75) < 1e-9, state.gripper_opening),
            expect(
                "joints as measured",
                bool(np.abs(state.joint_positions - told["position"]).max() < 1e-9),
                state.joint_positions.round(4),
            ),
            expect(
                "target to node",
                told["latency_ms_p50"] < 20.0,
                f"{told['latency_ms_p50']:.2f} ms (99%: {told['latency_ms_p99']:.1f})",
            ),
            expect(
                "age of the feedback",
                float(np.median(ages)) < 0.03,
                f"{1e3 * np.median(ages):.1f} ms (99%: {1e3 * np.percentile(ages, 99):.1f})",
            ),
        ]
        env.step(FORWARD)
        seen.clear()
        killed = CLOCK.now()
        vendor.kill()
        try:
            for _ in range(20):
                env.step(FORWARD)
        except RobotFault as fault:
            holds.append(expect("fault when the node dies", fault.name == "stale_feedback", fault.name))
        held = [when - killed for change, when in seen if change.after is GovernorState.HOLDING]
        holds.append(
            expect("hold when the node dies", bool(held) and held[0] < 0.7, f"{1e3 * held[0]:.0f} ms")
        )
    finally:
        env.close()
        vendor.kill()
    return 0 if all(holds) and len(holds) == 13 else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
