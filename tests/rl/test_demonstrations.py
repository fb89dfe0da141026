"""Recording goes on after an attempt that the robot ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl.demonstrations import record_demonstrations
from rl.replay.reader import StoreReader
from rl.schemas import CorrectionConfig, DemosConfig
from robot.factory import RobotConfig, make_robot_env
from robot.sim.arm import SimFaults


def test_a_fault_costs_the_attempt_and_not_the_recording(tmp_path: Path) -> None:
    faults = SimFaults()
    env = make_robot_env(RobotConfig(image_px=32), faults=faults)
    reset, step = env.reset, env.step

    def stalling(action: Any) -> Any:
        if StoreReader(tmp_path).num_rows > 4 and not StoreReader(tmp_path).episodes():
            faults.stalled_views.add("wrist")
        return step(action)

    def healing(**options: Any) -> Any:
        faults.stalled_views.clear()
        return reset(**options)

    env.step, env.reset = stalling, healing  # type: ignore[method-assign]
    config = DemosConfig(episodes=1, noise=0.0)
    attempts = list(record_demonstrations(tmp_path, env, config, CorrectionConfig(), seed=0))
    first, last = attempts[0], attempts[-1]
    assert first.info.discarded and "stale_frame" in first.describe() and "wrist" in first.describe()
    assert last.info.success and last.demonstrations == 1
    env.close()
