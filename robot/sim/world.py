"""SimWorld: the physics of the simulated cell, advanced lazily to the clock whenever somebody looks at it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robot.geometry import Pose
from robot.interfaces import Clock, DeviceError
from robot.kinematics import FINGER_STROKE, JOINTS
from robot.sim.gl import no_opengl
from robot.sim.scene import FINGER_JOINTS, SITE_TCP
from robot.types import Array

try:
    import mujoco
except (AttributeError, ImportError, RuntimeError) as error:  # its import loads OpenGL as MUJOCO_GL says
    raise no_opengl(error) from error

# MuJoCo resets itself, with no more than a warning, where one of these quantities is not finite or huge.
_DIVERGED = [
    int(mujoco.mjtWarning.mjWARN_BADQPOS),
    int(mujoco.mjtWarning.mjWARN_BADQVEL),
    int(mujoco.mjtWarning.mjWARN_BADQACC),
]


@dataclass(frozen=True)
class WorldConfig:
    """How the world follows the clock."""

    stream_period: float = 0.01  # s between servo targets, as the real driver streams them
    max_catch_up: float = 5.0  # s of physics at most per look; time beyond it passes without physics

    def __post_init__(self) -> None:
        if not 0.001 <= self.stream_period <= 0.05:
            raise ValueError(f"WorldConfig.stream_period: expected 0.001 to 0.05 s, got {self.stream_period}")
        if not self.max_catch_up > 0:
            raise ValueError(f"WorldConfig.max_catch_up: expected > 0 s, got {self.max_catch_up}")


@dataclass(frozen=True, slots=True, eq=False)
class WorldState:
    """All that decides the world's future: the physics state (S,) and the motion that the servos follow."""

    physics: Array
    ramp_start: Array
    ramp_goal: Array
    ramp_tick: int
    ramp_ticks: int


class SimWorld:
    """One MuJoCo world. It moves only in `advance`, in ticks of `stream_period`, up to `clock.now()`.

    So the same code runs as fast as it computes on a virtual clock and in real time on a wall clock. The same
    commands at the same virtual times give bit-equal states.
    """

    def __init__(self, xml: str, clock: Clock, config: WorldConfig | None = None) -> None:
        self.model = mujoco.MjModel.from_xml_string(xml)
        self.data = mujoco.MjData(self.model)
        self._clock = clock
        self._config = config or WorldConfig()
        substeps = self._config.stream_period / self.model.opt.timestep
        self._substeps = round(substeps)
        if self._substeps < 1 or abs(substeps - self._substeps) > 1e-6:
            raise ValueError(
                f"SimWorld: expected stream_period {self._config.stream_period} s to be a multiple of the "
                f"timestep {self.model.opt.timestep} s"
            )
        joints = [self.model.joint(joint.name) for joint in JOINTS]
        self._arm_q = np.array([joint.qposadr[0] for joint in joints])
        self._arm_v = np.array([joint.dofadr[0] for joint in joints])
        self._fingers_q = np.array([self.model.joint(name).qposadr[0] for name in FINGER_JOINTS])
        self._tcp = self.model.site(SITE_TCP).id
        self._epoch = 0.0
        self.revision = 0  # grows with every change, so that a camera knows whether its image is still good
        self.reset()

    @property
    def timestamp(self) -> float:
        """When the present state holds, seconds on the clock."""
        return self._epoch + float(self.data.time)

    def advance(self) -> None:
        """Run the physics up to the clock, at most `max_catch_up`; raises DeviceError if it diverges."""
        period = self._config.stream_period
        behind = self._clock.now() - self.timestamp
        # The slack keeps a tick that is due by arithmetic from slipping by a rounding error.
        ticks = int(behind / period + 1e-6)
        if ticks <= 0:
            return
        allowed = int(self._config.max_catch_up / period)
        if ticks > allowed:
            self._epoch += (ticks - allowed) * period
            ticks = allowed
        for _ in range(ticks):
            if self._ramp_tick < self._ramp_ticks:
                self._ramp_tick += 1
                fraction = self._ramp_tick / self._ramp_ticks
                self.data.ctrl[:6] = self._ramp_start + fraction * (self._ramp_goal - self._ramp_start)
            mujoco.mj_step(self.model, self.data, self._substeps)
        if self.data.warning.number[_DIVERGED].any():
            raise DeviceError(
                "simulated arm: the physics diverged; shorten SceneConfig.timestep or look for bodies that "
                "overlap at the start of the episode"
            )
        self._refresh()

    def move_joints(self, joint_positions: Array, duration: float) -> None:
        """Ramp the servo targets linearly to (6,) [rad] within `duration` [s], from where they are now."""
        self.advance()
        self._ramp_start = self.data.ctrl[:6].copy()
        self._ramp_goal = np.array(joint_positions, dtype=np.float64)
        self._ramp_tick = 0
        self._ramp_ticks = max(1, round(duration / self._config.stream_period))

    def move_gripper(self, opening: float) -> None:
        """Drive the fingers to `opening` in [0, 1]."""
        self.advance()
        self.data.ctrl[6] = opening * FINGER_STROKE

    def stop(self) -> None:
        """Servo on the measured joints; the gripper keeps its target."""
        self.advance()
        self._stay(self.joint_positions)

    def reset(self) -> None:
        """Back to the model's initial state, at the present time."""
        mujoco.mj_resetData(self.model, self.data)
        self._stay(self.servo_targets)
        self._epoch = self._clock.now()
        self._refresh()

    def place_arm(self, joint_positions: Array, opening: float) -> None:
        """Put the arm at rest at (6,) [rad] without moving there, the fingers at `opening` in [0, 1]."""
        self.data.qpos[self._arm_q] = joint_positions
        self.data.qpos[self._fingers_q] = opening * FINGER_STROKE
        self.data.qvel[:] = 0.0
        self._stay(joint_positions)
        self.data.ctrl[6] = opening * FINGER_STROKE
        self._refresh()

    def place_body(self, name: str, position: Array, yaw: float = 0.0) -> None:
        """Put a mocap or free body at `position` (3,) [m], turned by `yaw` [rad] about the vertical."""
        quat = np.array([np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)])  # MuJoCo order wxyz
        body = self.model.body(name)
        if body.mocapid[0] >= 0:
            self.data.mocap_pos[body.mocapid[0]] = position
            self.data.mocap_quat[body.mocapid[0]] = quat
        elif body.jntnum[0] == 1 and self.model.jnt_type[body.jntadr[0]] == mujoco.mjtJoint.mjJNT_FREE:
            start = self.model.jnt_qposadr[body.jntadr[0]]
            self.data.qpos[start : start + 7] = [*position, *quat]
            start = self.model.jnt_dofadr[body.jntadr[0]]
            self.data.qvel[start : start + 6] = 0.0
        else:
            raise ValueError(f"place_body({name!r}): expected a mocap body or one with a single free joint")
        self._refresh()

    def set_joint(self, name: str, value: float) -> None:
        """Put a one-dimensional joint of an object at `value` [m or rad], at rest."""
        joint = self.data.joint(name)
        joint.qpos[0] = value
        joint.qvel[0] = 0.0
        self._refresh()

    def joint(self, name: str) -> float:
        """Position of a one-dimensional joint of an object [m or rad]."""
        return float(self.data.joint(name).qpos[0])

    def body_position(self, name: str) -> Array:
        """Position (3,) [m] of a body in the base frame."""
        return np.array(self.data.body(name).xpos)

    def body_pose(self, name: str) -> Pose:
        """Pose of a body in the base frame."""
        body = self.data.body(name)
        return Pose(np.array(body.xpos), np.array(body.xmat).reshape(3, 3))

    def tcp(self) -> Pose:
        """The true pose of the tool point."""
        return Pose(
            self.data.site_xpos[self._tcp].copy(), self.data.site_xmat[self._tcp].reshape(3, 3).copy()
        )

    @property
    def joint_positions(self) -> Array:
        """(6,) [rad]."""
        return np.array(self.data.qpos[self._arm_q])

    @property
    def joint_velocities(self) -> Array:
        """(6,) [rad/s]."""
        return np.array(self.data.qvel[self._arm_v])

    @property
    def joint_efforts(self) -> Array:
        """(6,) [Nm], what the servos apply; gravity is compensated apart."""
        return np.array(self.data.actuator_force[:6])

    @property
    def servo_targets(self) -> Array:
        """(6,) [rad], where the servos are sent at present."""
        return np.array(self.data.ctrl[:6])

    @property
    def servo_goal(self) -> Array:
        """(6,) [rad], where the servos' motion ends, or where they stay."""
        return self._ramp_goal.copy()

    @property
    def gripper_opening(self) -> float:
        """Mean finger position as a share of the stroke, in [0, 1]."""
        return float(np.clip(self.data.qpos[self._fingers_q].mean() / FINGER_STROKE, 0.0, 1.0))

    def get_state(self) -> WorldState:
        """A copy of the state, for `set_state` on any world of the same MJCF."""
        kind = mujoco.mjtState.mjSTATE_INTEGRATION
        physics = np.empty(mujoco.mj_stateSize(self.model, kind))
        mujoco.mj_getState(self.model, self.data, physics, kind)
        return WorldState(
            physics, self._ramp_start.copy(), self._ramp_goal.copy(), self._ramp_tick, self._ramp_ticks
        )

    def set_state(self, state: WorldState) -> None:
        """Continue from `state` at the present time."""
        mujoco.mj_setState(self.model, self.data, state.physics, mujoco.mjtState.mjSTATE_INTEGRATION)
        self._ramp_start, self._ramp_goal = state.ramp_start.copy(), state.ramp_goal.copy()
        self._ramp_tick, self._ramp_ticks = state.ramp_tick, state.ramp_ticks
        self._epoch = self._clock.now() - float(self.data.time)
        self._refresh()

    def _stay(self, joint_positions: Array) -> None:
        """No motion is left; the servos' target is (6,) [rad]."""
        self.data.ctrl[:6] = joint_positions
        self._ramp_start = self._ramp_goal = np.array(joint_positions, dtype=np.float64)
        self._ramp_tick = self._ramp_ticks = 0

    def _refresh(self) -> None:
        # mj_step leaves poses one substep old; what cameras and tasks look at must match the joints.
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)
        self.revision += 1
