"""FeedbackMonitor: is the feedback fresh, finite and alive, and does the arm follow? Used by the governor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from robot.interfaces import ArmState, RobotFault
from robot.kinematics import JOINTS
from robot.types import Array

COMMANDED_MOTION = 5e-3  # rad; a target that moved less need not show in the feedback


class Reason(StrEnum):
    """Why the governor changed its state, refused to, or faulted; the `name` of a robot's RobotFaults."""

    UNLOCK = "unlock"
    LOCK = "lock"
    ACKNOWLEDGE = "acknowledge"
    RESET = "reset"
    RESUME = "resume"
    HOLD = "hold"
    LOCKED = "locked"
    FAULTED = "faulted"
    NOT_CONFIRMED = "not_confirmed"
    INTERRUPTED = "interrupted"
    OPERATOR_STOP = "operator_stop"
    ERROR = "error"
    BAD_ACTION = "bad_action"
    POLICY_SILENT = "policy_silent"
    MALFORMED_FEEDBACK = "malformed_feedback"
    NAN_FEEDBACK = "nan_feedback"
    STALE_FEEDBACK = "stale_feedback"
    CLOCK_MISMATCH = "clock_mismatch"
    FROZEN_FEEDBACK = "frozen_feedback"
    EFFORT = "effort"
    LAG = "lag"
    JOINT_LIMITS = "joint_limits"
    OUTSIDE_BOX = "outside_box"
    OUTSIDE_ORIENTATION = "outside_orientation"
    RESET_STEP = "reset_step"
    RESET_PATH = "reset_path"
    STALE_FRAME = "stale_frame"
    STALE_OBSERVATION = "stale_observation"
    CAMERA_LOST = "camera_lost"


# Motion was refused, or the program ended it: nothing is wrong with the robot, and nobody is asked about it.
REFUSALS = frozenset((Reason.LOCKED, Reason.FAULTED, Reason.NOT_CONFIRMED, Reason.INTERRUPTED))


@dataclass(frozen=True, slots=True)
class Fault:
    """A reason, the number behind it (its unit is in `detail`), and what was expected, came, and helps."""

    reason: Reason
    value: float
    detail: str

    @classmethod
    def of(cls, error: BaseException) -> Fault:
        """What `error` has stopped, as a fault: a RobotFault by its name, anything else as ERROR."""
        if isinstance(error, RobotFault) and error.name in frozenset(Reason):
            return cls(Reason(error.name), math.nan, error.detail)
        return cls(Reason.ERROR, math.nan, f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackLimits:
    """When feedback is no longer believed."""

    hold_age: float = 0.10  # s; older feedback keeps the target where it is
    max_age: float = 0.25  # s; older feedback is a fault
    frozen_time: float = 0.5  # s of bit-identical feedback while motion is commanded
    effort_limits: Sequence[float] = tuple(joint.effort for joint in JOINTS)  # Nm per joint
    effort_samples: int = 3  # samples in a row above an effort limit
    # More than the joint leash: pressing on something stays within the leash, so a lag means that the arm is
    # pushed away, released, or deaf.
    lag: float = math.radians(8.0)  # rad between target and measured joint ...
    lag_speed: float = math.radians(15.0)  # rad/s ... at a joint slower than this ...
    lag_time: float = 0.15  # s ... for this long

    def __post_init__(self) -> None:
        for name in ("hold_age", "frozen_time", "lag", "lag_speed", "lag_time"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"FeedbackLimits.{name}: expected > 0, got {getattr(self, name)}")
        if not self.max_age >= self.hold_age:
            raise ValueError(f"FeedbackLimits: expected max_age >= hold_age, got {self.max_age} s")
        if len(self.effort_limits) != 6 or not all(limit > 0.0 for limit in self.effort_limits):
            raise ValueError(f"FeedbackLimits.effort_limits: expected 6 x > 0 Nm, got {self.effort_limits}")
        if self.effort_samples < 1:
            raise ValueError(f"FeedbackLimits.effort_samples: expected >= 1, got {self.effort_samples}")


class FeedbackMonitor:
    """Judges each measured state against the clock, the states before it and the commanded joints."""

    def __init__(self, limits: FeedbackLimits) -> None:
        self._limits = limits
        self._effort_limits = np.array(limits.effort_limits)
        self.reset()

    def reset(self) -> None:
        """Forget the states seen so far; the arm starts from rest."""
        self._timestamp = -math.inf
        self._over_effort = np.zeros(6, dtype=np.int64)
        self._lagging_since = np.full(6, math.inf)
        self._payload = b""
        self._changed_at = math.inf
        self._target_at_change: Array | None = None

    def inspect(self, state: ArmState, now: float) -> Fault | None:
        """Fault of this state by itself: its shape, its numbers, its age at `now` [s]."""
        vectors = (state.joint_positions, state.joint_velocities, state.joint_efforts)
        if any(vector.shape != (6,) for vector in vectors):
            shapes = [vector.shape for vector in vectors]
            return Fault(
                Reason.MALFORMED_FEEDBACK,
                math.nan,
                f"expected joint positions, velocities, efforts of shape (6,), got {shapes}; fix the driver",
            )
        if not (np.isfinite(np.concatenate(vectors)).all() and math.isfinite(state.gripper_opening)):
            return Fault(
                Reason.NAN_FEEDBACK, math.nan, f"expected finite feedback, got {state}; check that sensor"
            )
        age = now - state.timestamp
        if not age <= self._limits.max_age:
            return Fault(
                Reason.STALE_FEEDBACK,
                age,
                f"expected feedback younger than {self._limits.max_age} s, got {age:.3f} s; "
                "check the arm's power and its connection",
            )
        if age < -self._limits.max_age:
            return Fault(
                Reason.CLOCK_MISMATCH,
                age,
                f"feedback is stamped {-age:.3f} s in the future; stamp it with the robot's clock",
            )
        return None

    def inspect_fresh(self, state: ArmState, now: float) -> Fault | None:
        """As `inspect`, and good to start from: younger than `hold_age`, the arm where its driver sends it."""
        fault, age = self.inspect(state, now), now - state.timestamp
        if fault is None and age > self._limits.hold_age:
            return Fault(
                Reason.STALE_FEEDBACK, age, f"expected feedback of now, got {age:.3f} s old; read it again"
            )
        return fault or self.displaced(state)

    def displaced(self, state: ArmState) -> Fault | None:
        """The arm is further from where its driver sends it than one that follows: let loose, it would jump there."""
        apart = float(np.abs(state.origin - state.joint_positions).max())
        if apart <= self._limits.lag:
            return None
        return Fault(
            Reason.LAG,
            apart,
            f"expected the arm within {self._limits.lag:.3f} rad of where its driver sends it, got {apart:.3f} rad; "
            "free the arm, or check that it is enabled",
        )

    def check(self, state: ArmState, target: Array | None, now: float) -> Fault | None:
        """Fault of this state after those before it, while the arm is driven to joints `target` (6,)."""
        fault = self.inspect(state, now)
        if fault is not None or state.timestamp <= self._timestamp:
            return fault
        self._timestamp = state.timestamp
        return self._effort(state) or self._lag(state, target, now) or self._frozen(state, target, now)

    def _effort(self, state: ArmState) -> Fault | None:
        over = np.abs(state.joint_efforts) > self._effort_limits
        self._over_effort = (self._over_effort + 1) * over
        joint = int(self._over_effort.argmax())
        if self._over_effort[joint] < self._limits.effort_samples:
            return None
        effort = float(state.joint_efforts[joint])
        return Fault(
            Reason.EFFORT,
            effort,
            f"joint {joint + 1}: {effort:.1f} Nm, limit {self._effort_limits[joint]:.1f} Nm, "
            f"for {self._limits.effort_samples} samples; free the arm",
        )

    def _lag(self, state: ArmState, target: Array | None, now: float) -> Fault | None:
        if target is None:
            return None
        lag = np.abs(target - state.joint_positions)
        late = (lag > self._limits.lag) & (np.abs(state.joint_velocities) < self._limits.lag_speed)
        self._lagging_since = np.where(late, np.minimum(self._lagging_since, now), math.inf)
        joint = int(self._lagging_since.argmin())
        if now - self._lagging_since[joint] < self._limits.lag_time:
            return None
        return Fault(
            Reason.LAG,
            float(lag[joint]),
            f"joint {joint + 1} is {lag[joint]:.3f} rad from its target and hardly moves; "
            "free the arm, or check that it is enabled",
        )

    def _frozen(self, state: ArmState, target: Array | None, now: float) -> Fault | None:
        payload = np.concatenate(
            (state.joint_positions, state.joint_velocities, state.joint_efforts)
        ).tobytes()
        if payload != self._payload or target is None or self._target_at_change is None:
            self._payload, self._changed_at, self._target_at_change = payload, now, target
            return None
        moved = float(np.abs(target - self._target_at_change).max())
        frozen = now - self._changed_at
        if moved < COMMANDED_MOTION or frozen < self._limits.frozen_time:
            return None
        return Fault(
            Reason.FROZEN_FEEDBACK,
            frozen,
            f"the same feedback, bit for bit, for {frozen:.2f} s while the target moved {moved:.3f} rad; "
            "the arm may be released or its driver stuck",
        )
