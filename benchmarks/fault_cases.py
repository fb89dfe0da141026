"""Faults on this side of the arm's topics: a device unplugged, an obstacle hit, a process killed; for faults.py.

Each measure returns when the cause began and when the reaction was there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Timer
from unittest import mock

import numpy as np
from cyclonedds.sub import DataReader
from numpy.typing import NDArray

from rl import cli, demonstrations
from rl.runtime.run_dir import RunDir
from rl.workers.ports import ENV_STEPS
from robot import factory
from robot.arms.a1x_topics import FEEDBACK, Participation
from robot.clock import WallClock
from robot.env import RobotEnv
from robot.factory import make_robot_env
from robot.interfaces import RobotFault, TeleopCommand, TeleopEvent
from robot.periodic import PeriodicThread
from robot.safety import GovernorTransition, Reason
from robot.teleop.gamepad import GamepadTeleop
from robot.teleop.scripted import ScriptedTeleop
from robot.teleop.window import load_pygame
from robot.wrappers import HumanIntervention
from tests.e2e import harness
from tests.e2e.attended import Attended
from tests.robot.simulated_a1x import CELL, Agreeable, SimulatedA1X
from tests.robot.teleop_devices import VirtualPad

CLOCK = WallClock()
STAY = np.zeros(7, np.float32)
DOWN = np.array([0.3, 0, -1, 0, 0, 0, 0], np.float32)
CONTACT = 1.5e-3  # m above where an obstacle has stopped the arm, it has been touched
STANDING = 0.02  # rad/s
MOVED = 2e-4  # rad; inverse kinematics finds the same pose again to less than that

Span = tuple[float, float]  # s on the machine's monotonic clock


class Recorder:
    """What the driver commands and what the arm measures, 200 times a second."""

    def __init__(self, env: RobotEnv) -> None:
        self._arm, self._kinematics = env.robot._arm, env.robot._kinematics
        self.rows: list[tuple[float, NDArray[np.float64], NDArray[np.float64]]] = []
        self._thread = PeriodicThread("recorder", self._record, CLOCK, 0.005)

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop()

    def _record(self) -> None:
        command = self._arm._stream._ramp.command()  # type: ignore[attr-defined]
        if command is not None:
            self.rows.append((CLOCK.now(), command, self._arm.state().joint_positions))

    def stayed_since(self) -> float:
        """When the command moved for the last time."""
        last = self.rows[-1][1]
        return next(when for when, command, _ in reversed(self.rows) if np.abs(command - last).max() > MOVED)

    def touched_at(self) -> float:
        """When the tool first was where the obstacle then kept it."""
        heights = [self._kinematics.forward(joints).position[2] for _, _, joints in self.rows]
        return self.rows[int(np.argmax(np.array(heights) < min(heights) + CONTACT))][0]


def unplugged(env: RobotEnv, delay: float) -> tuple[Span, Span]:
    """From pulling the gamepad in mid-correction until the command stays, and until the correction is over.

    delay: s from the beginning of a control period, at which the device is read, to the pulling.
    """
    os.environ["SDL_VIDEODRIVER"] = "dummy"
    pygame = load_pygame()
    pad = VirtualPad(pygame)
    led = HumanIntervention(env, GamepadTeleop(CLOCK, gripper=lambda: env.gripper_command))
    led.reset()
    pad.axis(1, -0.7)
    pad.button(5, True)
    with Recorder(env) as recorder:
        for _ in range(6):
            info = led.step(STAY)[4]
            assert info["intervened"]
        hand = Timer(delay, pad.detach)
        pulled = CLOCK.now() + delay
        hand.start()
        while led.step(STAY)[4]["intervened"]:
            pass
        over = CLOCK.now()
        hand.join()
        for _ in range(3):
            led.step(STAY)
    env.robot.hold()
    pygame.quit()
    return (pulled, max(pulled, recorder.stayed_since())), (pulled, over)


def collision(vendor: SimulatedA1X) -> Span:
    """From the tool's touching the toaster, at 50 mm/s, until the fault."""
    seen: list[tuple[GovernorTransition, float]] = []
    cell = replace(CELL, workspace_lower=[0.24, -0.13, 0.02])
    env = make_robot_env(
        replace(vendor.robot(), cell=cell),
        operator=Agreeable(),
        on_transition=lambda change: seen.append((change, CLOCK.now())),
    )
    try:
        env.reset()
        with Recorder(env) as recorder:
            try:
                for _ in range(80):
                    env.step(DOWN)
            except RobotFault:
                CLOCK.sleep_until(CLOCK.now() + 0.3)
        return recorder.touched_at(), next(when for change, when in seen if change.reason is Reason.EFFORT)
    finally:
        env.close()


def program_killed(vendor: SimulatedA1X) -> Span:
    """From SIGKILL of a program that moves the arm until the arm stands."""
    participation = Participation(vendor.config)
    reader = DataReader(
        participation.participant, participation.topic(vendor.config.feedback_topic), qos=FEEDBACK
    )
    mover = subprocess.Popen(
        [sys.executable, "-m", "tests.robot.simulated_a1x", str(vendor.config.domain_id)],
        stdout=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        assert mover.stdout is not None
        mover.stdout.readline()
        CLOCK.sleep_until(CLOCK.now() + 0.5)
        killed = CLOCK.now()
    finally:
        mover.send_signal(signal.SIGKILL)
        mover.wait()
    moved = killed
    while CLOCK.now() < killed + 1.0:
        for sample in reader.take(N=8):
            if hasattr(sample, "velocity") and np.abs(sample.velocity[:6]).max() > STANDING:
                moved = CLOCK.now()
        CLOCK.sleep_until(CLOCK.now() + 0.002)
    return killed, moved


def learner_killed(vendor: SimulatedA1X, folder: Path, trials: int) -> list[Span]:
    """From SIGKILL of the learner until the actor's arm holds; the supervisor brings the learner back."""
    arm = [
        "robot=a1x_simulated",
        f"robot.a1x.domain_id={vendor.config.domain_id}",
        f"robot.a1x.connect_timeout={vendor.config.connect_timeout}",
        "robot.cell.confirm_resets=false",
    ]
    demos, run = folder / "demos", RunDir(folder / "run")
    demonstrate(arm, demos)
    small = [o for o in harness.SMALL if not o.startswith(("robot.", "demos."))]
    how = ["correction.kind=none", "pacing.actor_waits=episode", "actor.max_env_steps=100000"]
    where = [f"runs_dir={folder}", "name=run", f"demos.path={demos}", f"runtime.max_restarts={trials + 1}"]
    attended = Attended("rl.train", [*arm, *small, *how, *where])
    share_priority(attended.process.pid)
    times = []
    try:
        for _ in range(trials):
            _steps_done(run, attended, 15)
            killed = time.monotonic()
            harness.kill_workers(run, ["learner"])
            times.append((killed, _held_at(run, killed)))
    finally:
        attended.end()
    return times


def share_priority(pid: int) -> None:
    """Linux weighs sessions against each other; a new one would begin at the common weight."""
    own = Path("/proc/self/autogroup")
    if own.exists():
        Path(f"/proc/{pid}/autogroup").write_text(own.read_text().split()[-1])


def demonstrate(arm: Sequence[str], path: Path) -> None:
    """Two demonstrations of a few steps; what they show does not matter here."""
    away = TeleopCommand(delta=np.array([1.0, 0, -1.0, 0, 0, 0]), engaged=True)
    shown = ScriptedTeleop([*[away] * 7, replace(away, events=(TeleopEvent.SUCCESS,))] * 2)
    with (
        mock.patch.object(factory, "TerminalOperator", Agreeable),
        mock.patch.object(demonstrations, "make_teleop", lambda *_: shown),
        mock.patch.object(demonstrations, "make_window", lambda _: lambda *_: None),
    ):
        if cli.main(["record", *arm, "correction.kind=keyboard", "demos.episodes=2", f"out={path}"]) != 0:
            raise RuntimeError("the demonstrations could not be recorded")


def _steps_done(run: RunDir, attended: Attended, steps: int, timeout: float = 120.0) -> None:
    """Return once the actor has gone on by `steps`."""
    give_up, start = time.monotonic() + timeout, None
    while time.monotonic() < give_up:
        if attended.process.poll() is not None:
            raise RuntimeError(f"the run ended early:\n{attended.output.decode(errors='replace')}")
        if (run.path / "board.bin").exists():
            now = run.board().get(ENV_STEPS)
            start = now if start is None else start
            if now >= start + steps and run.board().pid("learner") > 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"no steps within {timeout} s:\n{attended.output.decode(errors='replace')}")


def _held_at(run: RunDir, since: float, timeout: float = 5.0) -> float:
    """When the governor held for the first time after `since`, by its own log; both on the machine's one clock."""
    give_up = time.monotonic() + timeout
    while time.monotonic() < give_up:
        for line in (run.path / "safety.jsonl").read_text().splitlines():
            change = json.loads(line)
            if change["after"] == "holding" and change["time"] >= since:
                held: float = change["time"]
                return held
        time.sleep(0.02)
    log = (run.path / "safety.jsonl").read_text().splitlines()[-5:]
    status = {name: run.board().status(name) for name in ("actor", "learner")}
    raise RuntimeError(
        f"the arm did not hold within {timeout} s of the learner's death at {since}: {status}, {log}"
    )
