"""How recordings for the two models are led: what a policy meets close to success, contact among it."""

from __future__ import annotations

import numpy as np

from benchmarks.reward_model_data import Kind, Leader
from robot.factory import ObsKind, RobotConfig, make_robot_env
from robot.types import Float32


def led(kind: Kind) -> tuple[list[float], Float32]:
    """The smallest distance from success in each of six episodes, and all actions within 10 cm of it (N, 7)."""
    env = make_robot_env(RobotConfig(task="press", obs=ObsKind.STATE), seed=0)
    nearest, close = [], []
    for episode in range(6):
        env.reset(seed=episode)
        leader, distances, ended = Leader(kind, env, np.random.default_rng(episode)), [], False
        while not ended and len(distances) < 45:
            distances.append(leader._cell.task.progress(leader._cell.world))
            action = leader.act()
            if distances[-1] < 0.1:
                close.append(action)
            _, _, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
        nearest.append(min(distances))
    env.close()
    return nearest, np.stack(close) if close else np.empty((0, 7), np.float32)


def test_near_leads_close_to_success_and_then_leans_on_what_is_there() -> None:
    near, actions = led(Kind.NEAR)
    far, _ = led(Kind.RANDOM)
    assert max(near) < 0.1 < max(far)
    assert len(actions) > 60 and actions[:, 2].mean() < -0.1  # it goes on there, and leans
    assert actions[:, :2].std() > 0.1  # and moves otherwise at random
