"""ForeignEnv: somebody else's environment keeps our contract, and says in words where it does not."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from robot.clock import VirtualClock
from robot.factory import (
    ObsKind,
    RobotConfig,
    RobotKind,
    make_corrector,
    make_demonstrator,
    make_env,
    make_robot_env,
)
from robot.foreign import ForeignEnv, ForeignTask
from robot.frames import ProprioFrame
from robot.interfaces import DeviceError, RobotFault, TeleopCommand, TeleopEvent
from robot.tasks import GripperMode
from robot.teleop.scripted import ScriptedTeleop
from robot.wrappers import HumanIntervention
from tests.robot.foreign_arm import Gantry, make_task

HERE = "tests.robot.foreign_arm"
STATE = RobotConfig(
    kind=RobotKind.FOREIGN, foreign=f"{HERE}:make_task", task="gantry", obs=ObsKind.STATE, views=["top"]
)
PIXELS = replace(STATE, obs=ObsKind.PIXELS)
REST = np.zeros(7, np.float32)


def make(config: RobotConfig = STATE) -> tuple[ForeignEnv, Any]:
    env = make_env(config)
    assert isinstance(env, ForeignEnv)
    return env, env.task.env


def changed(**changes: Any) -> tuple[ForeignEnv, Any]:
    task = replace(make_task(STATE), **changes)
    return ForeignEnv(task, VirtualClock(), 0.1), task.env


@pytest.mark.parametrize("config", [STATE, PIXELS])
def test_gymnasium_contract(config: RobotConfig) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the proprio vector has no natural bounds
        check_env(make_env(config), skip_render_check=True)


def test_observations_and_facts() -> None:
    env, gantry = make(PIXELS)
    values, info = env.reset(seed=3)
    assert env.proprio_spec.names == ("jaw_x", "jaw_y", "jaw_z", "gap", "gripper_command")
    np.testing.assert_array_equal(values["proprio"], np.array([0, 0, 0, 1, 1], np.float32))
    assert values["images"]["top"].shape == (32, 32, 3) and values["images"]["top"].flags.c_contiguous
    assert info == {"timestamp": 0.0, "image_timestamps": {"top": 0.0}}
    assert env.facts.metadata == {"control_hz": 10.0, "maker": "nobody here"}
    *_, info = env.step(REST)
    assert (info["timestamp"], info["period"], info["overrun"]) == (0.1, 0.1, False)
    assert len(gantry.actions) == 1


def test_the_executed_action_is_what_moved_it() -> None:
    env, gantry = make()
    env.reset(seed=0)
    *_, info = env.step(np.array([2.0, -0.5, 0, 0.7, 0, 0, 0.2], np.float32))
    # Clipped; nothing of what it cannot turn; a weak gripper entry keeps the jaw open.
    np.testing.assert_allclose(info["action"], [1, -0.5, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(gantry.actions[-1], [3, -1.5, 0, -1])
    assert info["requested_action"][0] == 2.0 and info["clipped"] == ["action"]
    gripper = []
    for entry in (-0.6, 0.0, -1.0, 0.9):
        values, _, _, _, info = env.step(np.array([0, 0, 0, 0, 0, 0, entry], np.float32))
        gripper.append((info["action"][6], values["proprio"][-1], info["gripper_changed"]))
    assert gripper == [(-1, -1, True), (0, -1, False), (-1, -1, False), (1, 1, True)]
    assert [action[3] for action in gantry.actions[1:]] == [1, 1, 1, -1]


def test_a_fixed_gripper_is_left_alone() -> None:
    env, gantry = changed(gripper_mode=GripperMode.FIXED)
    values, _ = env.reset(seed=0)
    assert len(values["proprio"]) == env.proprio_spec.dim == 7
    *_, info = env.step(np.ones(7, np.float32))
    assert info["action"][6] == gantry.actions[-1][3] == 0.0 and not info["gripper_changed"]


@pytest.mark.parametrize("bad", [np.full(7, np.nan), np.zeros(4)])
def test_an_action_that_is_none_does_not_reach_it(bad: Any) -> None:
    env, gantry = make()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"action: expected \(7,\) finite"):
        env.step(bad)
    assert not gantry.actions


def test_bad_feedback_is_a_named_fault_until_the_next_reset() -> None:
    env, gantry = make()
    env.reset(seed=0)
    gantry.broken = lambda values: values.update(jaw=np.array([0.0, np.nan, 0.0]))
    with pytest.raises(RobotFault, match=r"nan_feedback: gantry: .*\['jaw_y', 'mark_y'\]"):
        env.step(REST)
    gantry.broken = lambda values: None
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        env.step(REST)
    env.reset(seed=0)
    env.step(REST)


@pytest.mark.parametrize(
    ("breakage", "message"),
    [
        (lambda values: values.pop("gap"), r"gantry: no 'gap' in its observation, which has \['jaw', 'mark', 'top'\]"),
        (lambda values: values.update(gap=np.zeros(2)), r"expected a proprio of \(4,\), .* got \(5,\)"),
        (lambda values: values.update(top=np.zeros((3, 8, 8))), r"images\[top\] of \(32, 32, 3\) uint8, got \(8, 8"),
    ],
)  # fmt: skip
def test_an_observation_of_another_form_is_named(breakage: Any, message: str) -> None:
    env, gantry = make(PIXELS)
    gantry.broken = breakage
    with pytest.raises(DeviceError, match=message):
        env.reset(seed=0)


def test_a_view_that_is_not_there_is_named() -> None:
    env, _ = changed(views={"left": (32, 32)})
    with pytest.raises(DeviceError, match=r"images\[left\] .* got only \[\]"):
        env.reset(seed=0)


def test_no_word_of_success_is_not_a_failure() -> None:
    env, gantry = make()
    env.reset(seed=0)
    gantry.told = {"score": 1.0}
    with pytest.raises(DeviceError, match=r"no 'is_grasped', it has \['score'\]; name the entry"):
        env.step(REST)


def test_actions_that_do_not_fit_are_found_at_once() -> None:
    with pytest.raises(DeviceError, match=r"its actions are \(4,\), ForeignTask.act made \(7,\)"):
        changed(act=lambda action: action)


def test_success_counts_once_it_has_held() -> None:
    env, _ = make()
    expert = make_demonstrator(env, np.random.default_rng(0), 0.0)
    env.reset(seed=1)
    expert.reset()
    ends = []
    while not ends or not (ends[-1][1] or ends[-1][2]):
        _, reward, terminated, truncated, info = env.step(expert.act())
        ends.append((reward, terminated, truncated, info["success"]))
    assert ends[-1] == (1.0, True, False, True) and ends[-2] == (0.0, False, False, False)
    with pytest.raises(RuntimeError, match="the episode is over"):
        env.step(REST)


@pytest.mark.parametrize(
    ("ends", "told", "expected"),
    [
        ((True, False), False, (0.0, True, False)),  # a failure of its own
        ((True, False), True, (1.0, True, False)),  # it ends at the first success, and cannot hold it
        ((False, True), False, (0.0, False, True)),  # a time limit of its own
    ],
)
def test_its_own_ends_are_kept_apart(ends: Any, told: bool, expected: tuple[float, bool, bool]) -> None:
    env, gantry = make()
    env.reset(seed=0)
    gantry.ends, gantry.told = ends, {"is_grasped": told}
    _, *end, info = env.step(REST)
    assert tuple(end) == expected and info["success"] == (expected[0] == 1.0)


def test_the_time_limit_truncates() -> None:
    env, _ = changed(max_steps=3)
    env.reset(seed=0)
    assert [env.step(REST)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


def test_seeds() -> None:
    marks = [make_env(STATE, seed=seed).reset()[0]["proprio"] for seed in (4, 4, 5)]
    np.testing.assert_array_equal(marks[0], marks[1])
    assert np.abs(marks[0] - marks[2]).max() > 1e-3
    env, _ = make()
    first = env.reset(seed=9)[0]["proprio"]
    assert np.abs(env.reset()[0]["proprio"] - first).max() > 1e-3
    np.testing.assert_array_equal(env.reset(seed=9)[0]["proprio"], first)


def test_a_slow_step_is_an_overrun() -> None:
    clock = VirtualClock()
    env = ForeignEnv(make_task(STATE), clock, 0.1)
    env.reset(seed=0)
    env.task.env.broken = lambda values: clock.advance(0.25)  # type: ignore[attr-defined]
    assert [(info["period"], info["overrun"]) for *_, info in (env.step(REST),)] == [(0.25, True)]


def test_a_person_can_take_over() -> None:
    env, gantry = make()
    hand = np.array([0, 1.0, 0, 0, 0, 0])
    commands = [
        TeleopCommand(delta=hand, gripper=-1.0, engaged=True),
        TeleopCommand(events=(TeleopEvent.FAILURE,)),
    ]
    led = HumanIntervention(env, ScriptedTeleop(commands))
    led.reset(seed=0)
    *_, info = led.step(REST)
    assert info["intervened"]
    np.testing.assert_allclose(gantry.actions[-1], [0, 3, 0, 1])
    _, reward, terminated, _, info = led.step(REST)
    assert terminated and reward == 0.0 and not info["success"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"foreign": "foreign_arm"}, "expected <module>:<function>"),
        (
            {"foreign": "no_such_arm:make_task"},
            "cannot import it from .*No module named 'no_such_arm'.*run from",
        ),
        ({"foreign": f"{HERE}:make_tusk"}, "has no function make_tusk"),
        ({"foreign": f"{HERE}:make_nothing"}, "expected a ForeignTask, got Gantry"),
        ({"task": "crane"}, "expected robot.task=crane with views .*, got task gantry"),
        (
            {"obs": ObsKind.PIXELS, "views": ["side"]},
            r"with views \['side'\], got task gantry with views \['top'\]",
        ),
    ],
)
def test_what_is_asked_for_has_to_be_there(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        make_env(replace(STATE, **change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"foreign": None}, r"robot.foreign=None: expected <module>:<function> with robot.kind=foreign"),
        ({"kind": RobotKind.SIM, "task": "press"}, "with robot.kind=foreign, none without"),
        ({"proprio_frame": ProprioFrame.RESET}, "has frames of its own"),
    ],
)
def test_the_keys_belong_together(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(STATE, **change)


def test_nobody_demonstrates_or_corrects_who_is_not_there() -> None:
    env, _ = make(replace(STATE, foreign=f"{HERE}:make_without_expert"))
    with pytest.raises(ValueError, match=r"gantry: it brings no scripted demonstrator.*demos\.path="):
        make_demonstrator(env, np.random.default_rng(0), 0.0)
    with pytest.raises(ValueError, match="simulated cell"):
        make_corrector(env, np.random.default_rng(0))
    with pytest.raises(ValueError, match="no robot of ours"):
        make_robot_env(STATE)


def test_a_goal_has_to_be_a_pose_in_the_proprio() -> None:
    with pytest.raises(ValueError, match=r"ForeignTask\.goal: expected entries of the tool's pose"):
        replace(make_task(STATE), goal={"jaw_x": (0.1, 0.01)})
    with pytest.raises(ValueError, match="1 <= hold_steps <= max_steps"):
        ForeignTask(**{**vars(make_task(STATE)), "hold_steps": 21})


def test_closing_closes_it() -> None:
    env, gantry = make()
    closed: list[bool] = []
    gantry.close = lambda: closed.append(True)
    env.close()
    assert closed == [True] and isinstance(gantry, Gantry)
