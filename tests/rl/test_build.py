"""What an environment tells the agent and the store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rl.agent.spec import GoalOffset, GoalUnit, GripperControl
from rl.build import goal_offsets, make_schema, make_spec
from rl.config import load_dict, to_object
from rl.replay.errors import SchemaMismatchError
from robot.factory import ObsKind, RobotConfig, make_robot_env, make_task
from robot.tasks import PROPRIO_NAMES


def test_goal_offsets_find_their_proprio_entry_and_unit() -> None:
    spec = replace(make_task("press").spec, goal={"ee_rz": (0.15, 0.06), "ee_y": (0.03, 0.003)})
    assert goal_offsets(spec.goal, PROPRIO_NAMES) == (
        GoalOffset(5, GoalUnit.RADIAN, 0.15, 0.06),
        GoalOffset(1, GoalUnit.METRE, 0.03, 0.003),
    )


@pytest.mark.parametrize(("task", "names"), [("press", "ee_x ee_y ee_z"), ("insert", "ee_x ee_y ee_rz")])
def test_the_agent_learns_of_the_goal_and_leaves_a_fixed_gripper_alone(task: str, names: str) -> None:
    env = make_robot_env(RobotConfig(task=task, obs=ObsKind.STATE))
    spec = make_spec(env, GripperControl.DISCRETE)
    assert [spec.proprio.names[entry.index] for entry in spec.goal] == names.split()
    assert spec.gripper is GripperControl.FIXED


def test_stores_of_other_frames_do_not_mix() -> None:
    config = to_object(
        load_dict("train", ["robot.action_frame=tool", "robot.proprio_frame=reset", "robot.obs=state"])
    )
    schemas = [make_schema(make_robot_env(robot)) for robot in (RobotConfig(obs=ObsKind.STATE), config.robot)]
    frames = [(schema.metadata["action_frame"], schema.metadata["proprio_frame"]) for schema in schemas]
    assert frames == [("base", "base"), ("tool", "reset")]
    with pytest.raises(SchemaMismatchError, match="action_frame"):
        schemas[0].check_compatible(schemas[1])
