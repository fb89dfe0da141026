"""Mapping: whatever a pose is written in, and whether the action is a delta, a target or missing, the motion is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from rl.replay.lerobot.convert import Converter, Stretch, gripper_changes
from rl.replay.lerobot.errors import DatasetError, EpisodeError
from rl.replay.lerobot.layout import EpisodeEntry, Feature
from rl.replay.lerobot.mapping import (
    ActionConfig,
    ActionSource,
    GripperConfig,
    MappingConfig,
    PoseConfig,
    RotationKind,
    StateConfig,
)
from rl.replay.lerobot.poses import Poses, delta_between, read_rotation
from rl.replay.lerobot.rows import EpisodeRows
from robot.geometry import DeltaFrame, Pose
from robot.geometry import delta_between as robot_delta
from robot.types import Array

LENGTH = 12
WIDTHS = {kind: kind.width for kind in RotationKind if kind is not RotationKind.NONE}


def written(rotation: Rotation, kind: RotationKind, order: str = "") -> Array:
    """Rotations in the numbers of a notation."""
    match kind:
        case RotationKind.ROTVEC:
            return rotation.as_rotvec()
        case RotationKind.EULER:
            return rotation.as_euler(order)
        case RotationKind.QUAT_XYZW:
            return -rotation.as_quat()  # the same rotation with the other sign
        case RotationKind.QUAT_WXYZ:
            return rotation.as_quat()[:, [3, 0, 1, 2]] * 1.7  # of any length
        case RotationKind.SIX_D:
            return rotation.as_matrix()[:, :, :2].transpose(0, 2, 1).reshape(-1, 6)
        case RotationKind.NONE:
            return np.empty((len(rotation), 0))


def path(seed: int = 0) -> Poses:
    """A tool that points down, wanders and turns across the half turn."""
    rng = np.random.default_rng(seed)
    turns = Rotation.from_rotvec(np.cumsum(rng.normal(0, 0.05, (LENGTH, 3)), axis=0))
    return Poses(np.cumsum(rng.normal(0, 0.01, (LENGTH, 3)), axis=0), turns * Rotation.from_euler("x", np.pi))


def rows(columns: dict[str, NDArray[Any]]) -> EpisodeRows:
    table = {
        "timestamp": np.arange(LENGTH) / 10,
        **{name: values.tolist() for name, values in columns.items()},
    }
    features = {name: Feature("float64", values.shape[1:] or (1,)) for name, values in columns.items()}
    features["timestamp"] = Feature("float32", (1,))
    entry = EpisodeEntry(0, LENGTH, (), Path("rows.parquet"), {}, {})
    return EpisodeRows(entry, pa.table(table), features)


def pose(kind: RotationKind, order: str = "", **changes: Any) -> PoseConfig:
    entries = [str(3 + i) for i in range(kind.width)]
    return PoseConfig(position=["0", "1", "2"], rotation=entries, kind=kind, euler_order=order, **changes)


def read(mapping: MappingConfig, columns: dict[str, NDArray[Any]]) -> Stretch:
    return Converter(mapping).read(rows(columns), last=True)


NOTATIONS = [
    (RotationKind.ROTVEC, ""),
    (RotationKind.EULER, "xyz"),
    (RotationKind.EULER, "ZYX"),
    (RotationKind.QUAT_XYZW, ""),
    (RotationKind.QUAT_WXYZ, ""),
    (RotationKind.SIX_D, ""),
]


@pytest.mark.parametrize(("kind", "order"), NOTATIONS)
@pytest.mark.parametrize("frame", DeltaFrame)
def test_every_notation_and_source_gives_the_same_motion(
    kind: RotationKind, order: str, frame: DeltaFrame
) -> None:
    poses = path()
    expected = delta_between(poses[:-1], poses[1:], frame)
    state = np.concatenate([poses.position, written(poses.rotation, kind, order)], axis=1)
    target = np.concatenate([state[1:], state[-1:]])
    change = Rotation.from_rotvec(expected[:, 3:])
    delta = np.concatenate([expected[:, :3], written(change, kind, order)], axis=1)
    delta = np.concatenate(
        [delta, np.full((1, delta.shape[1]), np.nan)]
    )  # the last row's action is never used
    states = StateConfig(pose=pose(kind, order))
    actions = {
        ActionSource.DERIVED: (ActionConfig(source=ActionSource.DERIVED, frame=frame), target),
        ActionSource.ABSOLUTE: (
            ActionConfig(source=ActionSource.ABSOLUTE, pose=pose(kind, order), frame=frame),
            target,
        ),
        ActionSource.DELTA: (ActionConfig(pose=pose(kind, order), frame=frame, dataset_frame=frame), delta),
    }
    for action, column in actions.values():
        mapping = MappingConfig(state=states, action=action)
        stretch = read(mapping, {"observation.state": state, "action": column})
        np.testing.assert_allclose(stretch.motion[:, :6], expected, atol=1e-9)
        assert (stretch.motion[:, 6] == 0).all() and stretch.motion.shape == (LENGTH - 1, 7)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_deltas_are_those_of_the_robot(seed: int) -> None:
    poses = path(seed)
    for frame in DeltaFrame:
        ours = delta_between(poses[:-1], poses[1:], frame)
        for t in range(LENGTH - 1):
            start, end = (Pose(poses.position[at], poses.rotation[at].as_matrix()) for at in (t, t + 1))
            np.testing.assert_allclose(ours[t], robot_delta(start, end, frame), atol=1e-9)


def test_a_delta_of_the_tool_becomes_one_of_the_base() -> None:
    poses = path()
    of_tool = delta_between(poses[:-1], poses[1:], DeltaFrame.TOOL)
    state = np.concatenate([poses.position, poses.rotation.as_rotvec()], axis=1)
    action = ActionConfig(
        pose=pose(RotationKind.ROTVEC), dataset_frame=DeltaFrame.TOOL, frame=DeltaFrame.BASE
    )
    mapping = MappingConfig(state=StateConfig(pose=pose(RotationKind.ROTVEC)), action=action)
    columns = {"observation.state": state, "action": np.concatenate([of_tool, of_tool[:1]])}
    expected = delta_between(poses[:-1], poses[1:], DeltaFrame.BASE)
    np.testing.assert_allclose(read(mapping, columns).motion[:, :6], expected, atol=1e-9)


def test_euler_angles_that_wrap_do_not_jump() -> None:
    yaw = np.pi - 0.06 + 0.02 * np.arange(LENGTH)
    angles = np.stack([np.zeros(LENGTH), np.zeros(LENGTH), (yaw + np.pi) % (2 * np.pi) - np.pi], axis=1)
    assert np.abs(np.diff(angles[:, 2])).max() > 6
    state = np.concatenate([np.zeros((LENGTH, 3)), angles], axis=1)
    mapping = MappingConfig(
        state=StateConfig(pose=pose(RotationKind.EULER, "xyz")),
        action=ActionConfig(source=ActionSource.DERIVED),
    )
    stretch = read(mapping, {"observation.state": state})
    np.testing.assert_allclose(stretch.motion[:, 5], 0.02, atol=1e-9)
    converter = Converter(mapping)
    proprio = converter.episode(stretch, converter.fit([stretch]), {}, last=True).proprio
    np.testing.assert_allclose(np.diff(proprio[:, 5]), 0.02, atol=1e-6)


def test_units_degrees_and_millimetres() -> None:
    state = np.concatenate([np.full((LENGTH, 3), 250.0), np.tile([0.0, 0.0, 90.0], (LENGTH, 1))], axis=1)
    config = pose(RotationKind.EULER, "xyz", metres=0.001, radians=np.pi / 180)
    mapping = MappingConfig(state=StateConfig(pose=config), action=ActionConfig(source=ActionSource.DERIVED))
    poses = read(mapping, {"observation.state": state}).poses
    assert poses is not None
    np.testing.assert_allclose(poses.position, 0.25)
    np.testing.assert_allclose(
        poses.rotation.as_rotvec(), np.tile([0, 0, np.pi / 2], (LENGTH, 1)), atol=1e-12
    )


@pytest.mark.parametrize(("closed", "open_"), [(1.0, 0.0), (0.0, 1.0), (-1.0, 1.0), (0.0, 0.08)])
def test_the_gripper_has_a_polarity_and_a_scale(closed: float, open_: float) -> None:
    opening = np.linspace(0, 1, LENGTH)
    value = (closed + opening * (open_ - closed))[:, None]
    gripper = GripperConfig("0", closed=closed, open=open_)
    mapping = MappingConfig(state=StateConfig(gripper=gripper), action=ActionConfig(gripper=gripper))
    stretch = read(mapping, {"observation.state": value, "action": value})
    np.testing.assert_allclose(stretch.opening[:, 0], opening, atol=1e-12)
    np.testing.assert_allclose(stretch.motion[:, 0], 2 * opening[:-1] - 1, atol=1e-12)


def test_when_the_gripper_changes() -> None:
    command = np.array([1.0, 0.2, -1.0, -0.4, -0.6, 0.5, 0.0])
    assert gripper_changes(command, 1.0).tolist() == [False, False, True, False, False, True, False]
    assert gripper_changes(command, 0.0)[0] and not gripper_changes(command, None)[0]


def test_joints_as_targets_in_degrees() -> None:
    joints = np.cumsum(np.full((LENGTH, 2), 2.0), axis=0)
    target = np.concatenate([joints[1:], joints[-1:]])
    unit = np.pi / 180
    state = StateConfig(joints=["0", "1"], joint_unit=unit)
    action = ActionConfig(source=ActionSource.ABSOLUTE, joints=["0", "1"], joint_unit=unit)
    stretch = read(MappingConfig(state=state, action=action), {"observation.state": joints, "action": target})
    np.testing.assert_allclose(stretch.motion, np.full((LENGTH - 1, 2), 2 * unit))
    converter = Converter(MappingConfig(state=state, action=action))
    assert converter.fit([stretch]).proprio.names == ("joint_0", "joint_1")
    with pytest.raises(DatasetError, match="1 joints in the action and 2 in the state"):
        read(
            MappingConfig(state=state, action=replace(action, joints=["0"])),
            {"observation.state": joints, "action": target},
        )


def test_scales_measured_or_given() -> None:
    poses = path()
    state = np.concatenate([poses.position, poses.rotation.as_rotvec()], axis=1)
    states = StateConfig(pose=pose(RotationKind.ROTVEC))
    measured = Converter(
        MappingConfig(state=states, action=ActionConfig(source=ActionSource.DERIVED, percentile=100))
    )
    stretch = measured.read(rows({"observation.state": state}), last=True)
    scales = measured.fit([stretch])
    np.testing.assert_allclose(scales.action[:6], np.abs(stretch.motion[:, :6]).max(axis=0))
    assert scales.action[6] == 1.0
    action = ActionConfig(source=ActionSource.DERIVED, metres=0.005, radians=0.02)
    fixed = Converter(MappingConfig(state=states, action=action))
    scales = fixed.fit([stretch])
    assert scales.action.tolist() == [0.005] * 3 + [0.02] * 3 + [1.0]
    episode = fixed.episode(stretch, scales, {}, last=True)
    assert np.abs(episode.action).max() == 1.0 and np.abs(episode.requested_action).max() > 1.0
    np.testing.assert_allclose(episode.requested_action * scales.action, stretch.motion, atol=1e-7)
    assert fixed.metadata(scales, 10.0)["action_scale"] == scales.action.tolist()


def test_entries_of_several_features() -> None:
    position, opening = np.zeros((LENGTH, 3)), np.linspace(0, 1, LENGTH)
    state = StateConfig(
        feature="observation.cartesian",
        pose=PoseConfig(position=["0", "1", "2"]),
        gripper=GripperConfig("observation.fingers:0"),
    )
    mapping = MappingConfig(state=state, action=ActionConfig(source=ActionSource.DERIVED))
    stretch = read(mapping, {"observation.cartesian": position, "observation.fingers": opening})
    np.testing.assert_allclose(stretch.opening[:, 0], opening)
    np.testing.assert_allclose(stretch.motion[:, 6], 2 * opening[1:] - 1)


def test_the_last_rows_reward_belongs_to_the_last_step() -> None:
    reward = np.zeros(LENGTH)
    reward[[3, -1]] = -0.5, 1.0
    mapping = MappingConfig(state=StateConfig(joints=["0"]), action=ActionConfig(source=ActionSource.DERIVED))
    columns = {"observation.state": np.arange(LENGTH)[:, None] * 0.1, "next.reward": reward}
    stretch = read(mapping, columns)
    assert stretch.reward[3] == -0.5 and stretch.reward[-1] == 1.0 and len(stretch.reward) == LENGTH - 1
    part = Converter(mapping).read(rows(columns), last=False)
    assert part.reward[-1] == 0.0


def test_impossible_rotations_are_named() -> None:
    config = pose(RotationKind.SIX_D)
    with pytest.raises(EpisodeError, match="zero or parallel"):
        read_rotation("observation.state", np.array([[1.0, 0, 0, 2.0, 0, 0]]), config)


def test_a_delta_along_other_axes_needs_a_state() -> None:
    action = ActionConfig(pose=pose(RotationKind.ROTVEC), dataset_frame=DeltaFrame.TOOL)
    mapping = MappingConfig(state=StateConfig(joints=["0"]), action=action)
    with pytest.raises(DatasetError, match=r"mapping.state.pose: needed"):
        read(mapping, {"observation.state": np.zeros((LENGTH, 1)), "action": np.zeros((LENGTH, 6))})
