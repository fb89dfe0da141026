"""Robot: one arm, its gripper and cameras behind the governor; observe, act, hold. From drivers to env."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import RLock
from types import TracebackType

import numpy as np

from robot.clock import VirtualClock
from robot.feedback import REFUSALS, Fault, Reason
from robot.frames import Frames, ProprioFrame, RelativeFrame, along_tool_axes
from robot.geometry import DeltaFrame, Pose, delta_between
from robot.interfaces import Arm, ArmState, Camera, Clock, Operator, RobotFault
from robot.kinematics import Kinematics
from robot.periodic import PeriodicThread
from robot.safety import GovernedCommand, GovernorState, SafetyGovernor
from robot.states import GovernorMemory
from robot.tasks import GripperMode, TaskSpec, concatenate
from robot.timing import TimingConfig
from robot.types import ACTION_DIM, Array, Float32, Observation, ProprioSpec
from robot.views import Views

MAX_PAUSES = 5  # late feedback on one way to a start, after which it is a fault
FEEDBACK_TIMEOUT = 0.5  # s to wait for recent feedback before anything moves
_log = logging.getLogger(__name__)


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

    Whatever is raised on the way of a motion, or of an observation, makes the arm hold, and is kept as a fault until a
    person has acknowledged it, unless it only refused motion, or the program ended it (REFUSALS).

    auto_unlock: motion is allowed, and faults are cleared, without a person; for a simulated arm only.
    operator: asked before the first motion and after every fault; without one, `allow_motion` must be called.
    watchdog_period: seconds between looks at the feedback and at the silence of the policy while no command comes, from
    a thread of its own; None only where time stands still between commands, or the arm is not ours to share.
    keep_waiting: called with what is waited for at each waypoint of a reset; False ends it there.
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
        keep_waiting: Callable[[str], bool] = lambda _what: True,
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
        self._keep_waiting = keep_waiting
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
        """Open the arm and the cameras; raises DeviceError. Whatever is raised, everything is released again."""
        try:
            self._arm.connect()
            for camera in self.cameras:
                camera.connect()
        except BaseException:
            self.close()
            raise
        if self._watchdog is not None:
            self._watchdog.start()

    def close(self) -> None:
        """Lock the governor, hold the arm, release the devices, each of them even if another fails."""
        with ExitStack() as stack:  # last in, first out: the arm before the cameras
            for camera in self.cameras:
                stack.callback(camera.close)
            stack.callback(self._arm.close)
            stack.callback(self._governor.lock)
            if self._watchdog is not None:
                stack.callback(self._watchdog.stop)

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

        Where one is lost, the operator is asked to mend it, and it is connected again; before the arm moves they are
        asked about that. Raises RobotFault `stale_frame`, `camera_lost` or `not_confirmed`, DeviceError where it
        cannot be connected.
        """
        with self._holding_on_errors():
            try:
                self._views.fresh(self.timing.camera_recovery)
            except RobotFault as fault:
                if self._operator is None:
                    raise
                self._stop(fault)
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
        """Let commands start from where the arm is.

        Raises RobotFault if that is unsafe or not allowed, or the watchdog has stopped it since it came here.
        """
        with self._holding_on_errors():
            self._require_watched()
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

    def move_joints(self, goal: Array, stop_asked: Callable[[], bool] = lambda: False) -> None:
        """Move to `goal` (6,) [rad] within the governor's caps on speed and acceleration; blocks until there.

        For resets: commands need `begin_episode` afterwards. Where feedback is late the arm holds, and goes on once it
        is back; `stale_feedback` if that happens MAX_PAUSES times. stop_asked: called at each waypoint; the person
        beside the arm wants it to stop. Raises RobotFault, holding: what the governor finds unsafe, `operator_stop`,
        and `interrupted` where `keep_waiting` says no.
        """
        self._require_allowed()
        with self._holding_on_errors():
            for _ in range(MAX_PAUSES):
                if self._move_straight(goal, stop_asked):
                    return
                _log.warning("the arm holds on the way to its start: its feedback was late")
            raise RobotFault(
                Reason.STALE_FEEDBACK,
                f"feedback was late {MAX_PAUSES} times on one way; check the arm's connection",
            )

    def act(self, action: Float32, observed_at: float | None = None) -> GovernedCommand:
        """Send what the governor allows of `action` (7,), along the axes of `frames.action`.

        observed_at: when what the action answers was observed; `stale_observation` where that is longer ago than
        `TimingConfig.max_observation_age`. The executed action that comes back is along the same axes. Raises
        RobotFault and holds if it stops, also where the watchdog has stopped it since the last action.
        """
        wish = np.array(action, dtype=np.float64)
        if (
            self.spec.gripper_mode is GripperMode.FIXED
            and wish.shape == (ACTION_DIM,)
            and np.isfinite(wish[6])
        ):
            wish[6] = 0.0
        with self._holding_on_errors(), self._lock:
            self._require_watched()
            self._require_recent(observed_at)
            state, scale = self._arm.state(), self.spec.action_scale
            command = self._governor.command(wish, scale, state, self.clock.now(), frame=self.frames.action)
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

        Raises RobotFault `stale_frame` if it stays stale, `camera_lost` if its device is gone, and what is wrong with a
        reading of the arm, such as `nan_feedback`.
        """
        with self._holding_on_errors():
            frames = self._views.fresh(self.timing.frame_timeout)
            proprio = self._proprio(self._sound_state())
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
                with self._holding_on_errors():
                    if self._governor.watch(self._arm.state(), self.clock.now()) is not before:
                        self._arm.hold()
            except RobotFault as fault:
                self._unreported = fault

    @contextmanager
    def _holding_on_errors(self) -> Iterator[None]:
        """Whatever is raised inside makes the arm hold, and is raised on."""
        try:
            yield
        except BaseException as error:
            self._stop(error)
            raise

    def _stop(self, error: BaseException) -> None:
        """Hold; unless `error` is a refusal, nothing moves any more before it is acknowledged."""
        if isinstance(error, RobotFault) and error.name in REFUSALS:
            self.hold()
            return
        with self._lock:
            try:
                self._arm.hold()
            finally:
                self._governor.trip(Fault.of(error), self.clock.now())

    def _move_straight(self, goal: Array, stop_asked: Callable[[], bool]) -> bool:
        """Plan from where the arm is measured to be, and send it there; False where it had to hold on its way."""
        self._await_feedback()
        period = self.timing.control_period
        plan = self._governor.plan_reset(self._sound_state(recent=True).origin, goal, period)
        due = self.clock.now()
        for number, waypoint in enumerate(plan):
            self._require_wanted(stop_asked)
            with self._lock:
                self._require_watched()
                if number and self._governor.state is not GovernorState.RESETTING:
                    return False  # held by the watchdog since the waypoint before
                now = self.clock.now()
                joints = self._governor.follow(waypoint, self._arm.state(), now)
                if joints is None:
                    self._arm.hold()
                    return False
                self._arm.send_joints(joints, period)
            due = max(due, now) + period
            self.clock.sleep_until(due)
        return True

    def _require_wanted(self, stop_asked: Callable[[], bool]) -> None:
        if stop_asked():
            raise RobotFault(Reason.OPERATOR_STOP, "the arm was told to stop on the way to its start")
        if not self._keep_waiting("the arm, on the way to its start"):
            raise RobotFault(Reason.INTERRUPTED, "the run was stopped on the arm's way to its start")

    def _require_watched(self) -> None:
        """Raise what the watchdog has found since the last motion, or DeviceError where it watches no more."""
        if self._watchdog is not None:
            self._watchdog.check()
        if self._unreported is not None:
            fault, self._unreported = self._unreported, None
            raise fault

    def _require_recent(self, observed_at: float | None) -> None:
        """What was decided on an old observation is no answer to what is there now."""
        age = 0.0 if observed_at is None else self.clock.now() - observed_at
        if age > (limit := self.timing.max_observation_age):
            raise RobotFault(
                Reason.STALE_OBSERVATION,
                f"expected an action within {limit:.2f} s of the observation that it answers, got one after "
                f"{age:.2f} s; the episode is over, reset() and observe anew",
            )

    def _sound_state(self, *, recent: bool = False) -> ArmState:
        """The newest measured state; raises RobotFault where it cannot be used, or is not `recent` enough to start."""
        with self._lock:
            state = self._arm.state()
            self._governor.inspect(state, self.clock.now(), recent=recent)
        return state

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
