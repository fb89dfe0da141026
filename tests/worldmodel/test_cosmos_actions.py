"""Stored actions in the released model's convention: the definition on poses, frames, gripper, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot.geometry import DeltaFrame, Pose, apply_delta, matrix_to_quat, quat_to_matrix, rotvec_to_matrix
from worldmodel.cosmos.actions import ActionConfig, ActionConvention, network_actions, roll_pitch_yaw
from worldmodel.interface import ActionNormalisation, WorldModelError

IDENTITY = ActionNormalisation.identity(7)
GRIPPER = tuple(matrix_to_quat(rotvec_to_matrix(np.array([0.3, -1.0, 0.5]))).tolist())


def released(**changes: object) -> ActionConfig:
    settings = {
        "convention": ActionConvention.RELEASED,
        "frame": DeltaFrame.TOOL,
        "position_scale": 0.02,
        "rotation_scale": 0.1,
    }
    return ActionConfig(**(settings | changes))  # type: ignore[arg-type]


def from_angles(roll: float, pitch: float, yaw: float) -> np.ndarray:
    x, y, z = (
        rotvec_to_matrix(angle * axis) for angle, axis in zip((roll, pitch, yaw), np.eye(3), strict=True)
    )
    return z @ y @ x


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1, 1, width=32), min_size=6, max_size=6), st.integers(0, 2**16))
def test_the_motion_of_the_gripper_is_that_of_the_released_data(entries: list[float], seed: int) -> None:
    config = released(gripper_from_tool=GRIPPER)
    action = np.array([*entries, 0], np.float32)
    converted = network_actions(action[None, None], config, IDENTITY)[0, 0]
    # The definition of the released data, on poses: the gripper's frame is fixed in the tool's.
    rng = np.random.default_rng(seed)
    tool = Pose(rng.normal(size=3), rotvec_to_matrix(rng.normal(size=3)))
    delta = np.concatenate((0.02 * action[:3], 0.1 * action[3:6])).astype(np.float64)
    moved = apply_delta(tool, delta, DeltaFrame.TOOL)
    gripper_in_tool = quat_to_matrix(np.array(GRIPPER)).T
    before, after = tool.rotation @ gripper_in_tool, moved.rotation @ gripper_in_tool
    np.testing.assert_allclose(converted[:3], 20 * before.T @ (moved.position - tool.position), atol=1e-5)
    np.testing.assert_allclose(from_angles(*(converted[3:6] / 20.0)), before.T @ after, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.floats(-3, 3), st.floats(-1.5, 1.5), st.floats(-3, 3))
def test_angles_of_a_rotation(roll: float, pitch: float, yaw: float) -> None:
    rotation = from_angles(roll, pitch, yaw)
    np.testing.assert_allclose(from_angles(*roll_pitch_yaw(rotation)), rotation, atol=1e-9)
    np.testing.assert_allclose(roll_pitch_yaw(rotation), (roll, pitch, yaw), atol=1e-9)


def test_a_centimetre_is_a_fifth_and_the_gripper_holds_its_last_command() -> None:
    actions = np.zeros((2, 5, 7), np.float32)
    actions[0, :, 0] = 0.5
    actions[0, :, 6] = [0, -1, 0, 1, 0]
    converted = network_actions(actions, released(initially_closed=0.25), IDENTITY)
    np.testing.assert_allclose(converted[0, :, 0], 0.2, atol=1e-6)
    np.testing.assert_array_equal(converted[0, :, 6], [0.25, 1, 1, 0, 0])
    np.testing.assert_array_equal(converted[1, :, 6], 0.25)


def test_learned_actions_are_only_normalised() -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (2, 3, 7)).astype(np.float32)
    normalisation = ActionNormalisation(np.full(7, 0.5, np.float32), np.full(7, 2.0, np.float32))
    np.testing.assert_allclose(network_actions(actions, ActionConfig(), normalisation), (actions - 0.5) / 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frame": DeltaFrame.BASE}, "action_frame=tool"),
        ({"position_scale": 0.0}, "position_scale"),
        ({"rotation_scale": float("nan")}, "rotation_scale"),
        ({"initially_closed": 2.0}, "initially_closed"),
        ({"gripper_from_tool": (0.0, 0.0, 0.0, 0.0)}, "gripper_from_tool"),
    ],
)
def test_what_cannot_be_converted_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(WorldModelError, match=message):
        released(**change)


def test_only_seven_dimensional_actions_are_converted() -> None:
    with pytest.raises(WorldModelError, match="7-dimensional"):
        network_actions(np.zeros((1, 1, 6), np.float32), released(), IDENTITY)
