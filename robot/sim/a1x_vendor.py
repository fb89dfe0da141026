"""The vendor's side of an A1X, simulated: MuJoCo behind the same ROS 2 topics, in a process of its own.

    python -m robot.sim.a1x_vendor [--domain 0] [--interface lo --peer 127.0.0.1] [--task press] [--without-tracker]

The driver cannot tell it from the vendor's software, so that everything but the arm can be tried without one. Lines on
the standard input make it fail: `nan <joint>`, `frozen`, `stale`, `deaf` (targets are ignored), `shove <joint> <rad>`
(somebody pushes the arm), `effort <joint> <Nm>`, `heal`, `quit`.
"""

from __future__ import annotations

import argparse
import select
import sys
from collections.abc import Sequence

import numpy as np

from robot.arms.a1x_config import VENDOR_MAX_VELOCITIES, A1XConfig
from robot.arms.a1x_messages import Header, JointState, Time
from robot.arms.a1x_topics import FEEDBACK, Participation
from robot.clock import WallClock
from robot.factory import make_task
from robot.interfaces import ArmState
from robot.sim.arm import SimArm, SimFaults
from robot.sim.scene import build_scene
from robot.sim.world import SimWorld, WorldConfig
from robot.types import Array

try:
    from cyclonedds.core import Policy, Qos
    from cyclonedds.internal import InvalidSample
    from cyclonedds.pub import DataWriter
    from cyclonedds.sub import DataReader
    from cyclonedds.util import duration
except ImportError as error:
    raise SystemExit(f"the package cyclonedds is missing ({error}); pip install 'groundhog[a1x]'") from error

PERIOD = 0.005  # s, the vendor's 200 Hz
GRIPPER_RAW = -2.83  # what the vendor's seventh entry of the arm's feedback reads at full opening
RELIABLE = Qos(Policy.Reliability.Reliable(duration(milliseconds=50)), Policy.History.KeepLast(10))


class SimulatedVendor:
    """The vendor's driver, joint tracker and gripper controller around one simulated arm, in real time."""

    def __init__(self, config: A1XConfig, task_name: str, *, tracker: bool = True) -> None:
        task = make_task(task_name)
        self._clock = WallClock()
        self._faults = SimFaults()
        world = SimWorld(
            build_scene(task.objects(), task.scene), self._clock, WorldConfig(stream_period=PERIOD)
        )
        world.place_arm(task.spec.reset_joints, task.spec.initial_gripper)
        self._world = world
        self._arm = SimArm(world, self._faults)
        self._arm.connect()
        self._config = config
        self._participation = Participation(config)
        participant, topic = self._participation.participant, self._participation.topic
        self._feedback = DataWriter(participant, topic(config.feedback_topic), qos=RELIABLE)
        self._gripper = DataWriter(participant, topic(config.gripper_feedback_topic), qos=RELIABLE)
        self._targets = None
        if tracker:
            self._targets = DataReader(participant, topic(config.target_topic), qos=FEEDBACK)
        self._gripper_targets = DataReader(participant, topic(config.gripper_topic), qos=FEEDBACK)
        self._deaf = False
        self._extra_effort = np.zeros(6)
        self._target: Array | None = None

    def run(self) -> None:
        """Until `quit`, or until the standard input ends."""
        print("ready", flush=True)
        due = self._clock.now()
        while self._obey():
            self._follow_targets()
            self._publish(self._arm.state())
            due = max(due + PERIOD, self._clock.now())
            self._clock.sleep_until(due)

    def _follow_targets(self) -> None:
        for sample in self._targets.take(N=8) if self._targets is not None else ():
            if isinstance(sample, InvalidSample) or len(sample.position) != 6 or self._deaf:
                continue
            target = np.array(sample.position)
            if self._target is not None and np.array_equal(target, self._target):
                continue
            self._target = target
            # The vendor's tracker slews within the speeds of the message, capped by its own.
            speeds = np.minimum(sample.velocity, VENDOR_MAX_VELOCITIES)
            way = np.abs(target - self._world.servo_targets)
            self._arm.send_joints(target, max(float((way / speeds).max()), PERIOD))
        for sample in self._gripper_targets.take(N=8):
            if not isinstance(sample, InvalidSample) and len(sample.position) and not self._deaf:
                self._arm.send_gripper(float(np.clip(sample.position[0] / 100.0, 0.0, 1.0)))

    def _publish(self, state: ArmState) -> None:
        if self._faults.stale_feedback:
            return
        seconds = int(state.timestamp)
        header = Header(Time(seconds, int((state.timestamp - seconds) * 1e9)), "base_link")
        efforts = state.joint_efforts + self._extra_effort
        self._feedback.write(
            JointState(
                header,
                [*self._config.joint_names, "gripper"],
                [*state.joint_positions.tolist(), GRIPPER_RAW * state.gripper_opening],
                [*state.joint_velocities.tolist(), 0.0],
                [*efforts.tolist(), 0.0],
            )
        )
        self._gripper.write(JointState(header, ["gripper"], [100.0 * state.gripper_opening]))

    def _obey(self) -> bool:
        """Do what a line on the standard input says; False to end."""
        if not select.select([sys.stdin], [], [], 0.0)[0]:
            return True
        match sys.stdin.readline().split():
            case ["nan", joint]:
                self._faults.nan_joint = int(joint)
            case ["frozen"]:
                self._faults.frozen_feedback = True
            case ["stale"]:
                self._faults.stale_feedback = True
            case ["deaf"]:
                self._deaf = True
            case ["shove", joint, angle]:
                self._deaf = True
                self._arm.send_joints(
                    self._arm.state().joint_positions + float(angle) * np.eye(6)[int(joint)], 0.2
                )
            case ["effort", joint, newton_metres]:
                self._extra_effort[int(joint)] = float(newton_metres)
            case ["heal"]:
                self._deaf = False
                self._extra_effort[:] = 0.0
                for field, value in vars(SimFaults()).items():
                    setattr(self._faults, field, value)
            case ["quit"] | []:
                return False
            case words:
                print(f"no such command: {' '.join(words)}", file=sys.stderr, flush=True)
        return True


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--domain", type=int, default=0)
    parser.add_argument("--interface")
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--task", default="press")
    parser.add_argument("--without-tracker", action="store_true", help="as if it had not been started")
    options = parser.parse_args(argv)
    config = A1XConfig(domain_id=options.domain, interface=options.interface, peers=options.peer)
    SimulatedVendor(config, options.task, tracker=not options.without_tracker).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
