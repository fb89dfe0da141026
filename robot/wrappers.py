"""HumanIntervention: a person, or a script in their place, takes over from the policy and judges episodes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from robot.arm_env import ArmEnv
from robot.interfaces import TeleopEvent, TeleopSource
from robot.teleop.hands import MAX_AGE
from robot.types import Float32


class HumanIntervention(gym.Wrapper[dict[str, Any], Float32, dict[str, Any], Float32]):
    """While the dead-man is held the person's action replaces the policy's, for exactly those steps.

    `info["intervened"]` says so, `info["action"]` is what was executed, `info["requested_action"]` the wish
    of the policy, both along the axes of actions; the person always steers along base axes. Events count in the
    very transition in which they are read: SUCCESS and FAILURE terminate it with reward 1 and 0; DISCARD and STOP
    truncate it and set `info["discard"]` or `info["stop"]`; on STOP the arm is not moved. Each of them ends the episode
    of `env` too: the arm holds, and the next step needs a reset. A device that has been silent for longer than MAX_AGE
    leads nothing, and `info["device_silent"]` says so.
    leads: False leaves the person the events alone, as the judge of what the policy does.
    """

    def __init__(
        self,
        env: gym.Env[dict[str, Any], Float32],
        teleop: TeleopSource,
        *,
        leads: bool = True,
    ) -> None:
        super().__init__(env)
        arm_env = env.unwrapped
        assert isinstance(arm_env, ArmEnv)
        self._arm_env = arm_env
        self._teleop = teleop
        self._leads = leads

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode with the hands off; on STOP the arm holds on its way: RobotFault `operator_stop`."""
        with self._arm_env.stopped_by(self._teleop.stop_asked):
            result = self.env.reset(seed=seed, options=options)
        self._teleop.reset()
        return result

    def step(self, action: Float32) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """One control period, led by whoever is in charge."""
        wish = np.array(action, dtype=np.float32)
        command = self._teleop.read()
        stop = TeleopEvent.STOP in command.events
        silent = command.age > MAX_AGE
        intervened = self._leads and command.engaged and not silent and not stop
        led = wish
        if stop:
            led = np.zeros_like(wish)
        elif intervened:
            delta = self._arm_env.along_action_axes(command.delta)
            led = np.append(delta, command.gripper).astype(np.float32)
        values, reward, terminated, truncated, info = self.env.step(led)
        if command.events:
            self._arm_env.end_episode()
        info["requested_action"] = wish
        info["intervened"] = intervened
        info["device_silent"] = silent
        if TeleopEvent.SUCCESS in command.events:
            reward, terminated, truncated = 1.0, True, False
        if TeleopEvent.FAILURE in command.events:  # of two verdicts in one step the careful one counts
            reward, terminated, truncated = 0.0, True, False
        info["success"] = terminated and float(reward) > 0
        if stop or TeleopEvent.DISCARD in command.events:
            info["stop"] = stop
            info["discard"] = TeleopEvent.DISCARD in command.events
            truncated = not terminated
        return values, float(reward), terminated, truncated, info

    def close(self) -> None:
        """Release the device, then the robot, even if the device cannot be."""
        try:
            self._teleop.close()
        finally:
            self.env.close()
