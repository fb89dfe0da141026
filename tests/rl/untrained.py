"""A run that has a policy and has learned nothing."""

from __future__ import annotations

from pathlib import Path

import torch

from rl.agent.acting import ActingPolicy
from rl.build import make_spec
from rl.config import load_dict
from rl.runtime.run_dir import RunDir
from robot.factory import make_robot_env


def untrained_run(path: Path) -> RunDir:
    """Of the press task, from state; its policy is version 0."""
    overrides = ["robot.obs=state", "agent.hidden=8", "wandb=disabled"]
    run = RunDir.create(path, load_dict("train", overrides))
    env = make_robot_env(run.config.robot)
    run.spec = make_spec(env, run.config.gripper)
    env.close()
    policy = ActingPolicy(run.config.agent, run.spec, device=torch.device("cpu"), seed=0)
    run.weights().publish(policy.tensors(), updates=1)
    return run
