"""Tool poses from a dataset's columns, whatever their rotation is written in, and the deltas between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from rl.replay.lerobot.errors import DatasetError, EpisodeError
from rl.replay.lerobot.mapping import GripperConfig, PoseConfig, RotationKind
from rl.replay.lerobot.rows import EpisodeRows
from robot.geometry import DeltaFrame
from robot.types import Array


@dataclass(frozen=True, eq=False)
class Poses:
    """N poses in the base frame: position (N, 3) [m] and rotation."""

    position: Array
    rotation: Rotation

    def __getitem__(self, part: slice) -> Poses:
        return Poses(self.position[part], self.rotation[part])


def entries(rows: EpisodeRows, feature: str, wanted: list[str]) -> Array:
    """The entries (N, n) of a feature by name or index, or of another one as `feature:entry`."""
    picked = []
    for entry in wanted:
        name, colon, place = entry.rpartition(":")
        source = name if colon else feature
        values = rows.values(source).reshape(len(rows), -1)
        picked.append(values[:, _index(rows, source, place, values.shape[1])])
    return np.stack(picked, axis=1) if picked else np.empty((len(rows), 0))


def _index(rows: EpisodeRows, feature: str, place: str, width: int) -> int:
    names = rows.features[feature].names if feature in rows.features else ()
    if place in names and len(names) == width:
        return names.index(place)
    if place.isdecimal() and int(place) < width:
        return int(place)
    known = list(names) if len(names) == width else f"0 to {width - 1}"
    raise DatasetError(f"mapping: {feature} has no entry {place!r}; it has {known}")


def read_poses(rows: EpisodeRows, feature: str, config: PoseConfig) -> Poses:
    """The poses of an episode; without rotation entries, the identity. Raises EpisodeError for NaN."""
    position = _finite(feature, entries(rows, feature, config.position)) * config.metres
    written = _finite(feature, entries(rows, feature, config.rotation))
    return Poses(position, read_rotation(feature, written, config))


def read_rotation(feature: str, written: Array, config: PoseConfig) -> Rotation:
    """Rotations from numbers (N, n) in the notation of `config`; raises EpisodeError for impossible ones."""
    try:
        match config.kind:
            case RotationKind.NONE:
                return Rotation.identity(len(written))
            case RotationKind.ROTVEC:
                return Rotation.from_rotvec(written * config.radians)
            case RotationKind.EULER:
                return Rotation.from_euler(config.euler_order, written * config.radians)
            case RotationKind.QUAT_XYZW:
                return Rotation.from_quat(written)
            case RotationKind.QUAT_WXYZ:
                return Rotation.from_quat(written[:, [1, 2, 3, 0]])
            case RotationKind.SIX_D:
                return _from_six_d(written)
    except ValueError as error:
        raise EpisodeError(f"{feature}: no rotation {config.kind.value} ({error})") from error


def _from_six_d(written: Array) -> Rotation:
    """Gram-Schmidt on the two columns (Zhou et al. 2019, eq. 15)."""
    first, second = written[:, :3], written[:, 3:]
    length = np.linalg.norm(first, axis=1, keepdims=True)
    x = first / np.maximum(length, 1e-12)
    rest = second - (x * second).sum(axis=1, keepdims=True) * x
    across = np.linalg.norm(rest, axis=1, keepdims=True)
    if min(length.min(initial=1.0), across.min(initial=1.0)) < 1e-6:
        raise ValueError("its two columns are zero or parallel")
    y = rest / across
    return Rotation.from_matrix(np.stack([x, y, np.cross(x, y)], axis=2))


def delta_between(start: Poses, end: Poses, frame: DeltaFrame) -> Array:
    """Per row, the delta (N, 6) [m, rad] that leads from `start` to `end`, as `robot.geometry.delta_between`."""
    shift = end.position - start.position
    match frame:
        case DeltaFrame.BASE:
            turn = end.rotation * start.rotation.inv()
        case DeltaFrame.TOOL:
            shift = start.rotation.inv().apply(shift)
            turn = start.rotation.inv() * end.rotation
    return np.concatenate([shift, turn.as_rotvec()], axis=1)


def turn_delta(delta: Array, start: Poses, source: DeltaFrame, target: DeltaFrame) -> Array:
    """The deltas (N, 6) given along the axes of `source`, along those of `target`."""
    if source is target:
        return delta
    turn = start.rotation if source is DeltaFrame.TOOL else start.rotation.inv()
    return np.concatenate([turn.apply(delta[:, :3]), turn.apply(delta[:, 3:])], axis=1)


def opening(rows: EpisodeRows, feature: str, config: GripperConfig) -> Array:
    """The gripper's opening (N, 1), 0 closed to 1 open; (N, 0) where there is no gripper."""
    if config.entry is None:
        return np.empty((len(rows), 0))
    values = _finite(feature, entries(rows, feature, [config.entry]))
    return np.clip((values - config.closed) / (config.open - config.closed), 0.0, 1.0)


def joints(rows: EpisodeRows, feature: str, wanted: list[str], unit: float) -> Array:
    """Joint values (N, n) [rad or m]."""
    return _finite(feature, entries(rows, feature, wanted)) * unit


def _finite(feature: str, values: Array) -> Array:
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        raise EpisodeError(f"{feature}: NaN or infinity in {len(bad)} rows, first in frame {bad[0]}")
    return values
