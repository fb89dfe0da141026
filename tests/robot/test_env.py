"""RobotEnv and Robot: the Gymnasium contract, ends of episodes, the clock, faults, and that the arm always holds."""

import warnings
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from robot.clock import VirtualClock
from robot.env import RobotEnv
from robot.factory import ClockKind, ObsKind, RobotConfig, make_expert, make_robot_env
from robot.interfaces import DeviceError, RobotFault
from robot.safety import GovernorState
from robot.sim.arm import SimFaults
from robot.sim.expert import ExpertNoise
from robot.tasks import GripperMode

STATE = RobotConfig(obs=ObsKind.STATE)
PIXELS = RobotConfig(image_px=32)
REST = np.zeros(7, np.float32)


def named(env: RobotEnv, values: dict[str, Any]) -> dict[str, float]:
    return dict(zip(env.proprio_spec.names, values["proprio"].tolist(), strict=True))


def until_success(env: RobotEnv, seed: int) -> tuple[list[dict[str, Any]], bool, bool, float]:
    expert = make_expert(env, np.random.default_rng(seed), ExpertNoise(0.0))
    env.reset(seed=seed)
    infos = []
    while True:
        _, reward, terminated, truncated, info = env.step(expert.act())
        infos.append(info)
        if terminated or truncated:
            return infos, terminated, truncated, reward


@pytest.mark.parametrize("config", [STATE, PIXELS])
def test_gymnasium_contract(config: RobotConfig) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the proprio vector has no natural bounds
        check_env(make_robot_env(config), skip_render_check=True)


def test_observations() -> None:
    pixels, state = make_robot_env(PIXELS), make_robot_env(STATE)
    values, info = pixels.reset(seed=0)
    assert values["proprio"].shape == (20,) and values["proprio"].dtype == np.float32
    assert {view: image.shape for view, image in values["images"].items()} == {
        "wrist": (32, 32, 3),
        "side": (32, 32, 3),
    }
    assert set(info["image_timestamps"]) == {"wrist", "side"}
    assert isinstance(state.observation_space, gym.spaces.Dict)
    assert list(state.observation_space.spaces) == ["proprio"]
    more, _ = state.reset(seed=0)
    assert state.proprio_spec.dim == len(more["proprio"]) == 26
    np.testing.assert_array_equal(more["proprio"][:20], values["proprio"])
    lever = named(state, more)
    world: Any = state.workcell.world  # type: ignore[attr-defined]
    np.testing.assert_allclose(
        [
            lever["ee_x"] + lever["lever_dx"],
            lever["ee_y"] + lever["lever_dy"],
            lever["ee_z"] + lever["lever_dz"],
        ],
        world.body_position("lever"),
        atol=1e-6,
    )


def test_proprio_is_in_si_units_and_the_action_in_units_of_its_scale() -> None:
    env = make_robot_env(STATE)
    before = named(env, env.reset(seed=1)[0])
    assert before["velocity_x"] == before["lag_x"] == 0.0
    assert abs(before["ee_rx"]) < 1e-3 and before["gripper_opening"] == 0.0
    assert before["gripper_command"] == -1.0
    action = np.array([0.5, 0, 0, 0, 0.5, 0, 0], np.float32)
    env.step(action)
    values, *_, info = env.step(action)
    after = named(env, values)
    np.testing.assert_allclose(info["action"], action, atol=1e-3)
    # Two steps of 10 mm and .04 rad at 10 Hz; the measured motion trails the commanded one by the lag.
    assert after["ee_x"] + after["lag_x"] - before["ee_x"] == pytest.approx(0.02, abs=1e-3)
    assert after["ee_ry"] + after["lag_ry"] - before["ee_ry"] == pytest.approx(0.08, abs=4e-3)
    assert after["velocity_x"] == pytest.approx(0.1, abs=0.01)
    assert after["angular_velocity_y"] == pytest.approx(0.4, abs=0.05)
    assert 0 < after["lag_x"] < 3e-3


def test_success_must_hold_and_ends_the_episode() -> None:
    env = make_robot_env(STATE)
    pressed = []
    success = env.workcell.success
    env.workcell.success = lambda: pressed.append(success()) or pressed[-1]  # type: ignore[method-assign, func-returns-value]
    infos, terminated, truncated, reward = until_success(env, 0)
    assert terminated and not truncated and reward == 1.0 and infos[-1]["success"]
    assert pressed[-env.robot.spec.hold_steps :] == [True] * env.robot.spec.hold_steps
    assert not any(pressed[: -env.robot.spec.hold_steps])
    assert not any(info["success"] for info in infos[:-1])
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(REST)


def test_the_limit_truncates_and_does_not_terminate() -> None:
    env = make_robot_env(STATE)
    env.reset(seed=0)
    ends = [env.step(REST)[1:4] for _ in range(env.robot.spec.max_steps)]
    assert ends[-1] == (0.0, False, True)
    assert set(ends[:-1]) == {(0.0, False, False)}


def test_info_tells_what_was_executed() -> None:
    env = make_robot_env(STATE)
    env.reset(seed=0)
    wish = np.array([0, 0, 1, 0, 0, 0, 1], np.float32)
    clipped: set[str] = set()
    for _ in range(8):  # up, through the ceiling of the workspace
        *_, info = env.step(wish)
        clipped |= set(info["clipped"])
        assert info["clipped"] == sorted(info["clipped"])
    np.testing.assert_array_equal(info["requested_action"], wish)
    assert clipped == {"box"} and abs(info["action"][2]) < 1e-4
    assert info["action"].dtype == np.float32 and info["action"][6] == 0.0  # a fixed gripper is left alone
    assert not info["gripper_changed"] and not info["intervened"] and not info["overrun"]
    assert info["period"] == 0.1


def test_a_binary_gripper_changes_once_per_command() -> None:
    env = make_robot_env(STATE)
    env.robot.spec = replace(env.robot.spec, gripper_mode=GripperMode.BINARY)
    env.reset(seed=0)
    changes, executed = [], []
    for wish in (0.2, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.0):
        values, *_, info = env.step(np.array([0, 0, 0, 0, 0, 0, wish], np.float32))
        changes.append(info["gripper_changed"])
        executed.append(info["action"][6])
    assert changes == [False, True] + [False] * 5 + [True]
    assert executed == [0.0] + [1.0] * 6 + [-1.0]
    assert named(env, values)["gripper_command"] == -1.0
    assert 0.02 < named(env, values)["gripper_opening"] < 0.9  # on its way back


@pytest.mark.parametrize(
    "action",
    [
        np.full(7, np.nan),
        np.zeros(6),
        np.array([0, 0, np.inf, 0, 0, 0, 0]),
        np.array([0, 0, 0, 0, 0, 0, np.nan]),  # also where the gripper is fixed
    ],
)
def test_an_unusable_action_is_a_named_fault_and_no_motion(action: np.ndarray) -> None:
    env = make_robot_env(STATE)
    env.reset(seed=0)
    world: Any = env.workcell.world  # type: ignore[attr-defined]
    before = world.joint_positions
    with pytest.raises(RobotFault, match=r"bad_action: expected \(7,\) in \[-1, 1\]"):
        env.step(action)
    env.robot.clock.sleep_until(env.robot.clock.now() + 0.5)
    world.advance()
    np.testing.assert_allclose(world.joint_positions, before, atol=1e-4)


def test_an_action_beyond_its_range_is_clipped_and_so_reported() -> None:
    env = make_robot_env(STATE)
    env.reset(seed=0)
    info = env.step(np.array([5.0, 0, 0, 0, 0, 0, 0]))[4]
    assert info["action"][0] == pytest.approx(1.0) and info["requested_action"][0] == 5.0
    assert info["clipped"] == ["action"]


def test_the_arm_moves_to_its_start_within_the_caps_when_asked() -> None:
    env = make_robot_env(STATE)
    until_success(env, 0)
    world: Any = env.workcell.world  # type: ignore[attr-defined]
    speeds = []
    advance = world.advance
    world.advance = lambda: (advance(), speeds.append(np.abs(world.joint_velocities).max()))
    before = env.robot.clock.now()
    smooth, _ = env.reset(seed=5, options={"smooth": True})
    assert env.robot.clock.now() > before + 0.5
    assert 0.1 < max(speeds) < 2.2
    placed, _ = make_robot_env(STATE).reset(seed=5)
    np.testing.assert_allclose(smooth["proprio"][:6], placed["proprio"][:6], atol=3e-3)
    np.testing.assert_allclose(smooth["proprio"][20:25], placed["proprio"][20:25], atol=3e-3)


class SlowClock(VirtualClock):
    """A virtual clock on which sleeping takes `late` seconds longer."""

    late = 0.0

    def sleep_until(self, time: float) -> None:
        super().sleep_until(time + self.late)


def test_overruns_are_counted_and_the_next_tick_is_a_period_later() -> None:
    env = make_robot_env(STATE)
    env.reset(seed=0)
    clock: Any = env.robot.clock
    clock.advance(0.09)  # a policy that just makes it
    *_, info = env.step(REST)
    assert (info["overrun"], info["period"]) == (False, 0.1)
    clock.advance(0.25)  # one that does not: the arm still gets its period
    *_, info = env.step(REST)
    assert (info["overrun"], info["period"]) == (True, pytest.approx(0.35))
    *_, info = env.step(REST)
    assert (info["overrun"], info["period"]) == (False, pytest.approx(0.1))
    assert env.overruns == 1


def test_a_late_wake_up_is_an_overrun() -> None:
    env = make_robot_env(STATE)
    env.robot.clock = slow = SlowClock()
    slow.advance(env.robot.clock.now())
    env.reset(seed=0)
    env._tick = slow.now()
    env._due = slow.now() + 0.1
    slow.late = 0.05
    overrun, period = env._wait_for_tick()
    assert overrun and period == pytest.approx(0.15)
    slow.late = 0.0
    assert env._wait_for_tick() == (False, pytest.approx(0.1))


def test_wall_clock_keeps_the_rate() -> None:
    env = make_robot_env(RobotConfig(image_px=32, clock=ClockKind.WALL, control_hz=25.0))
    env.reset(seed=0)
    start = env.robot.clock.now()
    infos = [env.step(REST)[4] for _ in range(12)]
    for info in infos:  # a busy machine may be late, and then says so
        assert info["period"] >= 0.036 and (info["overrun"] or info["period"] <= 0.048)
    assert sum(info["period"] for info in infos) == pytest.approx(env.robot.clock.now() - start, abs=0.02)
    assert env.overruns == sum(info["overrun"] for info in infos)
    env.close()


@pytest.mark.parametrize(
    ("fault", "name"), [("nan_joint", "nan_feedback"), ("stale_feedback", "stale_feedback")]
)
def test_sensor_faults_stop_the_arm_by_name_and_the_next_reset_recovers(fault: str, name: str) -> None:
    faults = SimFaults()
    env = make_robot_env(STATE, faults=faults)
    env.reset(seed=0)
    world: Any = env.workcell.world  # type: ignore[attr-defined]
    setattr(faults, fault, 1 if fault == "nan_joint" else True)
    with pytest.raises(RobotFault) as raised:
        for _ in range(6):
            env.step(np.array([1, 0, 0, 0, 0, 0, 0], np.float32))
    assert raised.value.name == name
    stopped = world.joint_positions
    env.robot.clock.sleep_until(env.robot.clock.now() + 1.0)
    world.advance()
    assert np.abs(world.joint_positions - stopped).max() < 0.03
    setattr(faults, fault, None if fault == "nan_joint" else False)
    env.reset(seed=1)
    env.step(REST)


def test_frozen_feedback_is_noticed_while_moving() -> None:
    faults = SimFaults()
    env = make_robot_env(STATE, faults=faults)
    env.reset(seed=0)
    faults.frozen_feedback = True
    with pytest.raises(RobotFault) as raised:
        for step in range(20):
            env.step(np.array([0, 0.4 * (-1) ** (step // 2), 0, 0, 0, 0, 0], np.float32))
    assert raised.value.name == "frozen_feedback"


def test_a_stalled_camera_holds_the_arm_then_faults_by_view() -> None:
    faults = SimFaults()
    env = make_robot_env(PIXELS, faults=faults)
    env.reset(seed=0)
    world: Any = env.workcell.world  # type: ignore[attr-defined]
    faults.stalled_views.add("wrist")
    with pytest.raises(RobotFault, match=r"stale_frame.*wrist \(1\.\d+ s old\)"):
        for _ in range(10):
            env.step(np.array([0.5, 0, 0, 0, 0, 0, 0], np.float32))
    assert np.abs(world.joint_velocities).max() < 1e-3
    faults.stalled_views.clear()
    env.reset(seed=0)
    *_, info = env.step(REST)
    assert info["timestamp"] - info["image_timestamps"]["wrist"] < 0.02
    env.close()


def test_a_short_stall_is_waited_out_and_reported_as_overrun() -> None:
    faults = SimFaults()
    env = make_robot_env(PIXELS, faults=faults)
    env.reset(seed=0)
    clock: Any = env.robot.clock
    camera = env.robot.cameras[0]
    read, broken_until = camera.read, clock.now() + 0.75

    def flaky() -> Any:
        if clock.now() < broken_until:
            faults.stalled_views.add(camera.name)
        else:
            faults.stalled_views.clear()
        return read()

    camera.read = flaky  # type: ignore[method-assign]
    infos = [env.step(REST)[4] for _ in range(8)]
    assert any(info["overrun"] for info in infos) and env.overruns > 0
    assert all(info["timestamp"] - info["image_timestamps"][camera.name] <= 0.3 for info in infos)
    env.close()


def test_a_fault_in_mid_step_ends_the_episode() -> None:
    faults = SimFaults()
    env = make_robot_env(PIXELS, faults=faults)
    env.reset(seed=0)
    faults.stalled_views.add("wrist")
    with pytest.raises(RobotFault, match="stale_frame"):
        for _ in range(10):
            env.step(REST)
    faults.stalled_views.clear()
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(REST)
    env.close()


def test_an_action_on_an_old_observation_is_refused_and_ends_the_episode() -> None:
    env = make_robot_env(STATE)
    env.reset(seed=0)
    clock: Any = env.robot.clock
    env.hold()
    clock.advance(0.7)  # a slow policy
    env.step(REST)
    env.hold()
    clock.advance(0.8)
    arm: Any = env.robot._arm
    sent = []
    arm.send_joints = lambda joints, duration: sent.append(joints)
    with pytest.raises(
        RobotFault, match=r"stale_observation: expected an action within 0\.75 s .* after 0\.80 s"
    ):
        env.step(np.array([1, 0, 0, 0, 0, 0, 0], np.float32))
    assert env.robot._governor.state is GovernorState.FAULTED and not sent, (
        "nothing moves before it is acknowledged"
    )
    del arm.send_joints
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(REST)
    env.reset(seed=1)
    env.step(REST)


def test_leaving_the_robot_always_holds_it() -> None:
    env = make_robot_env(STATE)
    env.reset(seed=0)
    world: Any = env.workcell.world  # type: ignore[attr-defined]
    with pytest.raises(KeyError), env.robot:
        env.robot.act(np.array([1, 0, 0, 0, 0, 0, 0], np.float32))
        raise KeyError("anything")
    stopped = world.joint_positions
    env.robot.clock.sleep_until(env.robot.clock.now() + 1.0)
    world.advance()
    assert np.abs(world.joint_positions - stopped).max() < 1e-4
    with pytest.raises(RobotFault, match="locked"):
        env.robot._governor.command(
            np.zeros(7), env.robot.spec.action_scale, env.robot._arm.state, env.robot.clock.now()
        )


def test_a_failed_connection_releases_what_was_open() -> None:
    env = make_robot_env(PIXELS)

    def fail() -> None:
        raise DeviceError("no such camera")

    closed = []
    broken, other = env.robot.cameras
    broken.connect = fail  # type: ignore[method-assign]
    broken.close = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    close = other.close
    other.close = lambda: closed.append(close())  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError), env.robot:
        pass
    assert closed == [None]
    with pytest.raises(DeviceError, match="not connected"):
        env.robot._arm.state()


def test_a_robot_that_nobody_allowed_to_move_does_not() -> None:
    env = make_robot_env(STATE)
    env.robot._allowed = env.robot._auto_unlock = False
    env.robot._governor.lock()
    with pytest.raises(RobotFault, match="allow_motion"):
        env.reset(seed=0)
    with pytest.raises(RobotFault, match="locked"):
        env.robot.act(REST)
    env.robot.allow_motion()
    env.reset(seed=0)
    env.step(REST)
