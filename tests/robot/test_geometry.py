"""Rotations against independent formulas, deltas in both frames, round trips at any pose."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from robot.geometry import (
    DeltaFrame,
    Pose,
    apply_delta,
    delta_between,
    matrix_to_quat,
    matrix_to_rotvec,
    quat_to_matrix,
    rotvec_to_matrix,
)
from robot.types import Array

UNHURRIED = settings(deadline=None)  # a busy machine is no failure
FAR = Pose(np.array([3.0, -2.0, 1.5]), rotvec_to_matrix(np.array([0.7, -1.1, 0.4])))


def vectors(size: float) -> st.SearchStrategy[Array]:
    return st.tuples(*[st.floats(-size, size, allow_subnormal=False)] * 3).map(np.array)


def axes() -> st.SearchStrategy[Array]:
    return vectors(1.0).filter(lambda v: np.linalg.norm(v) > 0.1).map(lambda v: v / np.linalg.norm(v))


def series_exponential(rotvec: Array) -> Array:
    x, y, z = rotvec
    generator = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    term, total = np.eye(3), np.eye(3)
    for k in range(1, 40):
        term = term @ generator / k
        total = total + term
    return total


@UNHURRIED
@given(vectors(2.5))
@example(np.zeros(3))
@example(np.array([1e-9, -1e-7, 0.0]))
@example(np.array([1e-5, 0.9e-5, 0.0]))
def test_rotvec_to_matrix_is_the_matrix_exponential(rotvec: Array) -> None:
    np.testing.assert_allclose(rotvec_to_matrix(rotvec), series_exponential(rotvec), atol=1e-12)


@UNHURRIED
@given(axes(), st.floats(0.0, math.pi))
@example(np.array([1.0, 0.0, 0.0]), 1e-10)
@example(np.array([0.6, 0.0, 0.8]), math.pi - 1e-9)
def test_rotvec_round_trip_up_to_pi(axis: Array, angle: float) -> None:
    rotvec = matrix_to_rotvec(rotvec_to_matrix(axis * angle))
    # At pi the axis may point either way; everywhere else it is unique.
    error = np.abs(rotvec - axis * angle).max()
    if angle > math.pi - 1e-7:
        error = min(error, np.abs(rotvec + axis * angle).max())
    assert error < 1e-7
    assert np.linalg.norm(rotvec) <= math.pi + 1e-9


@pytest.mark.parametrize("axis", np.eye(3))
def test_half_turns_about_each_axis(axis: Array) -> None:
    matrix = 2.0 * np.outer(axis, axis) - np.eye(3)
    np.testing.assert_allclose(np.abs(matrix_to_rotvec(matrix)), math.pi * axis, atol=1e-12)


@UNHURRIED
@given(axes(), st.floats(0.0, math.pi))
def test_quaternion_round_trip_and_convention(axis: Array, angle: float) -> None:
    quat = matrix_to_quat(rotvec_to_matrix(axis * angle))
    expected = np.append(axis * math.sin(angle / 2), math.cos(angle / 2))
    assert min(np.abs(quat - expected).max(), np.abs(quat + expected).max()) < 1e-7
    assert quat[3] >= 0.0
    np.testing.assert_allclose(quat_to_matrix(-3.0 * quat), rotvec_to_matrix(axis * angle), atol=1e-12)


def test_zero_quaternion_is_refused() -> None:
    with pytest.raises(ValueError, match="xyzw"):
        quat_to_matrix(np.zeros(4))


@UNHURRIED
@given(vectors(3.0), vectors(2.0), vectors(3.0), vectors(2.0))
def test_pose_compose_and_inverse(p: Array, r: Array, q: Array, s: Array) -> None:
    a, b = Pose(p, rotvec_to_matrix(r)), Pose(q, rotvec_to_matrix(s))
    point = np.array([0.3, -0.2, 0.1])
    np.testing.assert_allclose(
        a.compose(b).position + a.compose(b).rotation @ point,
        a.position + a.rotation @ (b.position + b.rotation @ point),
        atol=1e-12,
    )
    identity = a.compose(a.inverse())
    np.testing.assert_allclose(identity.position, 0.0, atol=1e-12)
    np.testing.assert_allclose(identity.rotation, np.eye(3), atol=1e-12)


@UNHURRIED
@given(vectors(5.0), vectors(1.8), vectors(0.1), vectors(0.9), st.sampled_from(DeltaFrame))
def test_delta_round_trip(
    position: Array, rotvec: Array, shift: Array, turn: Array, frame: DeltaFrame
) -> None:
    start = Pose(position, rotvec_to_matrix(rotvec))
    delta = np.concatenate((shift, turn))
    end = apply_delta(start, delta, frame)
    np.testing.assert_allclose(delta_between(start, end, frame), delta, atol=1e-9)
    again = apply_delta(start, delta_between(start, end, frame), frame)
    np.testing.assert_allclose(again.position, end.position, atol=1e-12)
    np.testing.assert_allclose(again.rotation, end.rotation, atol=1e-12)


@pytest.mark.parametrize("frame", DeltaFrame)
def test_far_from_the_base_translation_and_rotation_do_not_mix(frame: DeltaFrame) -> None:
    moved = apply_delta(FAR, np.array([0.01, 0.02, -0.03, 0, 0, 0]), frame)
    assert np.array_equal(moved.rotation, FAR.rotation)
    assert np.linalg.norm(moved.position - FAR.position) == pytest.approx(math.sqrt(14) * 0.01)
    turned = apply_delta(FAR, np.array([0, 0, 0, 0.1, -0.2, 0.3]), frame)
    np.testing.assert_allclose(turned.position, FAR.position, atol=1e-15)


@pytest.mark.parametrize("axis", range(3))
def test_tool_frame_moves_along_and_turns_about_the_tools_own_axes(axis: int) -> None:
    delta = np.zeros(6)
    delta[axis] = 0.02
    moved = apply_delta(FAR, delta, DeltaFrame.TOOL)
    np.testing.assert_allclose(moved.position - FAR.position, 0.02 * FAR.rotation[:, axis], atol=1e-12)

    delta = np.zeros(6)
    delta[3 + axis] = 0.3
    turned = apply_delta(FAR, delta, DeltaFrame.TOOL)
    np.testing.assert_allclose(turned.rotation[:, axis], FAR.rotation[:, axis], atol=1e-12)
    base = np.concatenate((np.zeros(3), 0.3 * FAR.rotation[:, axis]))
    np.testing.assert_allclose(turned.rotation, apply_delta(FAR, base, DeltaFrame.BASE).rotation, atol=1e-12)
