"""RobotEnv: the robot as a Gymnasium environment at a fixed control rate, for any arm, real or simulated."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding

from robot.arm_env import ArmEnv, EnvFacts
from robot.interfaces import Clock
from robot.robot import Robot, RobotMemory
from robot.safety import ClipReason
from robot.types import ACTION_DIM, Array, Float32, Observation, ProprioSpec

_log = logging.getLogger(__name__)

OVERRUN_TOLERANCE = 0.1  # share of the control period by which a tick may be late


class Workcell(Protocol):
    """The surroundings of the robot: they are prepared for an episode, and may know its outcome."""

    def reset(self, rng: np.random.Generator, *, place_arm: bool) -> Array:
        """Prepare a new episode; returns the joints (6,) [rad] to start from.

        place_arm: put the arm there at once, without motion. Only a simulated cell can.
        """

    def success(self) -> bool:
        """The job is done at this instant; False where the cell cannot tell. Asked once in each step."""

    def failure(self) -> str:
        """Why the job is not done at the time limit, in a few words; "" where the cell cannot tell."""


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeMemory:
    """Where an episode stands, beside the robot's memory and the simulated world's state."""

    robot: RobotMemory
    observation: Observation  # the newest
    tick: float
    due: float
    steps: int
    held: int
    ready: bool


class RobotEnv(ArmEnv):
    """Observes `images` (view -> (H, W, 3) uint8; none without cameras) and `proprio` (P,) float32, SI units.

    Action: (7,) in [-1, 1]: translation, rotation, gripper, in units of the task's action scale. Reward 1 and
    `terminated` once success has held for `hold_steps` steps; `truncated` at `max_steps`, with the cell's word
    for what went wrong in `info["failure"]`.

    A tick that comes late is reported (`info["overrun"]`, `overruns`), and the next is due a period later. An old
    image is reported too (`info["late_views"]`, `late_images`); with one too old to be shown the arm waits, holding.
    teleport: reset places a simulated arm without motion. With `options={"smooth": True}`, and wherever
    teleport is False, the arm moves to its start within the governor's caps.
    """

    def __init__(self, robot: Robot, workcell: Workcell, *, teleport: bool, seed: int = 0) -> None:
        self.robot = robot
        self.workcell = workcell
        self.overruns = 0
        self.late_images: Counter[str] = Counter()  # by view
        self._teleport = teleport
        self._np_random, self._np_random_seed = seeding.np_random(seed)
        self._period = robot.timing.control_period
        self._tick = self._due = 0.0
        self._steps = self._held = 0
        self._ready = False
        self._stop_asked: Callable[[], bool] = lambda: False
        self._late: set[str] = set()  # views, at the newest step
        self._observation: Observation | None = None
        spaces: dict[str, gym.Space[Any]] = {
            "proprio": gym.spaces.Box(-np.inf, np.inf, (self.proprio_spec.dim,), np.float32)
        }
        if robot.cameras:
            spaces["images"] = gym.spaces.Dict(
                {
                    camera.name: gym.spaces.Box(0, 255, (camera.height, camera.width, 3), np.uint8)
                    for camera in robot.cameras
                }
            )
        self.observation_space = gym.spaces.Dict(spaces)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (ACTION_DIM,), np.float32)

    @property
    def proprio_spec(self) -> ProprioSpec:
        """Names and scales of the proprio vector."""
        return self.robot.proprio_spec

    @property
    def facts(self) -> EnvFacts:
        """Of the robot's task, with its frames and scales."""
        spec, frames = self.robot.spec, self.robot.frames
        return EnvFacts(
            task=spec.name,
            instruction=spec.instruction,
            gripper_mode=spec.gripper_mode,
            goal=spec.goal,
            metadata={
                "control_hz": round(1.0 / self._period, 6),
                "action_frame": frames.action.value,
                "proprio_frame": frames.proprio.value,
                "action_scale_m": spec.action_scale.position,
                "action_scale_rad": spec.action_scale.rotation,
            },
        )

    @property
    def clock(self) -> Clock:
        """The robot's clock."""
        return self.robot.clock

    @property
    def gripper_command(self) -> float:
        """See Robot.gripper_command."""
        return self.robot.gripper_command

    def hold(self) -> None:
        """Stop where the arm is measured to be; see Robot.hold."""
        self.robot.hold()

    def end_episode(self) -> None:
        """See ArmEnv.end_episode."""
        self._ready = False
        if not self._teleport:  # in real time the arm must not wait for a next command that never comes
            self.robot.hold()

    @contextmanager
    def stopped_by(self, asked: Callable[[], bool]) -> Iterator[None]:
        """Within, a reset by motion asks `asked` at each waypoint whether to stop there."""
        before, self._stop_asked = self._stop_asked, asked
        try:
            yield
        finally:
            self._stop_asked = before

    def along_action_axes(self, delta: Array) -> Array:
        """See Robot.along_action_axes."""
        return self.robot.along_action_axes(delta)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode; on a virtual clock the same seed gives the same episode. Raises RobotFault."""
        super().reset(seed=seed)
        self._ready = False
        if not self._teleport:
            self.robot.await_cameras()
        smooth = not self._teleport or bool((options or {}).get("smooth", False))
        if smooth:
            self.robot.move_joints(self.robot.spec.reset_joints, self._stop_asked)
        start = self.workcell.reset(self.np_random, place_arm=not smooth)
        if smooth:
            self.robot.move_joints(start, self._stop_asked)
        self.robot.begin_episode()
        observation = self._observation = self.robot.observe()
        self._tick = self.robot.clock.now()
        self._due = self._tick + self._period
        self._steps = self._held = 0
        self._ready = True
        return _values(observation), _stamps(observation)

    def step(self, action: Float32) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """One control period; an action beyond [-1, 1] is clipped, and so reported.

        Raises RobotFault if the governor stops the arm, `bad_action` for an action that is no finite (7,), and
        `stale_observation` if the newest observation is older than `TimingConfig.max_observation_age`.
        """
        if not self._ready:
            raise RuntimeError("RobotEnv.step: the episode is over or has not begun; call reset() first")
        requested = np.array(action, dtype=np.float32)
        self._ready = False  # until the step has gone well
        assert self._observation is not None
        finite = bool(np.isfinite(requested).all())
        command = self.robot.act(
            requested.clip(-1.0, 1.0) if finite else requested, self._observation.timestamp
        )
        clipped = set(command.clipped)
        if np.abs(requested).max() > 1.0:
            clipped.add(ClipReason.ACTION)
        overrun, period = self._wait_for_tick()
        observation = self._observation = self.robot.observe()
        self._steps += 1
        self._held = self._held + 1 if self.workcell.success() else 0
        terminated = self._held >= self.robot.spec.hold_steps
        truncated = not terminated and self._steps >= self.robot.spec.max_steps
        if terminated or truncated:
            self.end_episode()
        else:
            self._ready = True
        info = {
            **_stamps(observation),
            "action": command.executed_action,
            "requested_action": requested,
            "intervened": False,
            "gripper_changed": command.gripper_changed,
            "success": terminated,
            "clipped": sorted(reason.value for reason in clipped),
            "period": period,
            "overrun": overrun,
            "late_views": self._late_views(observation),
        }
        if truncated:
            info["failure"] = self.workcell.failure()
        return _values(observation), float(terminated), terminated, truncated, info

    def memory(self) -> EpisodeMemory:
        """What `recall` needs to continue this episode from here; raises RuntimeError before the first reset."""
        if self._observation is None:
            raise RuntimeError("RobotEnv.memory: nothing has happened yet; call reset() first")
        return EpisodeMemory(
            self.robot.memory(),
            self._observation,
            self._tick,
            self._due,
            self._steps,
            self._held,
            self._ready,
        )

    def recall(self, memory: EpisodeMemory) -> None:
        """Continue from `memory`; clock and world must be back there already (robot/sim/branch.py does it)."""
        self.robot.recall(memory.robot)
        self._observation = memory.observation
        self._tick, self._due = memory.tick, memory.due
        self._steps, self._held, self._ready = memory.steps, memory.held, memory.ready

    def close(self) -> None:
        """Hold the arm and release the devices."""
        self._ready = False
        self.robot.close()

    def _late_views(self, observation: Observation) -> list[str]:
        """Views whose image is older than it should be, though still shown."""
        oldest = observation.timestamp - self.robot.timing.late_frame_age
        late = sorted(view for view, time in observation.image_timestamps.items() if time < oldest)
        for view in set(late) - self._late:
            age = observation.timestamp - observation.image_timestamps[view]
            _log.warning("camera %s is late: its newest image is %.2f s old", view, age)
        self._late = set(late)
        self.late_images.update(late)
        return late

    def _wait_for_tick(self) -> tuple[bool, float]:
        """Sleep until the tick is due; returns whether it came late and the time since the last one [s]."""
        clock = self.robot.clock
        tolerance = OVERRUN_TOLERANCE * self._period
        late_command = clock.now() > self._due + tolerance
        if late_command:  # the arm still gets a whole period for the command
            self._due = clock.now() + self._period
        clock.sleep_until(self._due)
        tick = clock.now()
        overrun = late_command or tick > self._due + tolerance
        self.overruns += overrun
        period = round(tick - self._tick, 6)
        self._tick = tick
        self._due = (tick if overrun else self._due) + self._period
        return overrun, period


def _values(observation: Observation) -> dict[str, Any]:
    values: dict[str, Any] = {"proprio": observation.proprio}
    if observation.images:
        values["images"] = dict(observation.images)
    return values


def _stamps(observation: Observation) -> dict[str, Any]:
    return {
        "timestamp": observation.timestamp,
        "image_timestamps": dict(observation.image_timestamps),
    }
