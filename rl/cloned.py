"""A policy that `groundhog clone-policy` left behind, and whether a robot can run it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rl.agent.spec import AgentSpec, GripperControl
from rl.build import make_schema
from rl.config import ConfigError
from rl.replay.schema import StoreSchema
from robot.arm_env import ArmEnv
from robot.tasks import GripperMode

RESULT = "cloning.json"  # written last: where it is, the policy is complete
CONFIG = "config.yaml"
RECORDED = "recorded.json"  # the schema of the store from which it was cloned


def is_cloned(path: Path) -> bool:
    """`path` holds a cloned policy, and not a run."""
    return (path / RESULT).exists()


def check_fits(path: Path, spec: AgentSpec, env: ArmEnv) -> None:
    """Raise ConfigError unless `env` shows the policy in `path` what it was cloned from, and executes what it commands.

    Views and their sizes, readings, frames, rates and the scale of the actions have to be equal; the task need not be.
    """
    given = make_schema(env)
    recorded = StoreSchema.load(path / RECORDED)
    wanted = replace(recorded, task=given.task, instruction=given.instruction, views=spec.views)
    difference = wanted.difference(given)
    if difference is not None:
        name, mine, theirs = difference
        raise ConfigError(
            f"{path}: {name} differs: the policy was cloned from {mine!r}, this robot has {theirs!r}; set robot.* to "
            f"what recorded `{recorded.task}`, or clone from data of this robot"
        )
    if spec.gripper is not GripperControl.FIXED and env.facts.gripper_mode is GripperMode.FIXED:
        raise ConfigError(
            f"{path}: the policy commands the gripper, which task {given.task} leaves alone; choose another robot.task="
        )
    foreign = sorted(set(spec.active) - set(env.facts.active))
    if foreign:
        raise ConfigError(
            f"{path}: the policy moves entries {foreign} of the action, which this robot locks; it allows "
            f"{list(env.facts.active)}"
        )
