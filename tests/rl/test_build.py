"""What an environment tells the agent and the store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rl.agent.spec import GoalOffset, GoalUnit, GripperControl
from rl.build import goal_offsets, make_spec
from robot.factory import ObsKind, RobotConfig, make_robot_env, make_task


def test_goal_offsets_find_their_proprio_entry_and_unit() -> None:
    spec = replace(make_task("press").spec, goal={"ee_rz": (0.15, 0.06), "ee_y": (0.03, 0.003)})
    assert goal_offsets(spec) == (
        GoalOffset(5, GoalUnit.RADIAN, 0.15, 0.06),
        GoalOffset(1, GoalUnit.METRE, 0.03, 0.003),
    )


@pytest.mark.parametrize(("task", "names"), [("press", "ee_x ee_y ee_z"), ("insert", "ee_x ee_y ee_rz")])
def test_the_agent_learns_of_the_goal_and_leaves_a_fixed_gripper_alone(task: str, names: str) -> None:
    env = make_robot_env(RobotConfig(task=task, obs=ObsKind.STATE))
    spec = make_spec(env, GripperControl.DISCRETE)
    assert [spec.proprio.names[entry.index] for entry in spec.goal] == names.split()
    assert spec.gripper is GripperControl.FIXED
