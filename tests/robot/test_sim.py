"""The simulated world: follows the clock, repeats itself, stays sound in contact, and its cameras show the task."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot.clock import VirtualClock
from robot.factory import ObsKind, RobotConfig, make_robot_env, make_task
from robot.interfaces import DeviceError
from robot.kinematics import Kinematics
from robot.sim import gl
from robot.sim.arm import SimArm, SimFaults
from robot.sim.camera import SimCameras
from robot.sim.scene import SIDE_VIEW, WRIST_VIEW, SceneConfig, build_scene
from robot.sim.tasks.press import PRESSED, TRAVEL
from robot.sim.world import SimWorld, WorldConfig

STATE = RobotConfig(obs=ObsKind.STATE)
LAG = slice(12, 15)


def make_world(clock: VirtualClock, config: WorldConfig | None = None) -> SimWorld:
    task = make_task("press")
    world = SimWorld(build_scene(task.objects(), task.scene), clock, config)
    world.place_arm(task.spec.reset_joints, 0.0)
    return world


def image_change(before: np.ndarray, after: np.ndarray) -> int:
    """Pixels that changed clearly."""
    return int((np.abs(before.astype(int) - after.astype(int)).max(axis=2) > 60).sum())


def test_tool_point_agrees_with_kinematics() -> None:
    clock = VirtualClock()
    world = make_world(clock)
    rng = np.random.default_rng(0)
    kinematics = Kinematics()
    for _ in range(20):
        joints = rng.uniform(kinematics.joint_limits[:, 0], kinematics.joint_limits[:, 1])
        world.place_arm(joints, 0.5)
        expected = kinematics.forward(joints)
        np.testing.assert_allclose(world.tcp().position, expected.position, atol=1e-9)
        np.testing.assert_allclose(world.tcp().rotation, expected.rotation, atol=1e-9)


@pytest.mark.parametrize("direction", [(1, 0, 0), (0, 1, 0), (0, 0, -1)])
def test_servos_trail_their_target_by_millimetres_and_come_to_rest(direction: tuple[int, int, int]) -> None:
    env = make_robot_env(STATE)
    env.reset(seed=3)
    env.workcell.world.place_body("toaster", np.array([0.4, 0.6, 0.0]))  # type: ignore[attr-defined]
    action = np.zeros(7, np.float32)
    action[:3] = direction
    lags = [np.linalg.norm(env.step(action)[0]["proprio"][LAG]) for _ in range(4)]
    assert 1e-3 < max(lags) < 3.5e-3
    for _ in range(2):
        values = env.step(np.zeros(7, np.float32))[0]
    assert np.linalg.norm(values["proprio"][LAG]) < 5e-5


def test_world_moves_only_with_the_clock_and_ramps_linearly() -> None:
    clock = VirtualClock(start=100.0)
    world = make_world(clock)
    start = world.joint_positions
    goal = start + 0.1
    world.move_joints(goal, 0.1)
    world.advance()
    np.testing.assert_array_equal(world.joint_positions, start)
    clock.advance(0.05)
    world.advance()
    np.testing.assert_allclose(world.data.ctrl[:6], start + 0.05, atol=1e-12)
    assert world.timestamp == pytest.approx(100.05)
    clock.advance(0.25)
    world.advance()
    np.testing.assert_allclose(world.joint_positions, goal, atol=1e-3)


def test_stop_ends_a_motion_where_it_is_measured() -> None:
    clock = VirtualClock()
    world = make_world(clock)
    world.move_joints(world.joint_positions + 0.3, 0.3)
    clock.advance(0.1)
    world.stop()
    stopped = world.joint_positions
    clock.advance(1.0)
    world.advance()
    assert np.abs(world.joint_positions - stopped).max() < 0.03


def test_catching_up_is_bounded() -> None:
    clock = VirtualClock()
    world = make_world(clock, WorldConfig(max_catch_up=0.5))
    clock.advance(3600.0)
    world.advance()
    assert world.data.time == pytest.approx(0.5)
    assert world.timestamp == pytest.approx(3600.0)


def test_divergence_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo leaves a log file in the working directory
    clock = VirtualClock()
    world = make_world(clock)
    world.data.qvel[0] = 1e12
    clock.advance(0.1)
    with pytest.raises(DeviceError, match="diverged"):
        world.advance()


def test_timestep_must_divide_the_stream_period() -> None:
    task = make_task("press")
    with pytest.raises(ValueError, match="multiple of the timestep"):
        SimWorld(build_scene(task.objects(), SceneConfig(timestep=0.003)), VirtualClock())


def episode(seed: int, start: float) -> list[np.ndarray]:
    env = make_robot_env(RobotConfig(image_px=32))
    env.robot.clock.sleep_until(start)
    rng = np.random.default_rng(seed)
    values, _ = env.reset(seed=seed)
    seen = [values["proprio"], values["images"]["wrist"], values["images"]["side"]]
    for _ in range(15):
        values, *_ = env.step(rng.uniform(-1, 1, 7).astype(np.float32))
        seen += [values["proprio"], values["images"]["wrist"], values["images"]["side"]]
    env.close()
    return seen


def test_same_seed_and_actions_give_the_same_episode_whenever_it_starts() -> None:
    for first, second in zip(episode(5, 0.0), episode(5, 1234.567), strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_saved_state_continues_identically_in_another_world_at_another_time() -> None:
    clock, other_clock = VirtualClock(), VirtualClock(start=77.7)
    world, other = make_world(clock), make_world(other_clock)
    make_task("press").randomise(np.random.default_rng(1), world)
    world.move_joints(world.joint_positions + 0.2, 0.2)
    clock.advance(0.07)  # in the middle of the ramp
    world.advance()
    other.set_state(world.get_state())
    assert other.timestamp == pytest.approx(77.7)
    for this, moved in ((clock, world), (other_clock, other)):
        this.advance(0.5)
        moved.advance()
    np.testing.assert_array_equal(world.data.qpos, other.data.qpos)
    np.testing.assert_array_equal(world.body_position("toaster"), other.body_position("toaster"))


def test_violent_actions_never_blow_up_the_physics_or_fault() -> None:
    env = make_robot_env(STATE)
    world: Any = env.workcell.world  # type: ignore[attr-defined]
    rng = np.random.default_rng(0)
    for seed in range(25):
        env.reset(seed=seed)
        action = np.zeros(7)
        for step in range(env.robot.spec.max_steps):
            if step % 4 == 0:
                action = rng.choice([-1.0, 1.0], 7)
                action[2] = -1.0  # into whatever is below
            *_, terminated, truncated, _ = env.step(action)
            assert np.abs(world.joint_velocities).max() < 10.0
            # The palm, pushed sideways on the whole leash against the toaster, sinks in by up to 15 mm.
            assert min((contact.dist for contact in world.data.contact), default=0.0) > -0.018
            assert -0.005 < world.joint("lever") < TRAVEL + 0.003
            if terminated or truncated:
                break


def test_cameras_show_where_the_lever_is_at_every_start_and_whether_it_is_down() -> None:
    env = make_robot_env(RobotConfig(image_px=64))
    world: Any = env.workcell.world  # type: ignore[attr-defined]
    for seed in range(25):
        values, _ = env.reset(seed=seed)
        for view in (WRIST_VIEW, SIDE_VIEW):
            red, green, blue = np.moveaxis(values["images"][view].astype(int), 2, 0)
            assert ((red > 180) & (green < 140) & (blue < 60)).sum() >= 12, (seed, view)
        world.set_joint("lever", PRESSED)
        for camera in env.robot.cameras:
            assert image_change(values["images"][camera.name], camera.read().image) >= 8, (seed, camera.name)
    env.close()


@pytest.mark.parametrize("size", [32, 64, 100])
def test_views_share_a_framebuffer_and_differ(size: int) -> None:
    cameras = SimCameras(make_world(VirtualClock()), [SIDE_VIEW, WRIST_VIEW], size)
    side, wrist = (camera.read() for camera in cameras.cameras)
    assert side.image.shape == wrist.image.shape == (size, size, 3)
    assert image_change(side.image, wrist.image) > size * size / 4
    assert side.image.std() > 10 and wrist.image.std() > 10
    # The wall is behind the scene, so at the top of the side view; the mat is below it.
    assert np.ptp(side.image[0, :8].mean(axis=0)) < 20 < np.ptp(side.image[-1].mean(axis=0))
    cameras.close()


def test_worlds_in_one_process_do_not_mix_their_images() -> None:
    clock = VirtualClock()
    first, second = make_world(clock), make_world(clock)
    second.place_body("toaster", np.array([0.4, 0.6, 0.0]))
    small, large = SimCameras(first, [SIDE_VIEW], 32), SimCameras(second, [SIDE_VIEW, WRIST_VIEW], 96)
    before = small.frame(SIDE_VIEW).image
    large.frame(SIDE_VIEW)
    first.set_joint("lever", 0.0)  # a new revision of the same scene
    np.testing.assert_array_equal(small.frame(SIDE_VIEW).image, before)


def test_frames_carry_the_time_of_the_world_and_are_drawn_once() -> None:
    clock = VirtualClock(start=3.0)
    cameras = SimCameras(make_world(clock), [SIDE_VIEW, WRIST_VIEW], 32)
    clock.advance(0.1)
    frame = cameras.frame(SIDE_VIEW)
    assert frame.timestamp == pytest.approx(3.1)
    assert cameras.frame(SIDE_VIEW) is frame
    assert cameras.frame(WRIST_VIEW).timestamp == frame.timestamp
    clock.advance(0.1)
    assert cameras.frame(SIDE_VIEW).timestamp == pytest.approx(3.2)


def test_a_stalled_camera_keeps_its_old_image_and_time() -> None:
    clock, faults = VirtualClock(), SimFaults()
    world = make_world(clock)
    cameras = SimCameras(world, [SIDE_VIEW, WRIST_VIEW], 32, faults)
    before = cameras.frame(SIDE_VIEW)
    faults.stalled_views.add(SIDE_VIEW)
    world.set_joint("lever", TRAVEL)
    clock.advance(1.0)
    assert cameras.frame(WRIST_VIEW).timestamp == pytest.approx(1.0)
    assert cameras.frame(SIDE_VIEW) is before
    faults.stalled_views.clear()
    assert cameras.frame(SIDE_VIEW).timestamp == pytest.approx(1.0)


def test_drawing_in_another_thread_is_refused_with_its_name() -> None:
    cameras = SimCameras(make_world(VirtualClock()), [SIDE_VIEW], 32)
    cameras.frame(SIDE_VIEW)
    other = SimCameras(make_world(VirtualClock()), [SIDE_VIEW], 32)
    errors: list[DeviceError] = []

    def draw() -> None:
        try:
            other.frame(SIDE_VIEW)
        except DeviceError as error:
            errors.append(error)

    thread = threading.Thread(target=draw, name="recorder")
    thread.start()
    thread.join()
    assert len(errors) == 1 and "recorder" in str(errors[0])


def test_missing_opengl_names_packages_and_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "absent")
    with pytest.raises(DeviceError, match=r"MUJOCO_GL=absent.*libegl1 libgl1-mesa-dri.*libosmesa6"):
        gl.process_context.__wrapped__()


def test_unknown_view_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"\['side', 'wrist', 'wrist_zoom'\], got \['front'\]"):
        SimCameras(make_world(VirtualClock()), ["front"], 32)


def test_sensor_faults_are_injected() -> None:
    clock, faults = VirtualClock(), SimFaults()
    world = make_world(clock)
    arm = SimArm(world, faults)
    arm.connect()
    first = arm.state()
    faults.stale_feedback = True
    clock.advance(0.1)
    stale = arm.state()
    assert stale.timestamp == first.timestamp
    np.testing.assert_array_equal(stale.joint_positions, first.joint_positions)
    faults.stale_feedback, faults.frozen_feedback = False, True
    arm.send_joints(first.joint_positions + 0.1, 0.1)
    clock.advance(0.2)
    frozen = arm.state()
    assert frozen.timestamp == pytest.approx(0.3)
    np.testing.assert_array_equal(frozen.joint_positions, first.joint_positions)
    faults.frozen_feedback, faults.nan_joint = False, 2
    assert np.isnan(arm.state().joint_positions).tolist() == [False, False, True, False, False, False]
    faults.nan_joint = None
    np.testing.assert_allclose(arm.state().joint_positions, first.joint_positions + 0.1, atol=1e-2)
