"""Reset motions: they end at the goal, within the caps, however near the goal is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot.trajectory import joint_ramp

PERIOD, SPEED, ACCELERATION = 0.1, 0.6, 1.5


@pytest.mark.parametrize("distance", [0.0, 1e-16, 1e-12, 1e-6, 1e-3])
def test_a_goal_as_near_as_rounding_is_reached_in_one_step_or_more(distance: float) -> None:
    start = np.full(6, 0.3)
    ramp = joint_ramp(start, start + distance, SPEED, ACCELERATION, PERIOD)
    assert len(ramp) >= 1
    np.testing.assert_array_equal(ramp[-1], start + distance)


@given(st.lists(st.floats(-2.0, 2.0), min_size=6, max_size=6))
def test_speed_and_acceleration_stay_within_their_caps(way: list[float]) -> None:
    start = np.zeros(6)
    ramp = joint_ramp(start, np.array(way), SPEED, ACCELERATION, PERIOD)
    positions = np.vstack([start, ramp, ramp[-1]])
    speed = np.diff(positions, axis=0) / PERIOD
    assert np.abs(speed).max() <= SPEED + 1e-6
    change = np.abs(np.diff(np.vstack([np.zeros(6), speed]), axis=0)).max() / PERIOD
    assert change <= ACCELERATION + 1e-6
