"""Robot: one arm, its gripper and cameras behind the governor; observe, act, hold. From drivers to env."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from threading import RLock
from types import TracebackType

import numpy as np

from robot.clock import VirtualClock
from robot.frames import Frames, ProprioFrame, RelativeFrame, along_tool_axes
from robot.geometry import DeltaFrame, Pose, delta_between
from robot.interfaces import Arm, ArmState, Camera, Clock, DeviceError, Operator, RobotFault
from robot.kinematics import Kinematics
from robot.periodic import PeriodicThread
from robot.safety import GovernedCommand, GovernorMemory, GovernorState, SafetyGovernor
from robot.tasks import GripperMode, TaskSpec, concatenate
from robot.types import ACTION_DIM, Array, Float32, Observation, ProprioSpec
from robot.views import Views

FEEDBACK_TIMEOUT = 0.5  # s to wait for recent feedback before an episode begins


@dataclass(frozen=True)
class TimingConfig:
    """Times of the control loop, in seconds."""

    control_period: float = 0.1
    late_frame_age: float = 0.1  # an older image is reported as late
    max_frame_age: float = 0.3  # an older image is not shown to a policy
    max_observation_age: float = 0.75  # of an older observation no action is taken any more
    frame_timeout: float = 1.0  # how long to hold and wait for a fresh one
    camera_recovery: float = 40.0  # how long to wait between episodes while a camera is connected anew
    frame_poll: float = 0.01

    def __post_init__(self) -> None:
        if not 0.02 <= self.control_period <= 1.0:
            raise ValueError(f"TimingConfig.control_period: expected 0.02 to 1 s, got {self.control_period}")
        if not (0 < self.late_frame_age <= self.max_frame_age):
            raise ValueError(
                "TimingConfig: expected 0 < late_frame_age <= max_frame_age, got "
                f"{self.late_frame_age} and {self.max_frame_age} s"
            )
        if not (self.frame_timeout > 0 and self.frame_poll > 0 and self.camera_recovery > 0):
            raise ValueError("TimingConfig: frame_timeout, frame_poll and camera_recovery must be > 0 s")
        if not self.max_observation_age > 0:
            raise ValueError(
                f"TimingConfig.max_observation_age: expected more than 0 s, got {self.max_observation_age}"
            )


@dataclass(frozen=True)
class PrivilegedState:
    """What a simulator knows beyond the sensors, to append to the proprio: values (P,) and their spec."""

    read: Callable[[], Array]
    spec: ProprioSpec


@dataclass(frozen=True, slots=True, eq=False)
class RobotMemory:
    """All that a Robot knows of the past."""

    governor: GovernorMemory
    previous: tuple[Pose, float] | None
    seen_from: RelativeFrame


class Robot:
    """Every motion passes the governor; leaving the `with` block always holds the arm.

    auto_unlock: motion is allowed, and faults are cleared, without a person; for a simulated arm only.
    operator: asked before the first motion and after every fault; without one, `allow_motion` must be called.
    watchdog_period: seconds between looks at the feedback and at the silence of the policy while no command comes, from
    a thread of its own; None only where time stands still between commands, or the arm is not ours to share.
    """

    def __init__(
        self,
        arm: Arm,
        cameras: Sequence[Camera],
        governor: SafetyGovernor,
        kinematics: Kinematics,
        clock: Clock,
        spec: TaskSpec,
        timing: TimingConfig,
        *,
        auto_unlock: bool = False,
        operator: Operator | None = None,
        watchdog_period: float | None = None,
        privileged: PrivilegedState | None = None,
        frames: Frames | None = None,
    ) -> None:
        self.frames = frames or Frames()
        self.spec = spec
        self.timing = timing
        self._views = Views(cameras, clock, self.hold, max_age=timing.max_frame_age, poll=timing.frame_poll)
        self.cameras = self._views.cameras
        self.clock = clock
        proprio = spec.proprio(timing.control_period, self.frames.proprio)
        self.proprio_spec = concatenate(proprio, privileged.spec) if privileged else proprio
        self._arm = arm
        self._governor = governor
        self._kinematics = kinematics
        self._allowed = self._auto_unlock = auto_unlock
        self._operator = operator
        self._lock = RLock()  # the watchdog and the control loop share the governor and the arm
        self._watchdog: PeriodicThread | None = None
        if watchdog_period is not None:
            self._watchdog = PeriodicThread("watchdog", self._watch, clock, watchdog_period)
        self._unreported: RobotFault | None = None  # found by the watchdog, still to be raised
        self._privileged = privileged
        self._previous: tuple[Pose, float] | None = None
        self._seen_from = RelativeFrame(Pose(np.zeros(3), spec.reference_rotation), spec.reference_rotation)

    def __enter__(self) -> Robot:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connect(self) -> None:
        """Open the arm and the cameras; raises DeviceError, with everything released again."""
        try:
            self._arm.connect()
            for camera in self.cameras:
                camera.connect()
        except DeviceError:
            self.close()
            raise
        if self._watchdog is not None:
            self._watchdog.start()

    def close(self) -> None:
        """Lock the governor, hold the arm, release the devices, each of them even if another fails."""
        if self._watchdog is not None:
            self._watchdog.stop()
        self._governor.lock()
        with ExitStack() as stack:  # last in, first out: the arm before the cameras
            for camera in self.cameras:
                stack.callback(camera.close)
            stack.callback(self._arm.close)

    def hold(self) -> None:
        """Stop where the arm is measured to be; the next command moves on from there."""
        with self._lock:
            self._arm.hold()
            self._governor.hold(self._arm.state(), self.clock.now())

    @property
    def watched(self) -> bool:
        """A watchdog looks at it from a thread of its own."""
        return self._watchdog is not None

    @property
    def gripper_command(self) -> float:
        """The held gripper command: +1 open, -1 closed."""
        return self._governor.gripper_command

    def arm_state(self) -> ArmState:
        """The newest measured state of the arm."""
        return self._arm.state()

    def tool_position(self) -> Array:
        """Where the tool point is measured to be: (3,) [m], base frame."""
        return self._kinematics.forward(self._arm.state().joint_positions).position

    def await_cameras(self) -> None:
        """Return once every view is fresh. Between episodes nothing moves, so there is time for a camera to come back.

        Where one is lost, the operator is asked to mend it, and it is connected again. Raises RobotFault `stale_frame`,
        `camera_lost` or `not_confirmed`, DeviceError where it cannot be connected.
        """
        try:
            self._views.fresh(self.timing.camera_recovery)
        except RobotFault as fault:
            if self._operator is None:
                raise
            self._operator.confirm(f"{fault}. Is it mended, and shall it be connected again?")
            for camera in self.cameras:
                camera.connect()
            self._views.fresh(self.timing.camera_recovery)

    def allow_motion(self) -> None:
        """A person has looked at the cell: acknowledge a fault and let the next episode begin."""
        self._await_feedback()
        with self._lock:
            self._governor.acknowledge(self._arm.state(), self.clock.now())
            self._allowed, self._unreported = True, None

    def begin_episode(self) -> None:
        """Let commands start from where the arm is; raises RobotFault if that is unsafe or not allowed."""
        self._require_allowed()
        self._await_feedback()
        with self._lock:
            state = self._arm.state()
            self._governor.unlock(state, self.clock.now(), gripper_opening=self.spec.initial_gripper)
            self._arm.send_gripper(self.spec.initial_gripper)
        self._previous = None
        if self.frames.proprio is ProprioFrame.RESET:
            start = self._kinematics.forward(state.joint_positions)
            self._seen_from = RelativeFrame(start, self.spec.reference_rotation)

    def move_joints(self, goal: Array) -> None:
        """Move to `goal` (6,) [rad] within the governor's caps on speed and acceleration; blocks until there.

        For resets: commands need `begin_episode` afterwards. Raises RobotFault, holding, if it is unsafe.
        """
        self._require_allowed()
        period = self.timing.control_period
        start = self._arm.state().origin
        due = self.clock.now()
        try:
            for waypoint in self._governor.plan_reset(start, goal, period):
                with self._lock:
                    now = self.clock.now()
                    self._arm.send_joints(self._governor.follow(waypoint, self._arm.state(), now), period)
                due = max(due, now) + period
                self.clock.sleep_until(due)
        except RobotFault:
            self.hold()
            raise

    def act(self, action: Float32) -> GovernedCommand:
        """Send what the governor allows of `action` (7,), along the axes of `frames.action`.

        The executed action that comes back is along the same axes. Raises RobotFault and holds if it stops, also where
        the watchdog has stopped it since the last action.
        """
        wish = np.array(action, dtype=np.float64)
        if (
            self.spec.gripper_mode is GripperMode.FIXED
            and wish.shape == (ACTION_DIM,)
            and np.isfinite(wish[6])
        ):
            wish[6] = 0.0
        if self._watchdog is not None:
            self._watchdog.check()
        with self._lock:
            if self._unreported is not None:
                fault, self._unreported = self._unreported, None
                raise fault
            state = self._arm.state()
            try:
                command = self._governor.command(
                    wish, self.spec.action_scale, state, self.clock.now(), frame=self.frames.action
                )
            except RobotFault:
                self.hold()
                raise
            if command.joint_positions is None:
                self._arm.hold()
            else:
                self._arm.send_joints(command.joint_positions, self.timing.control_period)
            if command.gripper_changed:
                self._arm.send_gripper(command.gripper_opening)
        return command

    def along_action_axes(self, delta: Array) -> Array:
        """A motion (6,) in [-1, 1] along base axes, as a person steers, as the action (6,) that moves so."""
        match self.frames.action:
            case DeltaFrame.BASE:
                return delta
            case DeltaFrame.TOOL:
                return along_tool_axes(delta, self._governor.target.pose.rotation)

    def observe(self) -> Observation:
        """Images and proprio now, waiting and holding while a view is stale.

        Raises RobotFault `stale_frame` if it stays stale, `camera_lost` if its device is gone, `nan_feedback` for a
        reading that is not finite.
        """
        frames = self._views.fresh(self.timing.frame_timeout)
        state = self._arm.state()
        proprio = self._proprio(state)
        if not np.isfinite(proprio).all():
            self.hold()
            raise RobotFault(
                "nan_feedback",
                f"expected finite feedback, got joints {state.joint_positions}; check that sensor",
            )
        return Observation(
            images={view: frame.image for view, frame in frames.items()},
            proprio=proprio,
            timestamp=self.clock.now(),
            image_timestamps={view: frame.timestamp for view, frame in frames.items()},
        )

    def memory(self) -> RobotMemory:
        """What `recall` needs to go on as if nothing had happened since."""
        return RobotMemory(self._governor.memory(), self._previous, self._seen_from)

    def recall(self, memory: RobotMemory) -> None:
        """Go back to `memory`; raises RobotFault unless the arm is a simulated one on a virtual clock."""
        if not (self._auto_unlock and isinstance(self.clock, VirtualClock)):
            raise RobotFault(
                "not_simulated", "expected a simulated arm on a virtual clock; a real arm has one past"
            )
        self._governor.recall(memory.governor)
        self._previous, self._seen_from = memory.previous, memory.seen_from

    def _watch(self) -> None:
        """What the watchdog does: the governor looks, and where it holds or stops, so does the arm."""
        with self._lock:
            before = self._governor.state
            if before in (GovernorState.LOCKED, GovernorState.FAULTED):
                return
            try:
                after = self._governor.watch(self._arm.state(), self.clock.now())
            except RobotFault as fault:
                self._arm.hold()
                self._unreported = fault
                return
            except DeviceError:
                self._arm.hold()
                raise
            if after is GovernorState.HOLDING and before is not after:
                self._arm.hold()

    def _require_allowed(self) -> None:
        fault = self._governor.fault
        if fault is not None and self._auto_unlock:
            self.allow_motion()
        elif self._operator is not None and (fault is not None or not self._allowed):
            why = "nothing has moved yet" if fault is None else f"it stopped: {fault.reason}: {fault.detail}"
            self._operator.confirm(f"Let the arm move ({why})? Look that the cell is free.")
            self.allow_motion()
        if not self._allowed:
            raise RobotFault(
                "locked", "nobody has allowed motion yet; look at the cell, then call allow_motion()"
            )

    def _await_feedback(self) -> None:
        """Give a network that hiccups, or a busy machine, a moment; the arm stands, so nothing is lost."""
        give_up = self.clock.now() + FEEDBACK_TIMEOUT
        while (now := self.clock.now()) < give_up and not self._governor.is_recent(self._arm.state(), now):
            self.clock.sleep_until(now + self.timing.frame_poll)

    def _proprio(self, state: ArmState) -> Float32:
        pose = self._kinematics.forward(state.joint_positions)
        motion = np.zeros(6)
        if self._previous is not None:
            before, then = self._previous
            # Rounded to the microsecond: the value must not depend on where on the clock the episode lies.
            elapsed = round(state.timestamp - then, 6)
            if elapsed > 0:
                motion = delta_between(before, pose, self.frames.action) / elapsed
        self._previous = (pose, state.timestamp)
        lag = delta_between(pose, self._governor.target.pose, self.frames.action)
        parts: list[Array] = [
            self._seen_from.relative(pose),
            motion,
            lag,
            np.array([state.gripper_opening, self._governor.gripper_command]),
        ]
        if self._privileged is not None:
            parts.append(self._privileged.read())
        return np.concatenate(parts).astype(np.float32)
