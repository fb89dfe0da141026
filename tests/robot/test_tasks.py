"""TaskSpec: the entries of the tool's pose on which a task's success hinges."""

from dataclasses import replace

import pytest

from robot.factory import make_task


@pytest.mark.parametrize("wrong", [{"lag_x": (0.1, 0.01)}, {"ee_x": (0.1, 0.0)}, {"ee_q": (0.1, 0.01)}])
def test_a_goal_names_pose_entries_with_two_scales(wrong: dict[str, tuple[float, float]]) -> None:
    spec = make_task("press").spec
    with pytest.raises(ValueError, match=rf"TaskSpec\.goal: expected entries of .*got {next(iter(wrong))}"):
        replace(spec, goal=wrong)
    assert not replace(spec, goal={}).goal
