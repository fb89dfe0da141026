"""How fast the arm holds when something fails, and how well it follows when nothing does.

    setsid bash -c 'echo -15 > /proc/$$/autogroup; exec nice -n -15 python -m benchmarks.faults'

The raised priority counts within the session (nice) and between sessions (autogroup).

Writes benchmarks/results/faults.json. A simulated A1X stands behind the vendor's topics in another process; everything
on this side of DDS is what drives the physical arm. A time counts from the cause to the moment at which the driver's
target stays where it is, or the arm stands. Run it on a quiet machine: the load is written down with the figures.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.fault_cases import collision, learner_killed, program_killed, unplugged
from rl.provenance import RESULTS, header, write
from robot.clock import WallClock
from robot.factory import RobotConfig, make_robot_env
from robot.interfaces import RobotFault
from robot.safety import GovernorState, GovernorTransition
from tests.robot.simulated_a1x import Agreeable, SimulatedA1X, free_domain

CLOCK = WallClock()
BEGINNINGS = 10
SETTLE = 1.0  # s that a cause gets to show
STAY = np.zeros(7, np.float32)
FORWARD = np.array([1, 0, 0, 0, 0, 0, 0], np.float32)
SILENCE = "policy silent"
HOLD, FAULT = "hold", "fault, hold"
# Cause on the arm's side, in words and for robot/sim/a1x_vendor.py; which reaction; the most it may take [s].
CAUSES = (
    (SILENCE, "", GovernorState.HOLDING, 0.35),
    (SILENCE, "", GovernorState.FAULTED, 0.80),
    ("feedback stops", "stale", GovernorState.HOLDING, 0.15),
    ("feedback stops", "stale", GovernorState.FAULTED, 0.30),
    ("feedback not finite", "nan 2", GovernorState.FAULTED, 0.10),
    ("joint pushed away by 0.3 rad", "shove 0 0.3", GovernorState.FAULTED, 0.60),
    ("effort of 40 Nm", "effort 3 40", GovernorState.FAULTED, 0.15),
    ("feedback frozen while moving", "frozen", GovernorState.FAULTED, 0.70),
)


class Rig:
    """An environment on the simulated A1X, and when its governor changed to which state."""

    def __init__(self, robot: RobotConfig) -> None:
        self.disturbed = 0  # episodes that a busy machine has spoilt
        self.seen: list[tuple[GovernorTransition, float]] = []
        self.env = make_robot_env(
            robot,
            operator=Agreeable(),
            on_transition=lambda change: self.seen.append((change, CLOCK.now())),
        )

    def begin(self) -> None:
        """A new episode, on its way; begun again where the machine itself has been too slow."""
        for _ in range(BEGINNINGS):
            with suppress(RobotFault):
                self.env.reset()
                for _ in range(5):
                    self.env.step(FORWARD)
                self.seen.clear()
                return
            self.disturbed += 1
        raise RuntimeError(f"no undisturbed episode in {BEGINNINGS} tries; use a machine with less to do")

    def last_words(self) -> None:
        """A command that no other follows."""
        self.env.robot.act(FORWARD)

    def react(
        self, cause: Callable[[], None], state: GovernorState, action: NDArray[np.float32] | None
    ) -> float:
        """Seconds from the start of `cause` until the governor was in `state`; the policy says `action`, or nothing."""
        began = CLOCK.now()
        cause()
        with suppress(RobotFault):
            while action is not None and CLOCK.now() < began + SETTLE:
                self.env.step(action)
        CLOCK.sleep_until(began + SETTLE)
        times = [when - began for change, when in self.seen if change.after is state]
        if not times:
            raise RuntimeError(f"expected {state} within {SETTLE} s, got {self.seen}")
        return times[0]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    rows = []
    with SimulatedA1X(free_domain()) as vendor:
        rig = Rig(vendor.robot())
        rows.append(following(rig, options.steps))
        for words, line, state, limit in CAUSES:
            action = None if words == SILENCE else (FORWARD if line == "frozen" else STAY)
            cause = partial(vendor.tell, line) if line else rig.last_words
            times = []
            for _ in range(options.trials):
                rig.begin()
                times.append(rig.react(cause, state, action))
                vendor.tell("heal")
                CLOCK.sleep_until(CLOCK.now() + 0.3)
            rows.append(row(words, HOLD if state is GovernorState.HOLDING else FAULT, limit, times))
        rows += this_side(rig, vendor, options.trials)
    rows.append(row("vendor's process killed", HOLD, 0.30, [killed() for _ in range(options.trials)]))
    arguments = f"--trials {options.trials} --steps {options.steps}"
    command = f"nice -n {os.nice(0)} python -m benchmarks.faults {arguments} (autogroup nice {share()})"
    write(RESULTS / "faults.json", header("faults", command, ("cyclonedds", "mujoco")), rows)
    for line in rows:
        print(line)
    return 0


def share() -> str:
    """The weight of this session against others on Linux."""
    own = Path("/proc/self/autogroup")
    return own.read_text().split()[-1] if own.exists() else "none"


def this_side(rig: Rig, vendor: SimulatedA1X, trials: int) -> list[dict[str, Any]]:
    """Faults of devices, surroundings and processes on this side; closes the rig."""
    pulled = [unplugged(rig.env) for _ in range(trials)]
    rig.env.close()
    with TemporaryDirectory() as folder:
        died = learner_killed(vendor, Path(folder), trials)
    return [
        row("gamepad unplugged in mid-correction", "its motion ends", 0.25, [motion for motion, _ in pulled]),
        row("gamepad unplugged in mid-correction", "correction over", 0.45, [over for _, over in pulled]),
        row("obstacle hit at 50 mm/s", FAULT, 0.40, [collision(vendor) for _ in range(trials)]),
        row(
            "this program killed while moving", "stands", 0.3, [program_killed(vendor) for _ in range(trials)]
        ),
        row("learner killed", HOLD, 0.3, died),
    ]


def killed() -> float:
    """Seconds from SIGKILL of everything on the vendor's side until the driver holds."""
    with SimulatedA1X(free_domain() + 1) as vendor:
        rig = Rig(vendor.robot())
        rig.begin()
        time = rig.react(vendor.kill, GovernorState.HOLDING, FORWARD)
        rig.env.close()
    return time


def following(rig: Rig, steps: int) -> dict[str, Any]:
    """Control period, age of the feedback and distance between target and measured tool point, to and fro."""
    rig.begin()
    robot = rig.env.robot
    periods, ages, errors = [], [], []
    for step in range(steps):
        sign = 1.0 if step // 10 % 2 == 0 else -1.0
        try:
            _, _, _, truncated, info = rig.env.step(np.float32(sign) * FORWARD)
        except RobotFault:
            rig.disturbed += 1
            rig.begin()
            continue
        state = robot._arm.state()
        periods.append(info["period"])
        ages.append(CLOCK.now() - state.timestamp)
        measured = robot._kinematics.forward(state.joint_positions).position
        errors.append(float(np.linalg.norm(robot._governor.target.pose.position - measured)))
        if truncated:
            rig.begin()
    return {
        "case": "following at 10 Hz, 50 mm/s",
        "steps": len(periods),
        "spoilt_by_the_machine": rig.disturbed,
        **percentiles("period_ms", 1e3 * np.array(periods)),
        **percentiles("feedback_age_ms", 1e3 * np.array(ages)),
        **percentiles("tool_error_mm", 1e3 * np.array(errors)),
        "overruns": rig.env.overruns,
    }


def percentiles(name: str, values: NDArray[np.float64]) -> dict[str, float]:
    return {f"{name}_p{q}": round(float(np.percentile(values, q)), 2) for q in (50, 99)}


def row(case: str, reaction: str, limit: float, times: list[float]) -> dict[str, Any]:
    return {
        "case": case,
        "reaction": reaction,
        "limit_ms": round(1e3 * limit),
        "p50_ms": round(1e3 * float(np.median(times))),
        "max_ms": round(1e3 * max(times)),
        "trials": len(times),
        "within_limit": sum(time <= limit for time in times),
    }


if __name__ == "__main__":
    raise SystemExit(main())
