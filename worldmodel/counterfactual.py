"""Counterfactual actions: a real clip's own, slightly changed, and those of the policy; from clips to rollouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from robot.frames import RelativeFrame
from robot.geometry import DeltaFrame, Pose, apply_delta, matrix_to_rotvec
from robot.safety import ActionScale
from robot.tasks import PROPRIO_NAMES, TaskSpec
from robot.types import Array, Clip, Float32
from worldmodel.interface import WorldModelError

MOTION_DIM = 6  # 3 position, 3 rotation; the entries behind them, the gripper's, are never changed
BISECTIONS = 10  # of the share of a turn that stays in the orientation window: to a thousandth
LAG = slice(PROPRIO_NAMES.index("lag_x"), PROPRIO_NAMES.index("lag_rz") + 1)

Policy = Callable[[Clip], Float32]  # a clip to the actions (B, T, A) that the policy would take along it


class BranchKind(Enum):
    """Whose actions a branch has."""

    REPLAY = "replay"  # the real ones: what is imagined can be compared with what happened
    LOCAL = "local"  # the real ones, scaled and shaken
    POLICY = "policy"  # the present policy's


@dataclass(frozen=True)
class CounterfactualConfig:
    """How far from the real motion. branches: LOCAL ones per clip, beside the one REPLAY."""

    branches: int = 4
    scale: float = 0.20  # s: each entry of a clip is scaled by xi ~ U(1 - s, 1 + s), one xi for all steps
    noise: float = 0.05  # sigma: each entry of each step gets eps ~ N(0, sigma^2), in units of the action
    active: float = 1e-3  # an entry that stays below this in the whole clip is not moved at all
    max_position: float = 0.025  # m between the commanded paths; a draw that strays further is rejected
    max_rotation: float = 0.2  # rad
    max_draws: int = 10  # per branch; then the branch is left out

    def __post_init__(self) -> None:
        if self.branches < 0 or self.max_draws < 1:
            raise ValueError(
                f"counterfactual: expected branches >= 0 and max_draws >= 1, got {self.branches}, {self.max_draws}"
            )
        if not (0 <= self.scale < 1 and 0 <= self.noise < 1 and self.active >= 0):
            raise ValueError(
                "counterfactual: expected scale and noise in [0, 1) and active >= 0, "
                f"got {self.scale}, {self.noise}, {self.active}"
            )
        if not (self.max_position > 0 and self.max_rotation > 0):
            raise ValueError("counterfactual: expected max_position > 0 m and max_rotation > 0 rad")


@dataclass(frozen=True, eq=False)
class Motion:
    """What actions do: units, axes, and where the commanded tool point may be (base frame, SI units)."""

    scale: ActionScale
    frame: DeltaFrame
    lower: Array  # (3,) m
    upper: Array  # (3,) m
    reference_rotation: Array  # (3, 3)
    rotation_limit: Array  # (3,) rad, per axis of the rotation vector from the reference

    @classmethod
    def of(cls, spec: TaskSpec, frame: DeltaFrame) -> Motion:
        """The motion that the governor of this task allows, for actions along the axes of `frame`."""
        return cls(
            spec.action_scale,
            frame,
            spec.workspace_lower,
            spec.workspace_upper,
            spec.reference_rotation,
            spec.rotation_limit,
        )

    def commanded_poses(self, proprio: Float32) -> list[Pose]:
        """The target poses, which actions move, behind (B, P) proprio seen from the base frame."""
        seen_from = RelativeFrame(Pose(np.zeros(3), self.reference_rotation), self.reference_rotation)
        values = proprio.astype(np.float64)
        return [apply_delta(seen_from.absolute(row[:MOTION_DIM]), row[LAG], self.frame) for row in values]

    def moved(self, pose: Pose, action: Array) -> Pose:
        """`pose` after one action (6,), whether allowed or not."""
        return apply_delta(pose, action * self._units, self.frame)

    def allowed(self, pose: Pose, action: Array) -> Array:
        """The part of `action` (6,), each entry the same or nearer to 0, that stays in the box and the window.

        A pose that is outside already may come back, and not go further out.
        """
        inside: Array = np.clip(action, -1.0, 1.0)
        wish = self.moved(pose, inside)
        lower, upper = np.minimum(self.lower, pose.position), np.maximum(self.upper, pose.position)
        kept = np.clip(wish.position, lower, upper)
        if (kept != wish.position).any():
            match self.frame:
                case DeltaFrame.BASE:  # along the axes of the box: the arm slides along its wall
                    inside[:3] = np.where(
                        kept != wish.position, (kept - pose.position) / self._units[:3], inside[:3]
                    )
                case DeltaFrame.TOOL:  # sliding would move entries that are 0: the step is shortened
                    step = wish.position - pose.position
                    inside[:3] *= np.min((kept - pose.position)[step != 0] / step[step != 0])
        if inside[3:].any() and (self._turn(wish) > self._window(pose)).any():
            inside[3:] *= self._turn_share(pose, inside)
        return inside

    @cached_property
    def _units(self) -> Array:
        return np.repeat([self.scale.position, self.scale.rotation], 3)

    def _turn(self, pose: Pose) -> Array:
        turn: Array = np.abs(matrix_to_rotvec(pose.rotation @ self.reference_rotation.T))
        return turn

    def _window(self, pose: Pose) -> Array:
        return np.maximum(self.rotation_limit, self._turn(pose))

    def _turn_share(self, pose: Pose, action: Array) -> float:
        low, high, window = 0.0, 1.0, self._window(pose)
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            turned = self.moved(pose, np.append(action[:3], middle * action[3:]))
            low, high = (low, middle) if (self._turn(turned) > window).any() else (middle, high)
        return low


@dataclass(frozen=True)
class Branches:
    """N action sequences over the T steps after the start of the clips they come from.

    source: (N,) index of the clip. actions: (N, T, A). seed: (N,) of the LOCAL draw, -1 for others; `draw` gives
    xi and eps again. position_deviation [m], rotation_deviation [rad]: (N,) largest distance between the path
    commanded here and the real one.
    """

    source: NDArray[np.int64]
    kind: tuple[BranchKind, ...]
    actions: Float32
    seed: NDArray[np.int64]
    position_deviation: Array
    rotation_deviation: Array

    def __len__(self) -> int:
        return len(self.source)

    def of_kind(self, kind: BranchKind) -> NDArray[np.bool_]:
        """(N,) which branches are of this kind."""
        return np.array([k is kind for k in self.kind], np.bool_)


def draw(seed: int, steps: int, config: CounterfactualConfig) -> tuple[Array, Array]:
    """The scale xi (6,) and the noise eps (steps, 6) of a seed."""
    rng = np.random.default_rng(seed)
    xi = rng.uniform(1.0 - config.scale, 1.0 + config.scale, MOTION_DIM)
    return xi, rng.normal(0.0, config.noise, (steps, MOTION_DIM))


def perturb(
    actions: Float32,
    seed: int,
    config: CounterfactualConfig,
    motion: Motion,
    start: Pose | None = None,
    valid: NDArray[np.bool_] | None = None,
) -> Float32:
    """a'_tj = Pi(xi_j a_tj + eps_tj) for actions (T, A): Pi clips to [-1, 1] and to the box from `start` on.

    Entries that are inactive in the whole clip, steps that are not `valid` (T,), and the gripper stay bit-equal.
    Without `start`, the commanded pose at the first step, Pi knows no box.
    """
    xi, eps = draw(seed, len(actions), config)
    moving = np.ones(len(actions), np.bool_) if valid is None else valid
    active = np.abs(actions[moving, :MOTION_DIM]).max(axis=0, initial=0.0) > config.active
    changed = moving[:, None] & active
    wish = actions.copy()
    wish[:, :MOTION_DIM] = np.where(changed, xi * actions[:, :MOTION_DIM] + eps, actions[:, :MOTION_DIM])
    allowed = project(wish, motion, start)
    allowed[:, :MOTION_DIM] = np.where(changed, allowed[:, :MOTION_DIM], actions[:, :MOTION_DIM])
    return allowed


@dataclass(frozen=True, eq=False)
class Near:
    """Perturbed actions (T, A), the seed that gives them again, and how far they lead astray: [m] and [rad]."""

    actions: Float32
    seed: int
    position: float
    rotation: float


def perturb_near(
    actions: Float32,
    rng: np.random.Generator,
    config: CounterfactualConfig,
    motion: Motion,
    start: Pose | None = None,
    valid: NDArray[np.bool_] | None = None,
) -> Near | None:
    """The first of `max_draws` perturbations whose path stays near the real one; None where none does."""
    path = _path(actions, motion, start)
    for seed in rng.integers(2**31, size=config.max_draws).tolist():
        wish = perturb(actions, seed, config, motion, start, valid)
        position, rotation = _deviation(path, _path(wish, motion, start))
        if position <= config.max_position and rotation <= config.max_rotation:
            return Near(wish, seed, position, rotation)
    return None


def project(actions: Float32, motion: Motion, start: Pose | None) -> Float32:
    """Actions (T, A) clipped to [-1, 1] and, from the commanded pose `start` on, to the box and the window."""
    allowed = actions.clip(-1.0, 1.0)
    if start is not None:
        pose = start
        for t, action in enumerate(actions[:, :MOTION_DIM].astype(np.float64)):
            allowed[t, :MOTION_DIM] = motion.allowed(pose, action)
            pose = motion.moved(pose, allowed[t, :MOTION_DIM].astype(np.float64))
    return allowed


def make_branches(
    clip: Clip,
    motion: Motion,
    rng: np.random.Generator,
    config: CounterfactualConfig | None = None,
    starts: Sequence[Pose] | None = None,
    policy: Policy | None = None,
) -> Branches:
    """For each clip one REPLAY branch, up to `branches` LOCAL ones and, with a policy, one POLICY branch.

    starts: the commanded pose at each clip's start; None where it is unknown, and then nothing is clipped to the
    box. A policy's branch may stray as far as it wants; its deviation is told. Raises WorldModelError for a policy
    whose actions are not finite or of another shape.
    """
    settings = config or CounterfactualConfig()
    real = clip.action[:, clip.history :]
    proposed = None if policy is None else _checked(policy(clip), real)
    gathered = _Gathered()
    for index, actions in enumerate(real):
        start, valid = (None if starts is None else starts[index]), clip.valid[index, clip.history :]
        gathered.add(index, BranchKind.REPLAY, actions, -1, 0.0, 0.0)
        for _ in range(settings.branches):
            near = perturb_near(actions, rng, settings, motion, start, valid)
            if near is not None:
                gathered.add(index, BranchKind.LOCAL, near.actions, near.seed, near.position, near.rotation)
        if proposed is not None:
            wish = project(np.where(valid[:, None], proposed[index], actions), motion, start)
            strayed = _deviation(_path(actions, motion, start), _path(wish, motion, start))
            gathered.add(index, BranchKind.POLICY, wish, -1, *strayed)
    return gathered.branches()


@dataclass
class _Gathered:
    rows: list[tuple[int, BranchKind, Float32, int, float, float]] = field(default_factory=list)

    def add(
        self, source: int, kind: BranchKind, actions: Float32, seed: int, position: float, rotation: float
    ) -> None:
        self.rows.append((source, kind, actions, seed, position, rotation))

    def branches(self) -> Branches:
        source, kind, actions, seed, position, rotation = zip(*self.rows, strict=True)
        return Branches(
            np.array(source, np.int64),
            kind,
            np.stack(actions),
            np.array(seed, np.int64),
            np.array(position),
            np.array(rotation),
        )


def _checked(proposed: Float32, real: Float32) -> Float32:
    if proposed.shape != real.shape or not np.isfinite(proposed).all():
        raise WorldModelError(
            f"policy branches: expected finite actions {real.shape}, got {proposed.shape}; fix the policy"
        )
    return proposed.astype(np.float32)


def _path(actions: Float32, motion: Motion, start: Pose | None) -> list[Pose]:
    """The commanded poses after each action; how far two paths are apart does not depend on where they start."""
    pose, poses = start or Pose(np.zeros(3), np.eye(3)), []
    for action in actions[:, :MOTION_DIM].astype(np.float64):
        pose = motion.moved(pose, action)
        poses.append(pose)
    return poses


def _deviation(first: Sequence[Pose], second: Sequence[Pose]) -> tuple[float, float]:
    """Largest distance [m] and largest angle [rad] between two paths."""
    pairs = list(zip(first, second, strict=True))
    position = max(float(np.linalg.norm(a.position - b.position)) for a, b in pairs)
    rotation = max(float(np.linalg.norm(matrix_to_rotvec(a.rotation @ b.rotation.T))) for a, b in pairs)
    return position, rotation
