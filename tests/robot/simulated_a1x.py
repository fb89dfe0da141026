"""A simulated A1X in another process, behind the vendor's topics on loopback, for tests and benchmarks.

python -m tests.robot.simulated_a1x <domain>    # moves it up and down until it is killed
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import TracebackType

import numpy as np

from robot.arms.a1x import A1XArm
from robot.arms.a1x_config import A1XConfig
from robot.cell import CellConfig
from robot.clock import WallClock
from robot.factory import ClockKind, ObsKind, RobotConfig, RobotKind

CELL = CellConfig(
    workspace_lower=[0.24, -0.13, 0.06],
    workspace_upper=[0.42, 0.13, 0.25],
    reset_joints=[0.0, 1.367, -0.685, 0.103, 0.0, 0.0],  # tool point at about (0.29, 0, 0.22) m
)


def free_domain() -> int:
    """A DDS domain that no other test run on this machine is likely to use."""
    return 100 + os.getpid() % 100


class SimulatedA1X:
    """Use in a `with`; `config` finds it. No two run in the same DDS domain at a time."""

    def __init__(self, domain_id: int, *options: str, connect_timeout: float = 30.0) -> None:
        self.config = A1XConfig(
            domain_id=domain_id, interface="lo", peers=["127.0.0.1"], connect_timeout=connect_timeout
        )
        self._options = options

    def robot(self) -> RobotConfig:
        """The environment around this arm, without cameras."""
        return RobotConfig(
            kind=RobotKind.A1X,
            task="reach",
            clock=ClockKind.WALL,
            obs=ObsKind.STATE,
            cell=CELL,
            a1x=self.config,
        )

    def __enter__(self) -> SimulatedA1X:
        vendor = ["-m", "robot.sim.a1x_vendor", "--interface", "lo", "--peer", "127.0.0.1"]
        self._process = subprocess.Popen(
            [sys.executable, *vendor, "--domain", str(self.config.domain_id), *self._options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the simulated A1X ended with {self._process.wait()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._process.communicate()

    def tell(self, line: str) -> None:
        """A line for its standard input; see robot/sim/a1x_vendor.py."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL, as a crash or a pulled plug would end it."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


class Agreeable:
    """An operator who agrees to everything and remembers what it was; also in the place of TerminalOperator."""

    def __init__(self, **_terminal: object) -> None:
        self.requests: list[str] = []

    def confirm(self, request: str) -> None:
        self.requests.append(request)


def main() -> None:
    clock = WallClock()
    arm = A1XArm(SimulatedA1X(int(sys.argv[1])).config, clock, max_joint_speed=1.0)
    arm.connect()
    start = arm.state().joint_positions
    due, step = clock.now(), 0
    while True:
        turn = 0.25 * np.sin(0.2 * step)
        arm.send_joints(start + turn * np.eye(6)[0], 0.1)
        if step == 5:
            print("moving", flush=True)
        due, step = due + 0.1, step + 1
        clock.sleep_until(due)


if __name__ == "__main__":
    main()
