"""check-robot on the simulated arm: it passes as it is, and every fault shows in the row that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from robot.env import RobotEnv
from robot.factory import RobotConfig, make_robot_env
from robot.interfaces import RobotFault
from robot.readiness.finding import Finding, Verdict, judged
from robot.readiness.motion import examine_motion
from robot.readiness.sensors import examine_sensors
from robot.sim.arm import SimFaults


@pytest.fixture
def faults() -> SimFaults:
    return SimFaults()


@pytest.fixture
def env(faults: SimFaults) -> RobotEnv:
    return make_robot_env(RobotConfig(image_px=32), faults=faults)


def failed(findings: list[Finding]) -> list[str]:
    assert all(finding.remedy for finding in findings if finding.verdict is not Verdict.PASS)
    return [finding.what for finding in findings if finding.verdict is Verdict.FAIL]


def test_the_simulated_arm_passes(env: RobotEnv) -> None:
    findings = [*examine_sensors(env, 0.5), *examine_motion(env, [])]
    assert [finding.what for finding in findings] == [
        *("arm: feedback", "camera wrist: images", "camera side: images", "cameras: skew"),
        *("control loop", "arm: motion", "stop: hold"),
    ]
    assert {finding.verdict for finding in findings} == {Verdict.PASS}
    assert "100.0 Hz" in findings[1].measured
    env.close()


def test_a_stalled_view_fails_with_its_name_and_its_skew(env: RobotEnv, faults: SimFaults) -> None:
    env.reset(seed=0)
    faults.stalled_views.add("wrist")
    assert failed(list(examine_sensors(env, 1.0))) == ["camera wrist: images", "cameras: skew"]
    env.close()


@pytest.mark.parametrize("fault", [{"stale_feedback": True}, {"nan_joint": 2}])
def test_bad_feedback_fails(env: RobotEnv, faults: SimFaults, fault: dict[str, Any]) -> None:
    env.reset(seed=0)
    for name, value in fault.items():
        setattr(faults, name, value)
    assert failed(list(examine_sensors(env, 0.5))) == ["arm: feedback"]
    env.close()


def send_nothing(arm: Any) -> None:
    arm.send_joints = lambda joints, duration: None


def go_on(arm: Any) -> None:
    send = arm.send_joints
    arm.hold = lambda: send(arm.state().joint_positions + 0.3, 1.0)


@pytest.mark.parametrize(
    ("break_arm", "row"),
    [(send_nothing, "arm: motion"), (go_on, "stop: hold")],
    ids=["deaf", "does not stop"],
)
def test_an_arm_that_does_not_obey_fails(env: RobotEnv, break_arm: Callable[[Any], None], row: str) -> None:
    env.reset(seed=0)
    break_arm(env.robot._arm)
    assert row in failed(list(examine_motion(env, [])))


def test_without_consent_nothing_moves_and_nothing_fails(env: RobotEnv) -> None:
    def refuse(**_: Any) -> Any:
        raise RobotFault("not_confirmed", "the operator answered 'n'")

    env.reset = refuse  # type: ignore[method-assign]
    before = env.robot.arm_state().joint_positions
    (finding,) = examine_motion(env, [])
    assert finding.verdict is Verdict.WARN and "nothing was moved" in finding.remedy
    np.testing.assert_allclose(env.robot.arm_state().joint_positions, before, atol=1e-3)
    env.close()


def test_what_is_no_number_fails() -> None:
    assert [judged(v, 1.0, 2.0) for v in (0.5, 1.5, 2.5, np.nan)] == [
        *(Verdict.PASS, Verdict.WARN),
        *(Verdict.FAIL, Verdict.FAIL),
    ]
