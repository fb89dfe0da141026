"""How fast the arm holds when something fails, and how well it follows when nothing does.

    setsid bash -c 'echo -15 > /proc/$$/autogroup; exec nice -n -15 python -m benchmarks.faults'

The raised priority counts within the session (nice) and between sessions (autogroup).

Writes benchmarks/results/faults.json. A simulated A1X stands behind the vendor's topics in another process; everything
on this side of DDS is what drives the physical arm. A time counts from the cause to the moment at which the driver's
target stays where it is, or the arm stands. Run it on a quiet machine: the load is written down with the figures, and
trials in which the machine itself stood still (stalls.py) are told apart.
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

from benchmarks.fault_cases import Span, collision, learner_killed, program_killed, unplugged
from benchmarks.stalls import Stalls
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
    ) -> Span:
        """From the start of `cause` until the governor was in `state`; the policy says `action`, or nothing."""
        began = CLOCK.now()
        cause()
        with suppress(RobotFault):
            while action is not None and CLOCK.now() < began + SETTLE:
                self.env.step(action)
        CLOCK.sleep_until(began + SETTLE)
        times = [when for change, when in self.seen if change.after is state]
        if not times:
            raise RuntimeError(f"expected {state} within {SETTLE} s, got {self.seen}")
        return began, times[0]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    rows = []
    began = CLOCK.now()
    with Stalls() as stalls, SimulatedA1X(free_domain()) as vendor:
        rig = Rig(vendor.robot())
        rows.append(following(rig, options.steps, stalls))
        for words, line, state, limit in CAUSES:
            action = None if words == SILENCE else (FORWARD if line == "frozen" else STAY)
            cause = partial(vendor.tell, line) if line else rig.last_words
            spans = []
            for _ in range(options.trials):
                rig.begin()
                spans.append(rig.react(cause, state, action))
                vendor.tell("heal")
                CLOCK.sleep_until(CLOCK.now() + 0.3)
            rows.append(
                reactions(words, HOLD if state is GovernorState.HOLDING else FAULT, limit, spans, stalls)
            )
        rows += this_side(rig, vendor, options.trials, stalls)
        spans = [killed() for _ in range(options.trials)]
        rows.append(reactions("vendor's process killed", HOLD, 0.30, spans, stalls))
        rows.append(
            {
                "case": "stalls of the machine itself",
                "count": len(stalls.seen),
                "seconds": round(CLOCK.now() - began),
                "max_ms": round(1e3 * max((end - start for start, end in stalls.seen), default=0.0)),
            }
        )
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


def this_side(rig: Rig, vendor: SimulatedA1X, trials: int, stalls: Stalls) -> list[dict[str, Any]]:
    """Faults of devices, surroundings and processes on this side; closes the rig."""
    period = rig.env.robot.timing.control_period
    pulled = [unplugged(rig.env, period * (trial + 0.5) / trials) for trial in range(trials)]
    rig.env.close()
    with TemporaryDirectory() as folder:
        died = learner_killed(vendor, Path(folder), trials)
    hit = [collision(vendor) for _ in range(trials)]
    ended = [program_killed(vendor) for _ in range(trials)]
    device = "gamepad unplugged in mid-correction"
    return [
        reactions(device, "its motion ends", 0.25, [motion for motion, _ in pulled], stalls),
        reactions(device, "correction over", 0.45, [over for _, over in pulled], stalls),
        reactions("obstacle hit at 50 mm/s", FAULT, 0.40, hit, stalls),
        reactions("this program killed while moving", "stands", 0.30, ended, stalls),
        reactions("learner killed", HOLD, 0.30, died, stalls),
    ]


def killed() -> Span:
    """From SIGKILL of everything on the vendor's side until the driver holds."""
    with SimulatedA1X(free_domain() + 1) as vendor:
        rig = Rig(vendor.robot())
        rig.begin()
        span = rig.react(vendor.kill, GovernorState.HOLDING, FORWARD)
        rig.env.close()
    return span


def following(rig: Rig, steps: int, stalls: Stalls) -> dict[str, Any]:
    """Control period, age of the feedback and distance between target and measured tool point, to and fro.

    A period in which the machine stood still, and the one after it, count apart.
    """
    rig.begin()
    robot = rig.env.robot
    periods, ages, errors, ends = [], [], [], []
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
        ends.append(CLOCK.now())
        ages.append(CLOCK.now() - state.timestamp)
        measured = robot._kinematics.forward(state.joint_positions).position
        errors.append(float(np.linalg.norm(robot._governor.target.pose.position - measured)))
        if truncated:
            rig.begin()
    still = np.array(
        [stalls.during(end - 2.0 * period, end) for period, end in zip(periods, ends, strict=True)]
    )
    period_ms = 1e3 * np.array(periods)
    return {
        "case": "following at 10 Hz, 50 mm/s",
        "steps": len(periods),
        "spoilt_by_the_machine": rig.disturbed,
        **percentiles("period_ms", period_ms[~still]),
        "periods_in_stalls": int(still.sum()),
        **percentiles("period_ms_with_stalls", period_ms),
        **percentiles("feedback_age_ms", 1e3 * np.array(ages)),
        **percentiles("tool_error_mm", 1e3 * np.array(errors)),
        "overruns": rig.env.overruns,
    }


def percentiles(name: str, values: NDArray[np.float64]) -> dict[str, float]:
    return {f"{name}_p{q}": round(float(np.percentile(values, q)), 2) for q in (50, 99)}


def reactions(case: str, reaction: str, limit: float, spans: list[Span], stalls: Stalls) -> dict[str, Any]:
    """A row of trials; those in which the machine stood still count apart."""
    times = [ended - began for began, ended in spans]
    undisturbed = [ended - began for began, ended in spans if not stalls.during(began, ended)]
    return row(case, reaction, limit, undisturbed or times) | {
        "in_stalls": len(times) - len(undisturbed),
        "max_ms_with_stalls": round(1e3 * max(times)),
    }


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
