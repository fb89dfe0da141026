"""A simulated cell with demonstrations of press, what imagines video in it, and a policy that pushes at the walls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rl.build import make_schema
from rl.demonstrations import record_demonstrations
from rl.imagination.clip import Origin
from rl.imagination.imagine import Imagination, ImaginationConfig
from rl.imagination.proprio import ProprioConfig, fit_proprio
from rl.imagination.starts import StartConfig, StartPool
from rl.imagination.video import VideoImaginer
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from rl.schemas import CorrectionConfig, DemosConfig
from rl.world_models.data import make_spec
from robot.env import RobotEnv
from robot.factory import RobotConfig, make_robot_env
from robot.types import Float32, Observation
from worldmodel.baselines import CopyLastFrame
from worldmodel.counterfactual import Motion


@dataclass(frozen=True)
class Cell:
    """A simulated cell with demonstrations to imagine from."""

    env: RobotEnv
    pool: StartPool

    @property
    def model(self) -> CopyLastFrame:
        return CopyLastFrame(make_spec(self.pool.schema, context_frames=3, max_horizon=12))

    def imagination(
        self, model: CopyLastFrame | None = None, max_risk: float = 1.0, **config: object
    ) -> Imagination:
        proprio = fit_proprio([self.pool.readers[Origin.DEMO]], ProprioConfig())
        motion = Motion.of(self.env.robot.spec, self.env.robot.frames.action)
        imaginer = VideoImaginer(
            model or self.model, proprio, self.pool, motion, control_period=0.1, max_risk=max_risk
        )
        settings = ImaginationConfig(**config)  # type: ignore[arg-type]
        return Imagination(self.pool, imaginer, motion, settings, np.random.default_rng(0))


@contextmanager
def recorded(root: Path, episodes: int = 6) -> Iterator[Cell]:
    """So many demonstrations in `root`, and nothing of the robot's yet."""
    env = make_robot_env(RobotConfig(task="press", image_px=32), seed=0)
    demos = DemosConfig(episodes=episodes, noise=0.3)
    list(record_demonstrations(root / "demo", env, demos, CorrectionConfig(), seed=0))
    with StoreWriter(root / "real", make_schema(env)):
        pass
    yield Cell(env, StartPool(StoreReader(root / "demo"), StoreReader(root / "real"), StartConfig()))
    env.close()


class Still:
    """A policy that pushes beyond every wall."""

    def act_batch(self, observations: Sequence[Observation], *, noise: Float32 | None = None) -> Float32:
        assert all(set(observation.images) == {"wrist", "side"} for observation in observations)
        return np.tile(np.array([0, 0, 1, 0, 0, 0, 0], np.float32), (len(observations), 1))
