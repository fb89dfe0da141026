"""Value profile: V around the place that decides an episode, on the simulated arm. At the end of a run.

A critic that cannot tell a millimetre from a centimetre shows a flat profile here, however high its Q has risen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from rl.build import make_schema
from rl.diagnostics.value import ValuingAgent, state_values
from rl.figures import save_figure
from robot.env import RobotEnv
from robot.geometry import Pose, rotvec_to_matrix
from robot.interfaces import RobotFault
from robot.kinematics import Kinematics
from robot.sim.expert import ScriptedExpert
from robot.sim.workcell import SimWorkcell
from robot.sim.world import SimWorld, WorldState
from robot.types import Array, Observation

ATTEMPTS_PER_LAYOUT = 3


@dataclass(frozen=True)
class ValueProfileConfig:
    """Offsets of the tool from the demonstrated pose, base axes, and how many layouts are averaged."""

    reach: float = 0.012  # m, largest offset in x and in y
    points: int = 9  # of the map, in x and in y
    yaw_reach: float = 0.12  # rad about the vertical
    yaw_points: int = 13
    layouts: int = 3
    steps_before: int = 3  # control steps between the chosen state and the moment that decides

    def __post_init__(self) -> None:
        if not (0 < self.reach <= 0.1 and 0 < self.yaw_reach <= 1.0):
            raise ValueError(
                f"ValueProfileConfig: expected reach in (0, .1] m, yaw_reach in (0, 1], got {self}"
            )
        if min(self.points, self.yaw_points) < 3 or self.layouts < 1 or self.steps_before < 0:
            raise ValueError(f"ValueProfileConfig: expected >= 3 points and >= 1 layout, got {self}")


@dataclass(frozen=True)
class Shape:
    """Where a profile peaks and how it stands out.

    contrast: (peak - mean) / standard deviation. spread: highest minus lowest value, in units of the return.
    """

    peak: tuple[float, ...]  # offset of the highest value, m or rad
    contrast: float
    spread: float


@dataclass(frozen=True, eq=False)
class ValueProfile:
    """V, mean over the layouts: of the map (X, Y) at offsets x (X,) and y (Y,) [m], and along yaw (W,) [rad].

    NaN where the arm could not be placed in one of the layouts.
    """

    x: Array
    y: Array
    value: Array
    yaw: Array
    yaw_value: Array
    layouts: int

    def shape(self) -> Shape | None:
        """Of the map."""
        return _shape(self.value, (self.x, self.y))

    def yaw_shape(self) -> Shape | None:
        """Of the curve over yaw."""
        return _shape(self.yaw_value, (self.yaw,))

    def as_json(self) -> dict[str, Any]:
        """Its numbers in millimetres and radians; null where the arm could not be placed."""
        shape, yaw_shape = self.shape(), self.yaw_shape()
        return {
            "layouts": self.layouts,
            "peak_mm": shape and [round(1e3 * offset, 3) for offset in shape.peak],
            "contrast": shape and shape.contrast,
            "spread": shape and shape.spread,
            "yaw_peak_rad": yaw_shape and round(yaw_shape.peak[0], 4),
            "yaw_contrast": yaw_shape and yaw_shape.contrast,
            "yaw_spread": yaw_shape and yaw_shape.spread,
            "x_mm": (1e3 * self.x).round(3).tolist(),
            "y_mm": (1e3 * self.y).round(3).tolist(),
            "value": [_nullable(row) for row in self.value],
            "yaw_rad": self.yaw.round(4).tolist(),
            "yaw_value": _nullable(self.yaw_value),
        }


def value_profile(
    env: RobotEnv,
    agent: ValuingAgent,
    expert: ScriptedExpert,
    config: ValueProfileConfig,
    *,
    first_seed: int,
) -> ValueProfile | None:
    """The profile over layouts `first_seed`, `first_seed + 1`, ... of a simulated, teleporting environment.

    In each one the expert shows the state, `steps_before` before the gripper first moves or, if it never does,
    before success begins: what decides is near, and nothing is in the gripper that an offset would tear away.
    None where the expert succeeds in no layout. Raises ValueError for a real arm.
    """
    if not isinstance(env.workcell, SimWorkcell):
        raise ValueError(
            "value profile: expected a simulated cell, in which an arm can be put anywhere at once"
        )
    x = np.linspace(-config.reach, config.reach, config.points)
    yaw = np.linspace(-config.yaw_reach, config.yaw_reach, config.yaw_points)
    offsets = [(dx, dy, 0.0) for dx in x for dy in x] + [(0.0, 0.0, turn) for turn in yaw]
    layouts: list[Array] = []
    for seed in range(first_seed, first_seed + ATTEMPTS_PER_LAYOUT * config.layouts):
        if len(layouts) == config.layouts:
            break
        state = _deciding_state(env, env.workcell.world, expert, seed, config.steps_before)
        if state is not None:
            layouts.append(_values(env, env.workcell.world, agent, state, offsets))
    if not layouts:
        return None
    mean = np.mean(layouts, axis=0)
    cells = config.points**2
    return ValueProfile(x, x, mean[:cells].reshape(len(x), len(x)), yaw, mean[cells:], len(layouts))


def _deciding_state(
    env: RobotEnv, world: SimWorld, expert: ScriptedExpert, seed: int, steps_before: int
) -> WorldState | None:
    """The state so many steps before the deciding moment of the expert's episode; None if that fails."""
    env.reset(seed=seed)
    expert.reset()
    states: list[WorldState] = []
    while True:
        states.append(world.get_state())
        _, _, terminated, truncated, info = env.step(expert.act())
        if info["gripper_changed"]:
            return states[max(0, len(states) - 1 - steps_before)]
        if terminated:
            return states[max(0, len(states) - env.robot.spec.hold_steps - steps_before)]
        if truncated:
            return None


def _values(
    env: RobotEnv,
    world: SimWorld,
    agent: ValuingAgent,
    state: WorldState,
    offsets: Sequence[tuple[float, float, float]],
) -> Array:
    """V (N,) with the tool at rest at each offset (x [m], y [m], yaw [rad]) from where `state` has it."""
    values = np.full(len(offsets), np.nan)
    placed: list[int] = []
    seen: list[Observation] = []
    for k, offset in enumerate(offsets):
        world.set_state(state)
        observation = _observe_displaced(env, world, *offset)
        if observation is not None:
            placed.append(k)
            seen.append(observation)
    if seen:
        values[placed] = state_values(agent, make_schema(env), seen)
    return values


def _observe_displaced(env: RobotEnv, world: SimWorld, x: float, y: float, yaw: float) -> Observation | None:
    """What is seen with the tool displaced by that much; None where the arm cannot or must not be there."""
    tool = world.tcp()
    goal = Pose(
        tool.position + np.array([x, y, 0.0]), rotvec_to_matrix(np.array([0.0, 0.0, yaw])) @ tool.rotation
    )
    result = Kinematics().inverse(goal, world.joint_positions)
    if not result.converged:
        return None
    world.place_arm(result.joint_positions, world.gripper_opening)
    try:
        env.robot.begin_episode()  # the governor's target and the velocities start from here
    except RobotFault:
        return None
    return env.robot.observe()


def _shape(values: Array, axes: Sequence[Array]) -> Shape | None:
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    place = np.unravel_index(np.nanargmax(values), values.shape)
    std = float(known.std())
    return Shape(
        peak=tuple(float(axis[i]) for axis, i in zip(axes, place, strict=True)),
        contrast=float(known.max() - known.mean()) / std if std > 0 else 0.0,
        spread=float(known.max() - known.min()),
    )


def _nullable(values: Array) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def draw(profile: ValueProfile, path: Path, title: str) -> None:
    """Heat map over x and y with the demonstrated place and the peak, and the curve over yaw."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    x, y = 1e3 * profile.x, 1e3 * profile.y
    picture = left.pcolormesh(x, y, np.ma.masked_invalid(profile.value.T), shading="nearest")
    figure.colorbar(picture, ax=left, label="V")
    left.plot(0, 0, "w+", ms=12, mew=2, label="demonstrated")
    shape = profile.shape()
    if shape is not None:
        left.plot(1e3 * shape.peak[0], 1e3 * shape.peak[1], "r.", ms=10, label="highest V")
        left.set_title(f"contrast {shape.contrast:.1f}, spread {shape.spread:.3f}", fontsize=10)
    left.set(xlabel="x offset (mm)", ylabel="y offset (mm)", aspect="equal")
    left.legend(fontsize=8, loc="upper right")
    right.plot(profile.yaw, profile.yaw_value, "o-")
    right.axvline(0, color="grey", lw=0.8)
    right.set(xlabel="yaw offset (rad)", ylabel="V", title="over yaw")
    figure.suptitle(title)
    save_figure(path, figure, dpi=100)
