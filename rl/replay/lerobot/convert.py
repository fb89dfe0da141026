"""From a dataset's rows to the store's numbers: physical motion first, then scales fitted over all episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.lerobot.errors import DatasetError, EpisodeError
from rl.replay.lerobot.mapping import ActionConfig, ActionSource, MappingConfig
from rl.replay.lerobot.poses import Poses, delta_between, joints, opening, read_poses, turn_delta
from rl.replay.lerobot.rows import EpisodeRows
from robot.frames import ProprioFrame
from robot.tasks import POSITION_NAMES, ROTATION_NAMES
from robot.types import Array, Episode, Label, ProprioSpec, Source

GRIPPER_OPENING = "gripper_opening"
_GRIPPER_THRESHOLD = 0.5  # of a command in -1..1 beyond which it opens or closes, as on the robot
_SMALLEST_SCALE = 1e-4  # m, rad: an entry that never moves has no scale of its own
_SMALLEST_SPREAD = 1e-3


@dataclass(frozen=True, eq=False)
class Stretch:
    """N observations of one episode without a gap and the N - 1 steps between them, in physical units.

    poses: of the tool, None without one. joints: (N, J) [rad or m]. opening: (N, 0 or 1). motion: (N - 1, A),
    pose delta [m, rad], joint deltas, gripper -1 closed to +1 open. timestamp: (N,) [s].
    """

    rows: EpisodeRows
    poses: Poses | None
    joints: Array
    opening: Array
    motion: Array
    reward: Array
    intervened: NDArray[np.bool_]
    timestamp: Array


@dataclass(frozen=True, eq=False)
class Scales:
    """What is fitted over all episodes. action: (A,) the motion that is stored as 1."""

    reference: Rotation
    action: Array
    proprio: ProprioSpec


class Converter:
    """Reads rows as a mapping says."""

    def __init__(self, mapping: MappingConfig) -> None:
        if mapping.state.empty:
            raise DatasetError(
                "mapping.state: expected a pose, joints or a gripper; choose a mapping that fits the dataset, "
                "such as mapping=droid_lab, or write one (docs/datasets.md)"
            )
        self._mapping = mapping

    def read(self, rows: EpisodeRows, *, last: bool) -> Stretch:
        """The physical numbers of gapless rows; `last`: they reach the end of the episode. Raises EpisodeError."""
        if len(rows) < 2:
            raise EpisodeError("a single frame: no step leads from it anywhere")
        state = self._mapping.state
        poses = read_poses(rows, state.feature, state.pose) if state.pose.position else None
        joint = joints(rows, state.feature, state.joints, state.joint_unit)
        opened = opening(rows, state.feature, state.gripper)
        # The last row's action leads to an observation that the dataset does not hold.
        return Stretch(
            rows=rows,
            poses=poses,
            joints=joint,
            opening=opened,
            motion=self._motion(rows.part(slice(0, len(rows) - 1)), poses, joint, opened),
            reward=self._reward(rows, last),
            intervened=self._intervened(rows),
            timestamp=rows.timestamps(),
        )

    def fit(self, stretches: Sequence[Stretch]) -> Scales:
        """Reference rotation, action scale and proprio scales over all stretches."""
        state, action = self._mapping.state, self._mapping.action
        if state.reference is not None:
            reference = Rotation.from_rotvec(state.reference)
        elif state.pose.rotation:
            poses = [s.poses for s in stretches if s.poses is not None]
            reference = Rotation.concatenate([p.rotation for p in poses]).mean()
        else:
            reference = Rotation.identity()
        motion = np.concatenate([s.motion for s in stretches])
        scale = _action_scale(motion, action, self._action_has_pose, self._action_has_gripper)
        values = np.concatenate([self._values(s, reference) for s in stretches])
        low, high = np.percentile(values, [1, 99], axis=0)
        spec = ProprioSpec(
            names=self._names(stretches[0]),
            offset=((low + high) / 2).astype(np.float32),
            scale=np.maximum((high - low) / 2, _SMALLEST_SPREAD).astype(np.float32),
            fine=np.zeros(values.shape[1], np.float32),
        )
        return Scales(reference, scale, spec)

    def metadata(self, scales: Scales, fps: float) -> dict[str, object]:
        """What gives the numbers their meaning, for the store's schema."""
        action = self._mapping.action
        return {
            "control_hz": fps,
            "action_frame": action.frame.value,
            "proprio_frame": ProprioFrame.BASE.value,
            "action_source": action.source.value,  # `derived`: the dataset had none, the motion stands for it
            "action_scale": scales.action.tolist(),
            "reference_rotvec": scales.reference.as_rotvec().tolist(),
            "reward_assumed": self._mapping.assume_success,
        }

    def episode(
        self, stretch: Stretch, scales: Scales, images: Mapping[str, NDArray[np.uint8]], *, last: bool
    ) -> Episode:
        """The stretch as stored; `requested_action` keeps what `action` clips to [-1, 1]."""
        steps = len(stretch.motion)
        wish = (stretch.motion / scales.action).astype(np.float32)
        success = last and bool(stretch.reward[-1] > 0)
        end = np.arange(steps) == steps - 1
        changed = np.zeros(steps, np.bool_)
        if self._action_has_gripper:
            opened = float(stretch.opening[0, 0]) if stretch.opening.shape[1] else None
            changed = gripper_changes(stretch.motion[:, -1], opened)
        source = np.where(stretch.intervened, Source.CORRECTION, self._mapping.source)
        return Episode(
            episode=stretch.rows.entry.index,
            images=images,
            proprio=self._values(stretch, scales.reference).astype(np.float32),
            action=np.clip(wish, -1.0, 1.0),
            requested_action=wish,
            reward=stretch.reward.astype(np.float32),
            terminated=end & success,
            truncated=end & (not success),
            intervened=stretch.intervened,
            gripper_changed=changed,
            source=source.astype(np.uint8),
            policy_version=np.full(steps, -1),
            label=np.full(steps, Label.SUCCESS if success else Label.UNKNOWN, np.int8),
            timestamp=stretch.timestamp,
            image_timestamps=dict.fromkeys(images, stretch.timestamp),
        )

    def outcome(self, stretch: Stretch, *, last: bool) -> EpisodeOutcome:
        """How the episode ended, as far as the dataset tells: unknown is not failure."""
        if not last:
            return EpisodeOutcome(EndReason.STOPPED, "cut at a gap in the recording")
        if stretch.reward[-1] > 0:
            return EpisodeOutcome(EndReason.SUCCESS)
        if stretch.rows.has(self._mapping.reward):
            return EpisodeOutcome(EndReason.TIMEOUT, "no reward at its end")
        return EpisodeOutcome(EndReason.STOPPED, "the dataset holds no reward: outcome unknown")

    @property
    def _action_has_pose(self) -> bool:
        derived = self._mapping.action.source is ActionSource.DERIVED
        return bool((self._mapping.state if derived else self._mapping.action).pose.position)

    @property
    def _action_has_gripper(self) -> bool:
        derived = self._mapping.action.source is ActionSource.DERIVED
        config = self._mapping.state.gripper if derived else self._mapping.action.gripper
        return self._action_has_pose or config.entry is not None

    def _values(self, stretch: Stretch, reference: Rotation) -> Array:
        parts = [stretch.joints, stretch.opening]
        if stretch.poses is not None:
            if self._mapping.state.pose.rotation:
                parts.insert(0, (stretch.poses.rotation * reference.inv()).as_rotvec())
            parts.insert(0, stretch.poses.position)
        return np.concatenate(parts, axis=1)

    def _names(self, stretch: Stretch) -> tuple[str, ...]:
        pose = self._mapping.state.pose
        return (
            *(POSITION_NAMES if pose.position else ()),
            *(ROTATION_NAMES if pose.rotation else ()),
            *(f"joint_{i}" for i in range(stretch.joints.shape[1])),
            *((GRIPPER_OPENING,) if stretch.opening.shape[1] else ()),
        )

    def _motion(self, rows: EpisodeRows, poses: Poses | None, joint: Array, opened: Array) -> Array:
        config = self._mapping.action
        here = poses[:-1] if poses is not None else None
        match config.source:
            case ActionSource.DERIVED:
                delta = (
                    delta_between(here, poses[1:], config.frame)
                    if here is not None and poses is not None
                    else None
                )
                turned, command = np.diff(joint, axis=0), opened[1:]
            case ActionSource.ABSOLUTE:
                delta = None
                if config.pose.position:
                    target = read_poses(rows, config.feature, config.pose)
                    delta = delta_between(_needed(here), target, config.frame)
                turned = _joint_targets(rows, config, joint)
                command = opening(rows, config.feature, config.gripper)
            case ActionSource.DELTA:
                delta = None
                if config.pose.position:
                    change = read_poses(rows, config.feature, config.pose)
                    delta = np.concatenate([change.position, change.rotation.as_rotvec()], axis=1)
                    if config.frame is not config.dataset_frame:
                        delta = turn_delta(delta, _needed(here), config.dataset_frame, config.frame)
                turned = joints(rows, config.feature, config.joints, config.joint_unit)
                command = opening(rows, config.feature, config.gripper)
        parts = [turned, 2.0 * command - 1.0]
        if delta is not None:
            # A pose action always has a gripper entry, as the arm's; 0 leaves the gripper alone.
            gripper = parts.pop() if command.shape[1] else np.zeros((len(rows), 1))
            parts = [delta, turned, gripper]
        motion = np.concatenate(parts, axis=1)
        if not motion.shape[1]:
            raise DatasetError("mapping.action: expected a pose, joints or a gripper, got none of them")
        return motion

    def _reward(self, rows: EpisodeRows, last: bool) -> Array:
        """(N - 1,): the last row's reward belongs to the step that led to it."""
        reward = np.zeros(len(rows) - 1)
        if rows.has(self._mapping.reward):
            given = rows.values(self._mapping.reward).reshape(len(rows))
            if not np.isfinite(given).all():
                raise EpisodeError(f"{self._mapping.reward}: NaN or infinity")
            reward = given[:-1].copy()
            reward[-1] += given[-1] if last else 0.0
        elif self._mapping.assume_success and last:
            reward[-1] = 1.0
        if rows.has("next.done") and rows.values("next.done").reshape(len(rows))[:-2].any():
            raise EpisodeError("next.done is set in the middle of the episode")
        return reward

    def _intervened(self, rows: EpisodeRows) -> NDArray[np.bool_]:
        if not rows.has(self._mapping.intervention):
            return np.zeros(len(rows) - 1, np.bool_)
        given = rows.values(self._mapping.intervention).reshape(len(rows))[:-1]
        intervened: NDArray[np.bool_] = given > 0.5
        return intervened


def gripper_changes(command: Array, opened: float | None) -> NDArray[np.bool_]:
    """In which steps a command (T,) from -1 closed to +1 open changes the gripper; between +-0.5 it keeps.

    opened: the opening at the start, where it is known; else the first command changes nothing.
    """
    wish = np.where(command >= _GRIPPER_THRESHOLD, 1, np.where(command <= -_GRIPPER_THRESHOLD, -1, 0))
    held = 0 if opened is None else (1 if opened > 0.5 else -1)
    changed = np.zeros(len(command), np.bool_)
    for t, want in enumerate(wish.tolist()):
        changed[t] = want != 0 and held not in (0, want)
        held = want or held
    return changed


def _needed(poses: Poses | None) -> Poses:
    if poses is None:
        raise DatasetError("mapping.state.pose: needed to turn this action into a delta; name its entries")
    return poses


def _joint_targets(rows: EpisodeRows, config: ActionConfig, joint: Array) -> Array:
    target = joints(rows, config.feature, config.joints, config.joint_unit)
    if not target.shape[1]:
        return target
    if target.shape[1] != joint.shape[1]:
        raise DatasetError(
            f"mapping: {target.shape[1]} joints in the action and {joint.shape[1]} in the state; name the same ones"
        )
    return target - joint[:-1]


def _action_scale(motion: Array, config: ActionConfig, pose: bool, gripper: bool) -> Array:
    scale = np.ones(motion.shape[1])
    moving = motion.shape[1] - gripper
    if config.metres is not None and config.radians is not None:
        scale[:moving] = config.radians
        if pose:
            scale[:3] = config.metres
    else:
        spread = np.percentile(np.abs(motion[:, :moving]), config.percentile, axis=0)
        scale[:moving] = np.where(spread > _SMALLEST_SCALE, spread, 1.0)
    return scale
