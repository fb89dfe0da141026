"""The scripted demonstrator, noisy as a person is, and the scripted corrector that stands in for one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from robot.geometry import DeltaFrame, delta_between
from robot.interfaces import TeleopCommand
from robot.sim.tasks.base import ExpertStyle, SimTask
from robot.sim.world import SimWorld
from robot.types import ACTION_DIM, Float32


@dataclass(frozen=True)
class ExpertNoise:
    """How unlike a machine the demonstrator is: 0 = always the same clean motion, 1 = barely competent.

    It scales the Gaussian noise of the actions, the chance of a pause, and how much approach height,
    tolerance and speed vary between episodes. pace: mean speed, a share of the fastest translation.
    """

    level: float = 0.25
    pace: float = 0.8

    def __post_init__(self) -> None:
        if not 0.0 <= self.level <= 1.0:
            raise ValueError(f"ExpertNoise.level: expected [0, 1], got {self.level}")
        if not 0.0 < self.pace <= 1.0:
            raise ValueError(f"ExpertNoise.pace: expected (0, 1], got {self.pace}")


class ScriptedExpert:
    """Follows the waypoints of a task; knows the true state of the world."""

    def __init__(
        self, task: SimTask, world: SimWorld, rng: np.random.Generator, noise: ExpertNoise | None = None
    ) -> None:
        self._task = task
        self._world = world
        self._rng = rng
        self._noise = noise or ExpertNoise()
        self._style = ExpertStyle(0.035, 0.008)
        self._speed = self._noise.pace
        self._pause = 0
        self.reset()

    def reset(self) -> None:
        """A new episode: draw how this demonstrator works."""

        def vary(middle: float, share: float) -> float:
            return middle * (1.0 + self._noise.level * share * float(self._rng.uniform(-1.0, 1.0)))

        self._style = ExpertStyle(approach_height=vary(0.035, 1.2), tolerance=vary(0.008, 1.0))
        self._speed = vary(self._noise.pace, 0.8)
        self._pause = 0

    def act(self) -> Float32:
        """The next action (7,) in [-1, 1], along base axes."""
        action, level = np.zeros(ACTION_DIM), self._noise.level
        if self._pause == 0 and self._rng.random() < 0.1 * level:
            self._pause = int(self._rng.integers(1, 5))
        if self._pause > 0:
            self._pause -= 1
            return action.astype(np.float32)
        waypoint = self._task.waypoint(self._world, self._style)
        delta = delta_between(self._world.tcp(), waypoint.pose, DeltaFrame.BASE)
        scale = self._task.spec.action_scale
        speed, shake = self._speed * waypoint.pace, level * waypoint.pace
        action[:3] = np.clip(delta[:3] / scale.position, -speed, speed)
        action[3:6] = np.clip(delta[3:] / scale.rotation, -0.5, 0.5)
        action[:3] += self._rng.normal(0.0, 0.6 * shake, 3)
        action[3:6] += self._rng.normal(0.0, 0.3 * shake, 3)  # a hand turns less than it shakes
        action[6] = waypoint.gripper
        return np.clip(action, -1.0, 1.0).astype(np.float32)


@dataclass(frozen=True)
class CorrectorConfig:
    """When the corrector steps in and for how long; counts are control steps."""

    window: int = 8  # steps over which progress is judged
    stall: float = 0.01  # m; less progress than this over the window means stalled or drifting
    probability: float = 0.5  # per step in which the policy is stalled
    min_steps: int = 4
    max_steps: int = 8

    def __post_init__(self) -> None:
        if self.window < 1 or not 1 <= self.min_steps <= self.max_steps:
            raise ValueError(
                f"CorrectorConfig: expected window >= 1 and 1 <= min_steps <= max_steps, got {self}"
            )
        if not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"CorrectorConfig.probability: expected [0, 1], got {self.probability}")


class ScriptedCorrector:
    """A TeleopSource that takes over when the policy stalls or drifts, and hands back after a few steps.

    `progress` returns a distance [m] that falls as the job proceeds. Read it once per control step.
    """

    def __init__(
        self,
        expert: ScriptedExpert,
        progress: Callable[[], float],
        rng: np.random.Generator,
        config: CorrectorConfig | None = None,
    ) -> None:
        self._expert = expert
        self._progress = progress
        self._rng = rng
        self._config = config or CorrectorConfig()
        self._history: deque[float] = deque(maxlen=self._config.window + 1)
        self._left = 0

    def reset(self) -> None:
        """A new episode begins."""
        self._expert.reset()
        self._history.clear()
        self._left = 0

    def stop_asked(self) -> bool:
        """Never: a script has no stop key."""
        return False

    def read(self) -> TeleopCommand:
        """Engaged with the expert's action while correcting, else hands off."""
        if self._left == 0:
            self._history.append(self._progress())
            if not self._stalled() or self._rng.random() >= self._config.probability:
                return TeleopCommand()
            self._left = int(self._rng.integers(self._config.min_steps, self._config.max_steps + 1))
            self._history.clear()  # the policy is judged afresh once it is handed back
        self._left -= 1
        action = self._expert.act().astype(np.float64)
        return TeleopCommand(delta=action[:6], gripper=float(action[6]), engaged=True)

    def close(self) -> None:
        """Nothing to release."""

    def _stalled(self) -> bool:
        history = self._history
        return len(history) == history.maxlen and history[0] - history[-1] < self._config.stall
