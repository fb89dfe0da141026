"""joint_ramp: a straight joint-space motion with capped speed and acceleration, for resets."""

from __future__ import annotations

import math

import numpy as np

from robot.types import Array


def joint_ramp(start: Array, goal: Array, max_speed: float, max_acceleration: float, period: float) -> Array:
    """Waypoints (N, 6) [rad], one per `period` [s], from after `start` to `goal`, at rest at both ends.

    No joint exceeds max_speed [rad/s] or max_acceleration [rad/s^2]; all joints move in proportion.
    """
    distance = float(np.abs(goal - start).max())
    if distance == 0.0:
        return goal[None].copy()
    # Accelerate, cruise, brake; a short motion never reaches the cruising speed.
    peak = min(max_speed, math.sqrt(distance * max_acceleration))
    ramp = peak / max_acceleration
    steps = max(
        1, math.ceil((distance / peak + ramp) / period - 1e-9)
    )  # rounding alone may part start from goal
    duration = steps * period
    # Stretched to whole periods: the same ramps, and the peak that then covers the distance.
    peak = distance / (duration - ramp)
    elapsed = np.minimum(np.arange(1, steps + 1) * period, duration)
    left = duration - elapsed
    travelled = peak * (elapsed - 0.5 * ramp)
    travelled = np.where(elapsed < ramp, 0.5 * peak / ramp * elapsed**2, travelled)
    travelled = np.where(left < ramp, distance - 0.5 * peak / ramp * left**2, travelled)
    waypoints: Array = start + (travelled / distance)[:, None] * (goal - start)
    waypoints[-1] = goal
    return waypoints
