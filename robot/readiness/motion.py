"""What the arm does: a small motion inside its box, a hold in the middle of one, and silence after a command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from robot.arm_env import ArmEnv
from robot.env import RobotEnv
from robot.feedback import Reason
from robot.interfaces import RobotFault
from robot.readiness.finding import Finding, Verdict, judged, milliseconds
from robot.safety import GovernorState, GovernorTransition
from robot.types import ACTION_DIM, Float32

STEPS = 10  # of the motion, half of them back
GENTLE = 0.4  # share of the largest step
TRACKING = 0.01  # m that the tool may be behind
STOP_TIME, STOP_FAIL = 0.3, 0.6  # s until the arm stands after a hold
STANDING = 0.02  # rad/s
DRIFT = 0.01  # rad after it stands
LOOK = 0.005  # s
TRIES = 3


def examine_motion(env: ArmEnv, transitions: Sequence[GovernorTransition]) -> Iterator[Finding]:
    """Moves the arm, where its operator lets it. transitions: of the governor, growing; raises DeviceError."""
    try:
        env.reset()
        yield from _move(env)
        if isinstance(env, RobotEnv):
            yield _hold(env)
            if env.robot.watched:
                yield _silence(env, transitions)
        env.hold()
    except RobotFault as fault:
        refused = fault.name == "not_confirmed"
        yield Finding(
            "arm: motion",
            Verdict.WARN if refused else Verdict.FAIL,
            str(fault),
            "nothing was moved, so motion and stops are not checked"
            if refused
            else "remove the cause that is named",
        )


def _move(env: ArmEnv) -> Iterator[Finding]:
    forth, period = _direction(env), 1.0 / float(str(env.facts.metadata["control_hz"]))
    periods, lags, asked, places = [], [], 0.0, []
    for step in range(STEPS):
        values, info = _step(env, forth if step < STEPS // 2 else -forth)
        periods.append(float(info["period"]))
        if isinstance(env, RobotEnv):
            places.append(values["proprio"][:3])
            lags.append(float(np.linalg.norm(values["proprio"][12:15])))
            scale = env.robot.spec.action_scale.position
            asked = max(asked, float(np.abs(info["action"][:3]).max()) * scale * STEPS / 2)
    yield Finding(
        "control loop",
        judged(float(np.percentile(periods, 99)), 1.2 * period, 2.0 * period),
        f"period {milliseconds(periods)}",
        "this machine is too busy: leave a core to the actor, raise its priority",
    )
    if places:
        moved = float(np.ptp(np.array(places), axis=0).max())
        yield Finding(
            "arm: motion",
            Verdict.FAIL if moved < asked / 3 else judged(max(lags), TRACKING, 3 * TRACKING),
            f"{1e3 * moved:.1f} mm for {1e3 * asked:.1f} mm asked, at most {1e3 * max(lags):.1f} mm behind",
            "is the arm enabled, and does its controller follow? Lower robot.cell.max_joint_speed",
        )


def _hold(env: RobotEnv) -> Finding:
    forth = _direction(env) / GENTLE
    for _ in range(3):
        _step(env, forth.clip(-1.0, 1.0))
    clock = env.clock
    began = clock.now()
    env.hold()
    while (elapsed := clock.now() - began) < 2 * STOP_FAIL:
        clock.sleep_until(clock.now() + LOOK)
        if np.abs(env.robot.arm_state().joint_velocities).max() < STANDING:
            break
    stood = env.robot.arm_state().joint_positions
    clock.sleep_until(clock.now() + STOP_TIME)
    drift = float(np.abs(env.robot.arm_state().joint_positions - stood).max())
    return Finding(
        "stop: hold",
        Verdict.FAIL if drift > DRIFT else judged(elapsed, STOP_TIME, STOP_FAIL),
        f"stands after {1e3 * elapsed:.0f} ms, then moves {drift:.4f} rad",
        "the arm does not stop when it is told to: keep a hand on the emergency stop, do not train",
    )


def _silence(env: RobotEnv, transitions: Sequence[GovernorTransition]) -> Finding:
    """No command follows the last one: the watchdog must hold the arm. Old feedback on a busy machine holds it too."""
    held: list[float] = []
    for _ in range(TRIES):
        before, spoke = len(transitions), env.clock.now()
        _step(env, np.zeros(ACTION_DIM, np.float32))
        env.clock.sleep_until(spoke + STOP_FAIL)
        held = [
            change.time - spoke
            for change in transitions[before:]
            if change.after is GovernorState.HOLDING and change.reason == Reason.POLICY_SILENT
        ]
        if held:
            break
    return Finding(
        "stop: silent policy",
        judged(held[0], STOP_FAIL, STOP_FAIL) if held else Verdict.FAIL,
        f"held after {1e3 * held[0]:.0f} ms" if held else f"not held within {1e3 * STOP_FAIL:.0f} ms",
        "the watchdog does not stop a silent policy: do not train",
    )


def _step(env: ArmEnv, action: Float32) -> tuple[dict[str, Any], dict[str, Any]]:
    """Observation and info; another episode begins where this one is over."""
    values, _, terminated, truncated, info = env.step(action)
    if terminated or truncated:
        env.reset()
    return values, info


def _direction(env: ArmEnv) -> Float32:
    """A small step, towards the middle of the box where there is one."""
    action = np.zeros(ACTION_DIM, np.float32)
    action[0] = GENTLE
    if isinstance(env, RobotEnv):
        spec = env.robot.spec
        middle = (spec.workspace_lower + spec.workspace_upper) / 2
        inward = env.along_action_axes(np.append(middle - env.robot.tool_position(), np.zeros(3)))[:3]
        axis = int(np.abs(inward).argmax())
        action[:3] = 0.0
        action[axis] = GENTLE * np.sign(inward[axis])
    return action
