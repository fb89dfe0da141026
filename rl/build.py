"""Builds agents, stores and samplers from their configs; the one place that knows how these parts fit together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import gymnasium as gym

from rl.agent.spec import AgentSpec, GoalOffset, GoalUnit, GripperControl
from rl.replay.reader import ONE_STEP, Lookahead, StoreReader
from rl.replay.sampler import Filter, PartConfig, TransitionSampler
from rl.replay.schema import StoreSchema
from robot.arm_env import ArmEnv
from robot.tasks import ROTATION_NAMES, GripperMode


def views_of(env: ArmEnv) -> dict[str, tuple[int, int]]:
    """view -> (H, W) of an environment; empty for state observations."""
    assert isinstance(env.observation_space, gym.spaces.Dict)
    images = env.observation_space.spaces.get("images")
    if images is None:
        return {}
    assert isinstance(images, gym.spaces.Dict)
    sizes = {view: box.shape for view, box in images.spaces.items()}
    return {view: (shape[0], shape[1]) for view, shape in sizes.items() if shape is not None}


def make_spec(env: ArmEnv, gripper: GripperControl) -> AgentSpec:
    """What an agent for this environment sees and controls; a fixed gripper is left alone whatever `gripper` says."""
    facts = env.facts
    fixed = facts.gripper_mode is GripperMode.FIXED
    return AgentSpec(
        views=views_of(env),
        proprio=env.proprio_spec,
        gripper=GripperControl.FIXED if fixed else gripper,
        active=facts.active,
        goal=goal_offsets(facts.goal, env.proprio_spec.names),
    )


def goal_offsets(
    goal: Mapping[str, tuple[float, float]], proprio_names: Sequence[str]
) -> tuple[GoalOffset, ...]:
    """The tool-pose entries on which the task's success hinges, by their place in the proprio."""
    return tuple(
        GoalOffset(
            index=proprio_names.index(name),
            unit=GoalUnit.RADIAN if name in ROTATION_NAMES else GoalUnit.METRE,
            coarse=coarse,
            fine=fine,
        )
        for name, (coarse, fine) in goal.items()
    )


def make_schema(env: ArmEnv) -> StoreSchema:
    """What a store of this environment holds; two stores mix only if all of it is equal."""
    facts = env.facts
    return StoreSchema(
        task=facts.task,
        instruction=facts.instruction,
        views=views_of(env),
        proprio=env.proprio_spec,
        metadata=facts.metadata,
    )


def make_samplers(
    real: Path, demo: Path, demo_share: str, online_share: str, ahead: Lookahead = ONE_STEP
) -> dict[str, TransitionSampler]:
    """The real shares: `online` is all of the real store; `demo` is demonstrations and every corrected step of it."""
    online, demos = StoreReader(real), StoreReader(demo)
    corrections = PartConfig(online, filter=Filter.INTERVENED_ONLY)
    return {
        demo_share: TransitionSampler([PartConfig(demos), corrections], ahead),
        online_share: TransitionSampler([PartConfig(online)], ahead),
    }
