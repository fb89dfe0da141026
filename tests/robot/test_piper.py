"""The Piper driver through the vendor's real SDK, on a python-can virtual bus with a simulated arm at the other end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("piper_sdk", reason="needs the piper extra: pip install -e '.[piper]'")

from piper_sdk import C_PiperForwardKinematics

from robot.arms.piper import PiperArm, PiperConfig, piper_geometry
from robot.clock import WallClock
from robot.factory import make_robot_env
from robot.interfaces import DeviceError, RobotFault
from robot.kinematics import Kinematics
from robot.safety import GovernorState
from tests.robot.simulated_a1x import Agreeable
from tests.robot.simulated_piper import START, SimulatedPiper

pytestmark = pytest.mark.wall_clock

CLOCK = WallClock()
FORWARD = np.array([1, 0, 0, 0, 0, 0, 0], np.float32)


@pytest.fixture
def piper() -> Iterator[SimulatedPiper]:
    with SimulatedPiper() as simulated:
        yield simulated


def test_kinematics_are_the_vendors() -> None:
    kinematics, vendor = Kinematics(piper_geometry(0.0)), C_PiperForwardKinematics()
    rng = np.random.default_rng(0)
    for _ in range(20):
        joints = rng.uniform(kinematics.joint_limits[:, 0], kinematics.joint_limits[:, 1])
        x, y, z, *_ = vendor.CalFK(joints.tolist())[-1]
        np.testing.assert_allclose(kinematics.forward(joints).position, 1e-3 * np.array([x, y, z]), atol=1e-9)
    near, far = (Kinematics(piper_geometry(x)).forward(START) for x in (0.0, 0.1))
    np.testing.assert_allclose(far.position - near.position, 0.1 * near.rotation[:, 0], atol=1e-12)


def test_connecting_sends_nothing(piper: SimulatedPiper) -> None:
    arm = PiperArm(piper.config, CLOCK, max_joint_speed=1.0)
    arm.connect()
    state = arm.state()
    np.testing.assert_allclose(state.joint_positions, START, atol=1e-4)
    assert state.joint_efforts[0] == pytest.approx(0.5 * 1.18125, abs=0.01)
    CLOCK.sleep_until(CLOCK.now() + 0.1)
    arm.close()
    assert piper.sent == {}


def test_only_documented_frames_are_sent_and_the_motors_are_never_switched(piper: SimulatedPiper) -> None:
    arm = PiperArm(piper.config, CLOCK, max_joint_speed=1.0)
    arm.connect()
    arm.send_joints(START + 0.1, 0.1)
    arm.send_gripper(1.0)
    CLOCK.sleep_until(CLOCK.now() + 0.3)
    arm.hold()
    arm.close()
    assert set(piper.sent) == {0x151, 0x155, 0x156, 0x157, 0x159}
    assert piper.mode[:4] == bytes([0x01, 0x01, 50, 0x00])  # CAN, joints, speed, position mode


def test_an_arm_behind_the_governor(piper: SimulatedPiper) -> None:
    operator = Agreeable()
    env = make_robot_env(piper.robot(), operator=operator)
    env.reset()
    for _ in range(5):
        _, _, _, _, info = env.step(FORWARD)
    assert info["action"][0] > 0.5
    assert (
        env.robot._governor.target.pose.position[0]
        > Kinematics(piper_geometry(0.14)).forward(START).position[0]
    )
    piper.silent = True
    with pytest.raises(RobotFault, match="stale_feedback"):
        for _ in range(10):
            env.step(FORWARD)
    assert env.robot._governor.state is GovernorState.FAULTED
    env.close()


def test_power_that_returns_to_a_held_arm_moves_nothing_before_a_person_agrees(
    piper: SimulatedPiper, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_robot_env(piper.robot(), operator=Agreeable())
    env.reset()
    env.step(np.zeros(7, np.float32))
    env.hold()
    with monkeypatch.context() as off:
        off.setattr(piper, "_obey", lambda *_: None)  # the motors are off, the encoders still report
        piper.joints = piper.target = piper.joints + np.array([0.4, 0.3, 0, 0, 0, 0])
        lying = piper.joints.copy()
        CLOCK.sleep_until(CLOCK.now() + 1.0)
    CLOCK.sleep_until(CLOCK.now() + 0.4)
    np.testing.assert_allclose(piper.joints, lying, atol=1e-3)
    assert env.robot._governor.fault is not None and env.robot._governor.fault.reason == "lag"
    env.close()


def test_refuses_a_silent_bus() -> None:
    config = PiperConfig(channel="nobody-there", interface="virtual", connect_timeout=0.2)
    with pytest.raises(DeviceError, match=r"no feedback of its joints, motors, gripper on virtual bus"):
        PiperArm(config, CLOCK, max_joint_speed=1.0).connect()


def test_refuses_motors_that_are_off() -> None:
    with SimulatedPiper(enabled=False) as piper:
        arm = PiperArm(replace(piper.config, connect_timeout=0.5), CLOCK, max_joint_speed=1.0)
        with pytest.raises(DeviceError, match=r"motors of joints \[1, 2, 3, 4, 5, 6\] are off"):
            arm.connect()


def test_refuses_a_bus_that_does_not_exist() -> None:
    with pytest.raises(DeviceError, match="cannot open socketcan bus no-such-bus"):
        PiperArm(PiperConfig(channel="no-such-bus"), CLOCK, max_joint_speed=1.0).connect()
