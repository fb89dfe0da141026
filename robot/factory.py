"""Composition root of the robot: from RobotConfig to an environment, its demonstrator and its corrector."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from math import sqrt

import numpy as np
from gymnasium.envs.registration import EnvSpec

from robot.arm_env import ArmEnv
from robot.arms.a1x import A1XArm
from robot.arms.a1x_config import A1XConfig
from robot.arms.piper import PiperArm, PiperConfig, piper_geometry
from robot.cameras.config import CameraConfig, check_cameras
from robot.cameras.view import make_views
from robot.cell import AttendedCell, CellConfig
from robot.clock import VirtualClock, WallClock
from robot.env import RobotEnv
from robot.foreign import ForeignEnv, ForeignTask, load_function
from robot.frames import Frames, ProprioFrame
from robot.geometry import DeltaFrame
from robot.interfaces import Arm, Camera, Clock, Demonstrator, DeviceError, Operator
from robot.kinematics import Kinematics
from robot.operator import TerminalOperator
from robot.robot import PrivilegedState, Robot
from robot.safety import FeedbackLimits, GovernorTransition, SafetyConfig, SafetyGovernor
from robot.sim.arm import SimArm, SimFaults
from robot.sim.camera import SimCamera, SimCameras
from robot.sim.expert import ExpertNoise, ScriptedCorrector, ScriptedExpert
from robot.sim.scene import SIDE_VIEW, WRIST_VIEW, WRIST_ZOOM_VIEW, build_scene
from robot.sim.tasks.assemble import AssembleTask
from robot.sim.tasks.base import SimTask
from robot.sim.tasks.insert import InsertTask
from robot.sim.tasks.pick_place import PickPlaceTask
from robot.sim.tasks.press import PressTask
from robot.sim.tasks.sort import SortTask
from robot.sim.workcell import SimWorkcell
from robot.sim.world import SimWorld
from robot.tasks import TaskSpec
from robot.timing import TimingConfig

VIEWS = (WRIST_VIEW, SIDE_VIEW, WRIST_ZOOM_VIEW)
WATCHDOG_PERIOD = 0.02  # s
TASKS = ("press", "insert", "insert_tight", "assemble", "pick_place", "sort")


class RobotKind(Enum):
    """Which arm. FOREIGN: an environment of somebody else's, see robot/foreign.py."""

    SIM = "sim"
    FOREIGN = "foreign"
    A1X = "a1x"
    PIPER = "piper"

    @property
    def physical(self) -> bool:
        """It can hurt somebody."""
        return self in (RobotKind.A1X, RobotKind.PIPER)


class ClockKind(Enum):
    """VIRTUAL: as fast as it computes. WALL: real time."""

    VIRTUAL = "virtual"
    WALL = "wall"


class ObsKind(Enum):
    """PIXELS: images and proprio. STATE: no images; what a simulator knows is appended to the proprio."""

    PIXELS = "pixels"
    STATE = "state"


@dataclass(frozen=True)
class RobotConfig:
    """Arm, task, clock and what is observed.

    foreign: with kind=foreign, <module>:<function>; the function gets this config and returns a ForeignTask.
    cell: of a physical arm; its `task` is a name of your own, such as `plug`. cameras: of a physical arm, one entry for
    each of `views`, whose names are your own too.
    """

    kind: RobotKind = RobotKind.SIM
    foreign: str | None = None
    task: str = "press"
    clock: ClockKind = ClockKind.VIRTUAL
    obs: ObsKind = ObsKind.PIXELS
    image_px: int = 64  # side of the square images
    views: list[str] = field(default_factory=lambda: [WRIST_VIEW, SIDE_VIEW])
    control_hz: float = 10.0
    action_frame: DeltaFrame = DeltaFrame.BASE  # axes of the actions
    proprio_frame: ProprioFrame = ProprioFrame.BASE  # where the tool's pose is seen from
    cell: CellConfig = field(default_factory=CellConfig)
    cameras: dict[str, CameraConfig] = field(default_factory=dict)
    a1x: A1XConfig = field(default_factory=A1XConfig)
    piper: PiperConfig = field(default_factory=PiperConfig)

    def __post_init__(self) -> None:
        if (self.kind is RobotKind.FOREIGN) != (self.foreign is not None):
            raise ValueError(
                f"robot.foreign={self.foreign}: expected <module>:<function> with robot.kind=foreign, none without"
            )
        if self.kind is RobotKind.FOREIGN:
            if self.action_frame is not DeltaFrame.BASE or self.proprio_frame is not ProprioFrame.BASE:
                raise ValueError(
                    "robot.action_frame, robot.proprio_frame: a foreign environment has frames of its own; leave base"
                )
        elif self.kind.physical:
            if self.clock is not ClockKind.WALL:
                raise ValueError(
                    f"robot.kind={self.kind.value}: a physical arm lives in real time; use robot.clock=wall"
                )
            self.cell.check_measured()
            if self.obs is ObsKind.PIXELS:
                check_cameras(self.cameras, self.views, self.image_px)
        elif self.task not in TASKS:
            raise ValueError(f"robot.task={self.task}: no such task; {_nearest(self.task, TASKS)}")
        if not 32 <= self.image_px <= 512:
            raise ValueError(f"robot.image_px: expected 32 to 512, got {self.image_px}")
        if not 1.0 <= self.control_hz <= 50.0:
            raise ValueError(f"robot.control_hz: expected 1 to 50, got {self.control_hz}")
        unknown = [view for view in self.views if view not in VIEWS]
        if unknown and self.kind is RobotKind.SIM:
            raise ValueError(f"robot.views: {unknown[0]} is no view; {_nearest(unknown[0], VIEWS)}")
        if not self.views or len(set(self.views)) != len(self.views):
            raise ValueError(f"robot.views: expected at least one view, each once, got {list(self.views)}")
        if self.cameras and not self.kind.physical:
            raise ValueError(
                f"robot.cameras: robot.kind={self.kind.value} brings its own views; cameras are for a physical arm"
            )


def make_env(
    config: RobotConfig,
    *,
    seed: int = 0,
    on_transition: Callable[[GovernorTransition], None] | None = None,
    keep_waiting: Callable[[str], bool] = lambda _what: True,
) -> ArmEnv:
    """The connected environment, our own arm or a foreign one; see `make_robot_env`.

    keep_waiting: called with what is waited for, every second while the person at a physical arm is awaited, and at
    each waypoint on which an arm moves to its start; where it is False the arm holds: RobotFault `interrupted`.
    """
    if config.kind is RobotKind.FOREIGN:
        return _make_foreign_env(config, seed)
    return make_robot_env(config, seed=seed, on_transition=on_transition, keep_waiting=keep_waiting)


def make_robot_env(
    config: RobotConfig,
    *,
    seed: int = 0,
    faults: SimFaults | None = None,
    on_transition: Callable[[GovernorTransition], None] | None = None,
    operator: Operator | None = None,
    keep_waiting: Callable[[str], bool] = lambda _what: True,
) -> RobotEnv:
    """The connected environment; `seed` is that of the first unseeded reset. Raises DeviceError, ValueError.

    Call it in the thread that will step the environment: OpenGL binds to it. faults: for tests.
    on_transition: told of every change of the safety governor's state, with a physical arm from two threads.
    operator: who lets a physical arm move; by default the person at the terminal. keep_waiting: see `make_env`.
    """
    match config.kind:
        case RobotKind.SIM:
            env = _make_sim_env(config, seed, faults or SimFaults(), on_transition, keep_waiting)
        case RobotKind.FOREIGN:
            raise ValueError("robot.kind=foreign: there is no robot of ours in it; make_env() makes it")
        case RobotKind.A1X | RobotKind.PIPER:
            operator = operator or TerminalOperator(keep_waiting=keep_waiting)
            env = _make_physical_env(config, seed, on_transition, operator, keep_waiting)
    env.spec = _gym_spec(config, seed)
    return env


def make_demonstrator(env: ArmEnv, rng: np.random.Generator, noise: float) -> Demonstrator:
    """The scripted demonstrator of a simulated or foreign environment; raises ValueError where there is none.

    noise: 0 = always the same clean motion, 1 = barely competent.
    """
    if not isinstance(env, ForeignEnv):
        return make_expert(env, rng, ExpertNoise(noise))
    if env.task.expert is None:
        raise ValueError(
            f"{env.task.name}: it brings no scripted demonstrator (ForeignTask.expert); record by hand with "
            "`groundhog record correction.kind=keyboard robot.clock=wall`, then train with demos.path="
        )
    return env.task.expert(rng, noise)


def make_expert(env: ArmEnv, rng: np.random.Generator, noise: ExpertNoise | None = None) -> ScriptedExpert:
    """A demonstrator for a simulated environment; raises ValueError for a real one."""
    cell = _sim_cell(env)
    return ScriptedExpert(cell.task, cell.world, rng, noise)


def make_corrector(
    env: ArmEnv, rng: np.random.Generator, noise: ExpertNoise | None = None
) -> ScriptedCorrector:
    """A corrector for a simulated environment; raises ValueError for a real one."""
    cell = _sim_cell(env)
    return ScriptedCorrector(make_expert(env, rng, noise), lambda: cell.task.progress(cell.world), rng)


def make_task(name: str) -> SimTask:
    """The simulated task of this name; raises ValueError with the known names."""
    match name:
        case "press":
            return PressTask()
        case "insert":
            return InsertTask(name, clearance=0.0015)
        case "insert_tight":
            return InsertTask(name, clearance=0.0005)
        case "assemble":
            return AssembleTask()
        case "pick_place":
            return PickPlaceTask()
        case "sort":
            return SortTask()
        case _:
            raise ValueError(f"robot.task={name}: no such task; {_nearest(name, TASKS)}")


def safety_config(spec: TaskSpec, control_period: float) -> SafetyConfig:
    """Limits of the simulated cell: those of the task, loose enough for its largest step and a blocked arm.

    The simulated servos take a target three centimetres inside an obstacle without harm; a real arm does not.
    """
    step = sqrt(3.0) * spec.action_scale.position  # of an action with all three entries at 1
    return SafetyConfig(
        workspace_lower=spec.workspace_lower,
        workspace_upper=spec.workspace_upper,
        reference_rotation=spec.reference_rotation,
        rotation_limit=spec.rotation_limit,
        max_position_step=step,
        max_rotation_step=sqrt(3.0) * spec.action_scale.rotation,
        max_joint_speed=2.0,
        max_joint_acceleration=4.0,
        leash_position=1.3 * step,
        leash_joint=0.2,
        control_period=control_period,
        # At any rate: nobody watches for the silence of a policy where time stands still between its commands.
        silence_hold=3.0 * control_period,
        silence_fault=7.5 * control_period,
        # Far above the leash: in a jam the strong joints push the weak ones back, and exploration jams often.
        feedback=FeedbackLimits(lag=0.8),
    )


def _make_sim_env(
    config: RobotConfig,
    seed: int,
    faults: SimFaults,
    on_transition: Callable[[GovernorTransition], None] | None,
    keep_waiting: Callable[[str], bool],
) -> RobotEnv:
    task = make_task(config.task)
    clock = _make_clock(config.clock)
    timing = TimingConfig(control_period=1.0 / config.control_hz)
    kinematics = Kinematics()
    world = SimWorld(build_scene(task.objects(), task.scene), clock)
    cell = SimWorkcell(task, world)
    cameras: Sequence[SimCamera] = ()
    privileged = None
    match config.obs:
        case ObsKind.PIXELS:
            cameras = SimCameras(world, config.views, config.image_px, faults).cameras
        case ObsKind.STATE:
            privileged = PrivilegedState(cell.privileged, task.privileged_spec)
    robot = Robot(
        SimArm(world, faults),
        cameras,
        SafetyGovernor(
            safety_config(task.spec, timing.control_period), kinematics, on_transition=on_transition
        ),
        kinematics,
        clock,
        task.spec,
        timing,
        auto_unlock=True,
        privileged=privileged,
        frames=Frames(config.action_frame, config.proprio_frame),
        keep_waiting=keep_waiting,
    )
    robot.connect()
    return RobotEnv(robot, cell, teleport=config.clock is ClockKind.VIRTUAL, seed=seed)


def _make_physical_env(
    config: RobotConfig,
    seed: int,
    on_transition: Callable[[GovernorTransition], None] | None,
    operator: Operator,
    keep_waiting: Callable[[str], bool],
) -> RobotEnv:
    clock, cell = _make_clock(config.clock), config.cell
    kinematics = _kinematics(config)
    timing = TimingConfig(control_period=1.0 / config.control_hz)
    spec = cell.spec(config.task, kinematics)
    cameras: Sequence[Camera] = ()
    if config.obs is ObsKind.PIXELS:
        cameras = make_views(config.cameras, config.views, config.image_px, clock)
    robot = Robot(
        _make_arm(config, clock),
        cameras,
        SafetyGovernor(
            cell.safety(spec, kinematics, timing.control_period), kinematics, on_transition=on_transition
        ),
        kinematics,
        clock,
        spec,
        timing,
        operator=operator,
        watchdog_period=WATCHDOG_PERIOD,
        frames=Frames(config.action_frame, config.proprio_frame),
        keep_waiting=keep_waiting,
    )
    robot.connect()
    workcell = AttendedCell(spec, operator if cell.confirm_resets else None)
    return RobotEnv(robot, workcell, teleport=False, seed=seed)


def _make_arm(config: RobotConfig, clock: Clock) -> Arm:
    match config.kind:
        case RobotKind.A1X:
            return A1XArm(config.a1x, clock, max_joint_speed=config.cell.max_joint_speed)
        case RobotKind.PIPER:
            return PiperArm(config.piper, clock, max_joint_speed=config.cell.max_joint_speed)
        case _:
            raise ValueError(f"robot.kind={config.kind.value}: no physical arm")


def _kinematics(config: RobotConfig) -> Kinematics:
    if config.kind is not RobotKind.PIPER:
        return Kinematics()
    if config.piper.tool_offset is None:
        raise ValueError(
            "robot.piper.tool_offset: expected the distance [m] from the flange to between the fingertips; measure it"
        )
    return Kinematics(piper_geometry(config.piper.tool_offset))


def _make_foreign_env(config: RobotConfig, seed: int) -> ForeignEnv:
    assert config.foreign is not None
    task = load_function(config.foreign)(config)
    if not isinstance(task, ForeignTask):
        raise DeviceError(
            f"robot.foreign={config.foreign}: expected a ForeignTask, got {type(task).__name__}"
        )
    views = [] if config.obs is ObsKind.STATE else sorted(config.views)
    if task.name != config.task or sorted(task.views) != views:
        task.env.close()
        raise DeviceError(
            f"robot.foreign={config.foreign}: expected robot.task={config.task} with views {views}, got task "
            f"{task.name} with views {sorted(task.views)}; set robot.task, robot.obs and robot.views to those"
        )
    env = ForeignEnv(task, _make_clock(config.clock), 1.0 / config.control_hz, seed=seed)
    env.spec = _gym_spec(config, seed)
    return env


def _gym_spec(config: RobotConfig, seed: int) -> EnvSpec:
    return EnvSpec(
        id=f"groundhog/{config.task}-v0",
        entry_point=partial(make_env, config, seed=seed),
        nondeterministic=True,  # for the time stamps in `info`; on a virtual clock all else repeats
    )


def _make_clock(kind: ClockKind) -> Clock:
    match kind:
        case ClockKind.VIRTUAL:
            return VirtualClock()
        case ClockKind.WALL:
            return WallClock()


def _sim_cell(env: ArmEnv) -> SimWorkcell:
    if not isinstance(env, RobotEnv) or not isinstance(env.workcell, SimWorkcell):
        raise ValueError(
            "a scripted demonstrator or corrector needs a simulated cell, which it sees through; "
            "on a real robot use a keyboard or a gamepad"
        )
    return env.workcell


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}known: {', '.join(known)}"
