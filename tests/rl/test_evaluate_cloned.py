"""`groundhog evaluate` of a cloned policy: on the robot that is named, if it shows what the policy was cloned from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rl import cli
from rl.agent.spec import AgentSpec, GripperControl
from rl.cloned import check_fits
from rl.config import ConfigError
from robot.factory import RobotConfig, make_env

ROBOT = ["robot.image_px=32", "robot.views=[wrist]"]


@pytest.fixture(scope="module")
def cloned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy after two updates, from three demonstrations of the press task."""
    path = tmp_path_factory.mktemp("cloned")
    assert cli.main(["record", f"out={path / 'press'}", *ROBOT, "demos.episodes=3"]) == 0
    small = ["steps=2", "cpu_minutes=null", "batch_size=8", "holdout.every=3", "agent.hidden=8"]
    assert cli.main(["clone-policy", f"data={path / 'press'}", f"out={path / 'policy'}", *small]) == 0
    return path / "policy"


def test_it_acts_on_the_robot_that_is_named(cloned: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    assert cli.main(["evaluate", f"run={cloned}", *ROBOT, "episodes=1", f"out={out}"]) == 0
    result = json.loads(out.read_text())
    assert result["eval/episodes"] == 1 and result["noise"] == 0.0 and result["robot"] == ROBOT
    assert result["updates"] == json.loads((cloned / "cloning.json").read_text())["kept_update"]


@pytest.mark.parametrize(
    ("robot", "message"),
    [
        ([], "is a cloned policy and brings no robot; name it"),
        ([*ROBOT, "robot.image_px=48"], r"views.wrist (height, width) differs"),
        ([*ROBOT, "robot.views=[wrist,side]"], "views differs: the policy was cloned from ['wrist']"),
        ([*ROBOT, "robot.obs=state"], "views differs"),
        ([*ROBOT, "robot.action_frame=tool"], "metadata.action_frame differs"),
        ([*ROBOT, "robot.control_hz=5"], "metadata.control_hz differs"),
        ([*ROBOT, "device=cuda:99"], "use device=cpu"),
    ],
)
def test_a_robot_that_does_not_fit_is_one_line(
    cloned: Path, robot: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", f"run={cloned}", *robot, "episodes=1"]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_a_gripper_or_an_axis_that_the_robot_does_not_move_is_named(cloned: Path) -> None:
    spec = AgentSpec.from_json(json.loads((cloned / "spec.json").read_text()))
    env = make_env(RobotConfig(image_px=32, views=["wrist"]))
    try:
        check_fits(cloned, spec, env)
        with pytest.raises(ConfigError, match="commands the gripper, which task press leaves alone"):
            check_fits(cloned, replace(spec, gripper=GripperControl.DISCRETE), env)
    finally:
        env.close()
