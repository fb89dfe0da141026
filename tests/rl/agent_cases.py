"""Small specs, batches and observations for the agent's tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rl.agent.encoders import EncoderConfig
from rl.agent.sac import SACAgent, SACConfig
from rl.agent.spec import AgentSpec, GripperControl
from rl.batch import Batch
from robot.types import Observation, ProprioSpec, Source

CPU = torch.device("cpu")
VIEWS = {"front": (24, 24), "wrist": (24, 24)}
TINY = EncoderConfig(channels=(4, 8), kernels=(5, 3), strides=(4, 2), paddings=(2, 1), feature_dim=16)


def proprio_spec(dim: int = 3, fine: float = 0.003) -> ProprioSpec:
    names = [f"x{index}" for index in range(dim)]
    ones = np.ones(dim, np.float32)
    return ProprioSpec(names, 0.1 * ones, 0.5 * ones, np.float32(fine) * (np.arange(dim) < 2))


def make_spec(gripper: GripperControl = GripperControl.DISCRETE, **changes: Any) -> AgentSpec:
    return replace(AgentSpec(dict(VIEWS), proprio_spec(), gripper), **changes)


def make_agent(spec: AgentSpec | None = None, seed: int = 0, **changes: Any) -> SACAgent:
    settings: dict[str, Any] = {"encoder": TINY, "hidden": 16, **changes}
    return SACAgent(SACConfig(**settings), spec or make_spec(), device=CPU, seed=seed)


def make_batch(spec: AgentSpec | None = None, rows: int = 8, seed: int = 0, **changes: Any) -> Batch:
    spec, rng = spec or make_spec(), np.random.default_rng(seed)

    def images() -> dict[str, np.ndarray]:
        return {view: rng.integers(0, 256, (rows, *size, 3), np.uint8) for view, size in spec.views.items()}

    def proprio() -> np.ndarray:
        return rng.normal(size=(rows, spec.proprio.dim)).astype(np.float32)

    action = rng.uniform(-1, 1, (rows, 7)).astype(np.float32)
    action[:, 6] = rng.integers(-1, 2, rows)
    batch = Batch(
        images=images(),
        next_images=images(),
        proprio=proprio(),
        next_proprio=proprio(),
        action=action,
        steps=np.ones(rows, np.uint8),
        reward=rng.random(rows).astype(np.float32),
        terminated=np.arange(rows) % 4 == 0,
        truncated=np.arange(rows) % 4 == 1,
        intervened=np.zeros(rows, bool),
        gripper_changed=(np.arange(rows) % 2).astype(np.float32),
        source=np.full(rows, Source.REAL, np.uint8),
        weight=np.ones(rows, np.float32),
        goal_proprio=proprio(),
        goal_known=np.arange(rows) % 4 != 3,
        shares={"online": rows},
    )
    return replace(batch, **changes)


def make_observation(spec: AgentSpec | None = None, seed: int = 0) -> Observation:
    spec, rng = spec or make_spec(), np.random.default_rng(seed)
    images = {view: rng.integers(0, 256, (*size, 3), np.uint8) for view, size in spec.views.items()}
    return Observation(images, rng.normal(size=spec.proprio.dim).astype(np.float32), 0.0)
