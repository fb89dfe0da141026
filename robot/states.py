"""What the safety governor says: its state and each change of it, the command that may be sent, its memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from robot.feedback import Fault, FeedbackMonitor, Reason
from robot.geometry import Pose
from robot.limiter import ClipReason, Target
from robot.types import Array, Float32

_log = logging.getLogger(__name__)


class GovernorState(Enum):
    """LOCKED: nothing passes. READY: commands pass. HOLDING: the target stays. FAULTED: stopped.

    RESETTING: the waypoints of a reset pass, no command; the arm is watched until its episode begins.
    """

    LOCKED = "locked"
    RESETTING = "resetting"
    READY = "ready"
    HOLDING = "holding"
    FAULTED = "faulted"


@dataclass(frozen=True, slots=True)
class GovernorTransition:
    """One change of state: why, the number behind the reason (NaN where there is none), and when [s]."""

    before: GovernorState
    after: GovernorState
    reason: Reason
    value: float
    time: float


@dataclass(frozen=True, slots=True, eq=False)
class GovernedCommand:
    """What may be sent to the arm now.

    joint_positions: (6,) [rad], to be reached in one control period; None where nothing may be sent and the caller
    makes the arm hold. gripper_opening: target in [0, 1].
    executed_action: (7,) float32 in [-1, 1]; applied to the previous target it gives `target_pose`; its
    gripper entry is +1 or -1 where the gripper is commanded so, 0 where the action kept it or was refused.
    """

    joint_positions: Array | None
    gripper_opening: float
    executed_action: Float32
    target_pose: Pose
    clipped: frozenset[ClipReason]
    gripper_changed: bool


@dataclass(frozen=True, slots=True, eq=False)
class GovernorMemory:
    """All that decides what a governor will allow next; see `SafetyGovernor.memory`."""

    state: GovernorState
    fault: Fault | None
    target: Target | None
    waypoint: Array | None
    now: float
    commanded_at: float
    paused: bool
    gripper_opening: float
    gripper_toggled_at: float
    monitor: FeedbackMonitor


def tell(listener: Callable[[GovernorTransition], None] | None, transition: GovernorTransition) -> None:
    """Tell `listener`, if there is one. What it raises, such as a full disk, is logged and stops no stop."""
    if listener is None:
        return
    try:
        listener(transition)
    except Exception:
        _log.exception("nobody was told of %s; the governor goes on", transition)
