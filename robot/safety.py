"""SafetyGovernor: the one gate between any policy or person and any arm, the simulated one too.

An action becomes a target pose, is clipped to what is allowed, becomes joints, and is reported as executed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy

import numpy as np

from robot.feedback import Fault, FeedbackLimits, FeedbackMonitor, Reason
from robot.geometry import DeltaFrame
from robot.interfaces import ArmState, RobotFault
from robot.kinematics import Kinematics
from robot.limiter import TOOL_DOWN, ActionScale, ClipReason, SafetyConfig, Target, TargetLimiter
from robot.states import GovernedCommand, GovernorMemory, GovernorState, GovernorTransition, tell
from robot.types import ACTION_DIM, Array, Float32

__all__ = [
    "TOOL_DOWN",
    "ActionScale",
    "ClipReason",
    "FeedbackLimits",
    "GovernedCommand",
    "GovernorState",
    "GovernorTransition",
    "Reason",
    "SafetyConfig",
    "SafetyGovernor",
    "Target",
]


CLOCK_ROUNDING = 1e-6  # s; control periods add up inexactly


class SafetyGovernor:
    """Turns actions into joint targets inside the limits, or stops. Starts LOCKED.

    Every motion starts where the driver really sends the arm (`ArmState.origin`), and is bounded by speed from there,
    whatever was meant before: a hold, or a target that was never sent, moves that place.

    A fault raises RobotFault and keeps the governor FAULTED, where every command raises, until `acknowledge`;
    the caller holds the arm, and tells by `trip` of faults of its own. The way into motion is `unlock`; resets
    pass through `plan_reset` and `follow`. on_transition: told of every change of state; it cannot fail the governor.
    """

    def __init__(
        self,
        config: SafetyConfig,
        kinematics: Kinematics,
        *,
        on_transition: Callable[[GovernorTransition], None] | None = None,
    ) -> None:
        self._config = config
        self._limiter = TargetLimiter(config, kinematics)
        self._monitor = FeedbackMonitor(config.feedback)
        self._on_transition = on_transition
        self._state = GovernorState.LOCKED
        self._fault: Fault | None = None
        self._target: Target | None = None
        self._waypoint: Array | None = None  # last one of the reset in progress
        self._now = -math.inf  # newest time seen
        self._commanded_at = -math.inf
        self._paused = False  # held by the caller, who may stay silent
        self._gripper_opening = 0.0
        self._gripper_toggled_at = -math.inf

    @property
    def state(self) -> GovernorState:
        return self._state

    @property
    def fault(self) -> Fault | None:
        """Why it is FAULTED; None in every other state."""
        return self._fault

    @property
    def target(self) -> Target:
        """The commanded pose and joints; kept through faults. Raises RobotFault before `unlock`."""
        if self._target is None:
            raise self._refusal(
                Fault(Reason.LOCKED, math.nan, "there is no target before the first unlock()")
            )
        return self._target

    @property
    def gripper_command(self) -> float:
        """The held gripper command: +1 open, -1 closed."""
        return 1.0 if self._gripper_opening >= 0.5 else -1.0

    def is_recent(self, state: ArmState, now: float) -> bool:
        """The state is younger than `hold_age`: good enough to start from, if it is sound."""
        return now - state.timestamp <= self._config.feedback.hold_age

    def unlock(self, state: ArmState, now: float, *, gripper_opening: float | None = None) -> None:
        """Allow commands from where the arm is: the target becomes where its driver sends it.

        gripper_opening: what the gripper is commanded to hold, in [0, 1]; by default the nearer of open and
        closed. Raises RobotFault, and stays or becomes LOCKED, where the feedback is bad or older than
        `hold_age`, the arm is not where its driver sends it, or either is outside the box, the orientation window or
        the joint limits.
        """
        self._now = now
        if self._state is GovernorState.FAULTED:
            self._require_motion_allowed()
        fault = (
            self._monitor.inspect_fresh(state, now)
            or self._limiter.violation(state.joint_positions)
            or self._limiter.violation(state.origin)
        )
        if fault is not None:
            self._enter(GovernorState.LOCKED, fault.reason, fault.value)
            raise self._refusal(fault)
        if gripper_opening is None:
            gripper_opening = 1.0 if state.gripper_opening >= 0.5 else 0.0
        if not 0.0 <= gripper_opening <= 1.0:
            raise ValueError(f"unlock: expected gripper_opening in [0, 1], got {gripper_opening}")
        self._gripper_opening = gripper_opening
        self._target, self._waypoint = self._limiter.at(state.origin), None
        # A whole period is allowed for the first step.
        self._commanded_at = now - self._config.control_period
        self._paused = False
        self._monitor.reset()
        self._enter(GovernorState.READY, Reason.UNLOCK)

    def lock(self) -> None:
        """Refuse commands until `unlock`. A fault stays a fault."""
        self._waypoint = None
        if self._state is not GovernorState.FAULTED:
            self._enter(GovernorState.LOCKED, Reason.LOCK)

    def trip(self, fault: Fault, now: float) -> None:
        """Stop for what the caller has found, such as a lost camera; of two faults the first stays."""
        self._now = now
        if self._state is not GovernorState.FAULTED:
            self._stop(fault)

    def inspect(self, state: ArmState, now: float, *, recent: bool = False) -> None:
        """Fault where this state by itself cannot be used, or is not `recent` enough to start from (`hold_age`)."""
        self._now = now
        fault = (self._monitor.inspect_fresh if recent else self._monitor.inspect)(state, now)
        if fault is not None:
            raise self._stop(fault)

    def acknowledge(self, state: ArmState, now: float) -> None:
        """A person removed the cause of the fault: FAULTED becomes LOCKED; then reset the arm and `unlock`.

        Raises RobotFault, and stays FAULTED, while the feedback is bad or older than `hold_age`, or the arm is not
        where its driver sends it.
        """
        self._now = now
        if self._state is not GovernorState.FAULTED:
            return
        fault = self._monitor.inspect_fresh(state, now)
        if fault is not None:
            raise self._refusal(fault)
        self._fault = None
        self._monitor.reset()
        self._enter(GovernorState.LOCKED, Reason.ACKNOWLEDGE)

    def command(
        self,
        action: Float32 | Array,
        scale: ActionScale,
        state: ArmState,
        now: float,
        *,
        frame: DeltaFrame = DeltaFrame.BASE,
    ) -> GovernedCommand:
        """What the limits allow, at `now` [s], of `action` (7,) in [-1, 1] times `scale`.

        The action moves the previous target, or the place where the arm holds since, not the measured pose, on a leash
        to the latter. Raises RobotFault unless READY or HOLDING, and faults on a bad action, on bad feedback, or where
        the arm holds outside the limits by more than the leash.
        """
        self._now = now
        self._require_motion_allowed()
        if self._state in (GovernorState.LOCKED, GovernorState.RESETTING):
            raise self._refusal(Fault(Reason.LOCKED, math.nan, "call unlock() with the measured state first"))
        wish = np.asarray(action, dtype=np.float64)
        if wish.shape != (ACTION_DIM,) or not np.abs(wish).max() <= 1.0 + 1e-6:
            raise self._stop(
                Fault(
                    Reason.BAD_ACTION,
                    math.nan,
                    f"expected ({ACTION_DIM},) in [-1, 1], got {action}; fix the policy",
                )
            )
        self._check(state, self.target.joint_positions, now)
        elapsed = min(max(now - self._commanded_at, 0.0), self._config.control_period)
        self._commanded_at, self._paused = now, False
        if now - state.timestamp > self._config.feedback.hold_age:
            self._enter(GovernorState.HOLDING, Reason.STALE_FEEDBACK, now - state.timestamp)
            return self._result(None, np.zeros(ACTION_DIM), {ClipReason.HOLD}, False)
        self._resume(state)
        self._enter(GovernorState.READY, Reason.RESUME)
        advance = self._limiter.advance(
            self.target, wish[:6].clip(-1.0, 1.0), scale, frame, state.joint_positions, elapsed
        )
        self._target = advance.target
        gripper, changed = self._command_gripper(float(wish[6]), now, advance.clipped)
        sent = self._target.joint_positions.copy()
        return self._result(sent, np.append(advance.executed, gripper), advance.clipped, changed)

    def watch(self, state: ArmState, now: float) -> GovernorState:
        """Call this while no command comes: checks the feedback and the silence of the policy.

        After `silence_hold` the target becomes the measured joints and the state HOLDING, which the next
        command ends; after `silence_fault` it is a fault, raised as by `command`. Silence after `hold` is no
        silence: the caller said so. In a reset only the feedback counts, and where it is older than `hold_age` the
        state is LOCKED. Does nothing while stopped. Where the state changes, the caller makes the arm hold.
        """
        self._now = now
        if self._state in (GovernorState.LOCKED, GovernorState.FAULTED):
            return self._state
        if self._state is GovernorState.RESETTING:
            self._check(state, self._waypoint if self._under_way(state) else None, now)
            self._pause_reset(state)
            return self._state
        self._check(state, self.target.joint_positions, now)
        silence = 0.0 if self._paused else now - self._commanded_at
        age = now - state.timestamp
        if silence > self._config.silence_fault:
            raise self._stop(
                Fault(
                    Reason.POLICY_SILENT, silence, f"no command for {silence:.2f} s; check the policy process"
                )
            )
        if age > self._config.feedback.hold_age:
            self._enter(GovernorState.HOLDING, Reason.STALE_FEEDBACK, age)
        elif silence > self._config.silence_hold and self._state is GovernorState.READY:
            self._retarget(state.joint_positions)
            self._enter(GovernorState.HOLDING, Reason.POLICY_SILENT, silence)
        return self._state

    def hold(self, state: ArmState, now: float) -> None:
        """The caller has made the arm hold: the target becomes where its driver holds it, the state HOLDING.

        The next command ends it. A reset is given up. Does nothing while stopped.
        """
        self._now = now
        if self._state is GovernorState.RESETTING:
            self._waypoint = None
            self._enter(GovernorState.LOCKED, Reason.HOLD)
        if self._state in (GovernorState.READY, GovernorState.HOLDING):
            self._paused = True
            if state.commanded is not None:
                self._retarget(state.commanded)
            self._enter(GovernorState.HOLDING, Reason.HOLD)

    def plan_reset(self, start: Array, goal: Array, control_period: float | None = None) -> Array:
        """Waypoints (N, 6) [rad], one per period: straight in joint space, capped in speed and acceleration.

        Raises RobotFault where the goal violates a joint limit or the way dips below the floor of the box.
        It only plans; send each waypoint through `follow`, which expects the period of the config (default).
        """
        period = self._config.control_period if control_period is None else control_period
        plan = self._limiter.plan_reset(start, goal, period)
        if isinstance(plan, Fault):
            raise self._refusal(plan)
        return plan

    def follow(self, waypoint: Array, state: ArmState, now: float) -> Array | None:
        """Pass one waypoint (6,) of a reset on to the arm; commands stay locked out until `unlock`.

        Where the feedback is older than `hold_age` it is None and the state LOCKED: the caller makes the arm hold,
        and plans anew. Faults on bad feedback, on a waypoint further from where the driver sends the arm than the
        speed cap allows in one control period, and, unless that is the waypoint before, where the arm is not there.
        """
        self._now = now
        self._require_motion_allowed()
        if self._state is not GovernorState.RESETTING:
            self._waypoint = None
            self._enter(GovernorState.RESETTING, Reason.RESET)
        under_way = self._under_way(state)
        self._check(state, self._waypoint if under_way else None, now)
        if self._pause_reset(state):
            return None
        displaced = None if under_way else self._monitor.displaced(state)
        if displaced is not None:
            raise self._stop(displaced)
        step = float(np.abs(waypoint - state.origin).max())
        cap = self._config.max_joint_speed * self._config.control_period
        if not step <= cap * (1.0 + 1e-6):
            raise self._stop(
                Fault(
                    Reason.RESET_STEP,
                    step,
                    f"expected a step of at most {cap:.4f} rad, got {step:.4f}; plan from ArmState.origin",
                )
            )
        self._waypoint = waypoint.copy()
        return self._waypoint

    def memory(self) -> GovernorMemory:
        """What `recall` needs to judge the future as if nothing had happened since."""
        return GovernorMemory(
            self._state,
            self._fault,
            self._target,
            self._waypoint,
            self._now,
            self._commanded_at,
            self._paused,
            self._gripper_opening,
            self._gripper_toggled_at,
            copy(self._monitor),  # its fields are replaced, never changed in place
        )

    def recall(self, memory: GovernorMemory) -> None:
        """Go back to `memory`, with a simulated world that goes back to the same moment; a real arm never does.

        Nobody is told: this is no transition.
        """
        self._state, self._fault = memory.state, memory.fault
        self._target, self._waypoint = memory.target, memory.waypoint
        self._now, self._commanded_at, self._paused = memory.now, memory.commanded_at, memory.paused
        self._gripper_opening, self._gripper_toggled_at = memory.gripper_opening, memory.gripper_toggled_at
        self._monitor = copy(memory.monitor)

    def _under_way(self, state: ArmState) -> bool:
        """The driver sends the arm to the newest waypoint: nothing has held or displaced it since."""
        return self._waypoint is not None and np.array_equal(self._waypoint, state.origin)

    def _pause_reset(self, state: ArmState) -> bool:
        """Whether the feedback is too old to go on with the reset; then it is LOCKED."""
        age = self._now - state.timestamp
        if age <= self._config.feedback.hold_age:
            return False
        self._waypoint = None
        self._enter(GovernorState.LOCKED, Reason.STALE_FEEDBACK, age)
        return True

    def _resume(self, state: ArmState) -> None:
        """Start from where the driver sends the arm, the last target unless the arm has been held since."""
        violation = self._limiter.violation(state.origin, slack=True)
        if violation is not None:
            raise self._stop(violation)
        self._retarget(state.origin)

    def _retarget(self, joint_positions: Array) -> None:
        if not np.array_equal(joint_positions, self.target.joint_positions):
            self._target = self._limiter.at(joint_positions)
            self._monitor.reset()  # this move of the target is no motion that the arm should show

    def _require_motion_allowed(self) -> None:
        if self._fault is not None:
            raise self._refusal(
                Fault(
                    Reason.FAULTED,
                    self._fault.value,
                    f"stopped by {self._fault.reason} ({self._fault.detail}); "
                    "remove the cause, then acknowledge()",
                )
            )

    def _check(self, state: ArmState, target: Array | None, now: float) -> None:
        fault = self._monitor.check(state, target, now)
        if fault is not None:
            raise self._stop(fault)

    def _command_gripper(self, wish: float, now: float, clipped: set[ClipReason]) -> tuple[float, bool]:
        """The executed gripper entry and whether the command changed."""
        if abs(wish) < self._config.gripper_threshold:
            return 0.0, False
        command = math.copysign(1.0, wish)
        opening = 1.0 if command > 0.0 else 0.0
        if opening == self._gripper_opening:
            return command, False
        if now - self._gripper_toggled_at < self._config.gripper_min_toggle_time - CLOCK_ROUNDING:
            clipped.add(ClipReason.GRIPPER)
            return 0.0, False
        self._gripper_opening, self._gripper_toggled_at = opening, now
        return command, True

    def _result(
        self, joint_positions: Array | None, executed: Array, clipped: set[ClipReason], gripper_changed: bool
    ) -> GovernedCommand:
        return GovernedCommand(
            joint_positions=joint_positions,
            gripper_opening=self._gripper_opening,
            executed_action=executed.clip(-1.0, 1.0).astype(np.float32),
            target_pose=self.target.pose,
            clipped=frozenset(clipped),
            gripper_changed=gripper_changed,
        )

    def _stop(self, fault: Fault) -> RobotFault:
        self._fault = self._fault or fault  # what came first is what the person is told
        self._waypoint = None
        self._enter(GovernorState.FAULTED, fault.reason, fault.value)
        return self._refusal(fault)

    @staticmethod
    def _refusal(fault: Fault) -> RobotFault:
        return RobotFault(fault.reason, fault.detail)

    def _enter(self, state: GovernorState, reason: Reason, value: float = math.nan) -> None:
        if state is self._state:
            return
        transition = GovernorTransition(self._state, state, reason, value, self._now)
        self._state = state
        tell(self._on_transition, transition)
