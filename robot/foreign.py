"""ForeignEnv: a simulator that nobody here wrote, through its Gymnasium API, as an environment the learner knows.

No SafetyGovernor stands in front of it: a foreign simulator has its own controller, and its workspace, kinematics and
feedback are unknown here. So this is for simulators; a physical arm comes in through robot/interfaces.py.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from robot.arm_env import ALL_MOTIONS, ArmEnv, EnvFacts
from robot.env import OVERRUN_TOLERANCE
from robot.interfaces import Clock, Demonstrator, DeviceError, RobotFault
from robot.tasks import POSITION_NAMES, ROTATION_NAMES, GripperMode, concatenate
from robot.types import ACTION_DIM, Array, Float32, Image, ProprioSpec

GRIPPER_THRESHOLD = 0.5  # an action entry beyond it commands the gripper
_HELD_GRIPPER = ProprioSpec(
    ("gripper_command",), np.zeros(1, np.float32), np.ones(1, np.float32), np.zeros(1, np.float32)
)


@dataclass(frozen=True, kw_only=True, eq=False)
class ForeignTask:
    """A Gymnasium environment and what its API leaves unsaid; a user's function makes it.

    observe: its observation -> images (H, W, 3) uint8 by view and the proprio (P,), as `views` and `proprio` say.
    act: executed action (7,) in [-1, 1], where the gripper's entry is the held command (+1 open, -1 closed, 0 for a
    fixed gripper) -> its action. success_key: entry of the `info` of its step that tells success. Success counts
    once it has held for `hold_steps` steps; `max_steps` is the time limit. Its own reward is not used. What it reports
    as `terminated` without success is learned as failure, so a time limit of its own must come as `truncated`.
    active, goal, metadata: see EnvFacts. expert: a scripted demonstrator, given a random generator and its noise
    (0 clean .. 1 barely competent), if there is one. A gripper that is BINARY is open after reset.
    """

    env: gym.Env[Any, Any]
    name: str
    instruction: str
    max_steps: int
    proprio: ProprioSpec
    observe: Callable[[Any], tuple[Mapping[str, Image], Array]]
    act: Callable[[Float32], Any]
    views: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # view -> (H, W) in pixels
    success_key: str = "success"
    hold_steps: int = 1
    gripper_mode: GripperMode = GripperMode.BINARY
    active: tuple[int, ...] = ALL_MOTIONS
    goal: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    metadata: Mapping[str, object] = field(default_factory=dict)
    expert: Callable[[np.random.Generator, float], Demonstrator] | None = None

    def __post_init__(self) -> None:
        if re.fullmatch(r"[\w-]+", self.name) is None:
            raise ValueError(f"ForeignTask.name: expected letters, digits, '_' and '-', got {self.name!r}")
        if not 1 <= self.hold_steps <= self.max_steps:
            raise ValueError(
                f"ForeignTask: expected 1 <= hold_steps <= max_steps, got {self.hold_steps} and {self.max_steps}"
            )
        poses = [name for name in self.goal if name not in (*POSITION_NAMES, *ROTATION_NAMES)]
        if poses or not set(self.goal) <= set(self.proprio.names):
            raise ValueError(
                f"ForeignTask.goal: expected entries of the tool's pose, named {(*POSITION_NAMES, *ROTATION_NAMES)}, "
                f"which are in the proprio, got {sorted(self.goal)} with a proprio of {list(self.proprio.names)}"
            )


class ForeignEnv(ArmEnv):
    """Actions are clipped to [-1, 1] and refused where they are not finite, as for our own arms; see ArmEnv.

    An observation that is not finite stops the episode with RobotFault; one of another form is a DeviceError. The
    held gripper command is appended to the proprio. On a wall clock each step lasts `period` [s].
    """

    def __init__(self, task: ForeignTask, clock: Clock, period: float, *, seed: int = 0) -> None:
        self.task = task
        self._clock, self._period = clock, period
        self._binary = task.gripper_mode is GripperMode.BINARY
        self._spec = concatenate(task.proprio, _HELD_GRIPPER) if self._binary else task.proprio
        self._first_seed: int | None = seed
        self._steps = self._held = 0
        self._gripper = 0.0
        self._tick = 0.0
        self._ready = False
        spaces: dict[str, gym.Space[Any]] = {
            "proprio": gym.spaces.Box(-np.inf, np.inf, (self._spec.dim,), np.float32)
        }
        if task.views:
            spaces["images"] = gym.spaces.Dict(
                {view: gym.spaces.Box(0, 255, (*size, 3), np.uint8) for view, size in task.views.items()}
            )
        self.observation_space = gym.spaces.Dict(spaces)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (ACTION_DIM,), np.float32)
        made = np.shape(task.act(np.zeros(ACTION_DIM, np.float32)))
        if made != task.env.action_space.shape:
            raise DeviceError(
                f"{task.name}: its actions are {task.env.action_space.shape}, ForeignTask.act made {made}; fix act"
            )

    @property
    def facts(self) -> EnvFacts:
        """As the user's function said."""
        return EnvFacts(
            task=self.task.name,
            instruction=self.task.instruction,
            gripper_mode=self.task.gripper_mode,
            active=self.task.active,
            goal=self.task.goal,
            metadata={"control_hz": round(1.0 / self._period, 6), **self.task.metadata},
        )

    @property
    def proprio_spec(self) -> ProprioSpec:
        """That of the task and, unless the gripper is fixed, `gripper_command`."""
        return self._spec

    @property
    def clock(self) -> Clock:
        """Virtual, or of this machine."""
        return self._clock

    @property
    def gripper_command(self) -> float:
        """See ArmEnv.gripper_command."""
        return self._gripper

    def hold(self) -> None:
        """Nothing to do: a simulator stands still between steps."""

    def end_episode(self) -> None:
        """See ArmEnv.end_episode."""
        self._ready = False

    def along_action_axes(self, delta: Array) -> Array:
        """`delta`: its action axes are taken for those of its base."""
        return delta

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode; the first unseeded one has the seed of the constructor. Raises RobotFault, DeviceError."""
        if seed is None:
            seed = self._first_seed
        self._first_seed = None
        super().reset(seed=seed)
        self._ready = False
        observation, _ = self.task.env.reset(seed=seed, options=options)
        self._steps = self._held = 0
        self._gripper = 1.0 if self._binary else 0.0
        self._tick = self._clock.now()
        values = self._values(observation)
        self._ready = True
        return values, self._stamps()

    def step(self, action: Float32) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """One control period. Raises ValueError for an action that is no finite (7,), RobotFault, DeviceError."""
        if not self._ready:
            raise RuntimeError("ForeignEnv.step: the episode is over or has not begun; call reset() first")
        requested = np.array(action, dtype=np.float32)
        if requested.shape != (ACTION_DIM,) or not np.isfinite(requested).all():
            raise ValueError(f"action: expected ({ACTION_DIM},) finite values in [-1, 1], got {action}")
        executed, changed = self._execute(requested)
        command = executed.copy()
        command[-1] = self._gripper
        self._ready = False  # until the step has gone well
        observation, _, ended, cut, told = self.task.env.step(self.task.act(command))
        overrun, period = self._wait_for_tick()
        values = self._values(observation)
        self._steps += 1
        self._held = self._held + 1 if self._succeeded(told) else 0
        success = self._held >= self.task.hold_steps or bool(ended and self._held)
        terminated = success or bool(ended)
        truncated = not terminated and (bool(cut) or self._steps >= self.task.max_steps)
        self._ready = not (terminated or truncated)
        info = {
            **self._stamps(),
            "action": executed,
            "requested_action": requested,
            "intervened": False,
            "gripper_changed": changed,
            "success": success,
            "clipped": ["action"] if np.abs(requested).max() > 1.0 else [],
            "period": period,
            "overrun": overrun,
        }
        return values, float(success), terminated, truncated, info

    def close(self) -> None:
        """Close the foreign environment."""
        self._ready = False
        self.task.env.close()

    def _execute(self, requested: Float32) -> tuple[Float32, bool]:
        """The action to be stored, and whether the held gripper command changes with it."""
        executed = np.zeros(ACTION_DIM, np.float32)
        active = list(self.task.active)
        executed[active] = requested[active].clip(-1.0, 1.0)
        if not self._binary or abs(requested[-1]) < GRIPPER_THRESHOLD:
            return executed, False
        executed[-1] = np.sign(requested[-1])
        changed = bool(executed[-1] != self._gripper)
        self._gripper = float(executed[-1])
        return executed, changed

    def _succeeded(self, told: Mapping[str, Any]) -> bool:
        if self.task.success_key not in told:  # unknown is not failure
            raise DeviceError(
                f"{self.task.name}: the info of a step has no {self.task.success_key!r}, it has {sorted(told)}; "
                "name the entry that tells success in ForeignTask.success_key, or add it in a gymnasium.Wrapper"
            )
        return bool(told[self.task.success_key])

    def _values(self, observation: Any) -> dict[str, Any]:
        try:
            images, proprio = self.task.observe(observation)
        except KeyError as error:
            known = sorted(observation) if isinstance(observation, Mapping) else type(observation).__name__
            raise DeviceError(
                f"{self.task.name}: no {error} in its observation, which has {known}; fix ForeignTask.observe"
            ) from error
        read = np.asarray(proprio, np.float32)
        if read.shape != (self.task.proprio.dim,):
            raise DeviceError(
                f"{self.task.name}: expected a proprio of ({self.task.proprio.dim},), as ForeignTask.proprio names it, "
                f"got {read.shape}; fix ForeignTask.observe"
            )
        if not np.isfinite(read).all():
            bad = [
                name for name, ok in zip(self.task.proprio.names, np.isfinite(read), strict=True) if not ok
            ]
            raise RobotFault(
                "nan_feedback", f"{self.task.name}: expected finite feedback, got {bad} of {read}"
            )
        values: dict[str, Any] = {
            "proprio": np.append(read, np.float32(self._gripper)) if self._binary else read
        }
        if self.task.views:
            values["images"] = {view: self._image(images, view) for view in self.task.views}
        return values

    def _image(self, images: Mapping[str, Image], view: str) -> Image:
        expected = (*self.task.views[view], 3)
        image = images.get(view)
        if image is None or image.shape != expected or image.dtype != np.uint8:
            got = f"only {sorted(images)}" if image is None else f"{image.shape} {image.dtype}"
            raise DeviceError(
                f"{self.task.name}: expected images[{view}] of {expected} uint8, got {got}; fix ForeignTask.observe"
            )
        return np.ascontiguousarray(image)

    def _stamps(self) -> dict[str, Any]:
        now = self._clock.now()
        return {"timestamp": now, "image_timestamps": dict.fromkeys(self.task.views, now)}

    def _wait_for_tick(self) -> tuple[bool, float]:
        """Sleep until the period is over; returns whether it was overrun and how long it was [s]."""
        self._clock.sleep_until(self._tick + self._period)
        period = round(self._clock.now() - self._tick, 6)
        self._tick = self._clock.now()
        return period > (1.0 + OVERRUN_TOLERANCE) * self._period, period


def load_function(path: str) -> Callable[..., Any]:
    """The function `package.module:name`, from an installed package or below the current directory.

    Raises DeviceError.
    """
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise DeviceError(
            f"robot.foreign={path}: expected <module>:<function>, such as my_arm.lift:make_task"
        )
    here = str(Path.cwd())
    if here not in sys.path:  # a console script, unlike `python -m`, does not look there
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise DeviceError(
            f"robot.foreign={path}: cannot import it from {here} ({error}); run from the directory in which it lies, "
            "in an environment in which it and what it needs are installed"
        ) from error
    if not callable(function):
        raise DeviceError(f"robot.foreign={path}: {module} has no function {name}")
    found: Callable[..., Any] = function
    return found
