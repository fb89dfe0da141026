"""Builds agents, stores and samplers from their configs; the one place that knows how these parts fit together."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym

from rl.agent.spec import AgentSpec, GoalOffset, GoalUnit, GripperControl
from rl.replay.mixer import Mixer
from rl.replay.reader import StoreReader
from rl.replay.sampler import Filter, PartConfig, TransitionSampler
from rl.replay.schema import StoreSchema
from rl.replay.writer import StoreWriter
from robot.env import RobotEnv
from robot.tasks import PROPRIO_NAMES, ROTATION_NAMES, GripperMode, TaskSpec


def views_of(env: RobotEnv) -> dict[str, tuple[int, int]]:
    """view -> (H, W) of an environment; empty for state observations."""
    assert isinstance(env.observation_space, gym.spaces.Dict)
    images = env.observation_space.spaces.get("images")
    if images is None:
        return {}
    assert isinstance(images, gym.spaces.Dict)
    sizes = {view: box.shape for view, box in images.spaces.items()}
    return {view: (shape[0], shape[1]) for view, shape in sizes.items() if shape is not None}


def make_spec(env: RobotEnv, gripper: GripperControl) -> AgentSpec:
    """What an agent for this environment sees and controls; a fixed gripper is left alone whatever `gripper` says."""
    fixed = env.robot.spec.gripper_mode is GripperMode.FIXED
    return AgentSpec(
        views=views_of(env),
        proprio=env.proprio_spec,
        gripper=GripperControl.FIXED if fixed else gripper,
        goal=goal_offsets(env.robot.spec),
    )


def goal_offsets(spec: TaskSpec) -> tuple[GoalOffset, ...]:
    """The tool-pose entries on which the task's success hinges, by their place in the proprio."""
    return tuple(
        GoalOffset(
            index=PROPRIO_NAMES.index(name),
            unit=GoalUnit.RADIAN if name in ROTATION_NAMES else GoalUnit.METRE,
            coarse=coarse,
            fine=fine,
        )
        for name, (coarse, fine) in spec.goal.items()
    )


def make_schema(env: RobotEnv) -> StoreSchema:
    """What a store of this environment holds; two stores mix only if all of it is equal."""
    spec, timing = env.robot.spec, env.robot.timing
    return StoreSchema(
        task=spec.name,
        instruction=spec.instruction,
        views=views_of(env),
        proprio=env.proprio_spec,
        metadata={
            "control_hz": round(1.0 / timing.control_period, 6),
            "action_frame": env.robot.frames.action.value,
            "proprio_frame": env.robot.frames.proprio.value,
            "action_scale_m": spec.action_scale.position,
            "action_scale_rad": spec.action_scale.rotation,
        },
    )


def make_mixer(real: Path, demo: Path, demo_share: str, online_share: str) -> Mixer:
    """The two shares: `online` is all of the real store; `demo` is demonstrations and every corrected step of it."""
    online, demos = StoreReader(real), StoreReader(demo)
    corrections = PartConfig(online, filter=Filter.INTERVENED_ONLY)
    return Mixer(
        {
            demo_share: TransitionSampler([PartConfig(demos), corrections]),
            online_share: TransitionSampler([PartConfig(online)]),
        }
    )


def copy_episodes(source: Path, writer: StoreWriter) -> int:
    """Copy every episode that may be sampled into another store; raises SchemaMismatchError where they differ."""
    reader = StoreReader(source)
    writer.schema.check_compatible(reader.schema)
    kept = [info for info in reader.episodes() if not info.discarded]
    for info in kept:
        episode = reader.episode(info.episode)
        writer.begin_episode(episode.observation(0))
        for transition in episode.transitions():
            writer.add(transition)
        writer.end_episode(info.outcome)
    return len(kept)
