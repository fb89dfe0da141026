"""`groundhog train-reward-model`: a success classifier from stored episodes, with thresholds of bounded error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from reward_model.interface import RewardModelError
from rl import command
from rl.config import load
from rl.reward_models.config import TrainRewardModelConfig
from rl.reward_models.data import read_episodes
from rl.reward_models.fitting import fit_classifier, summary
from rl.reward_models.loading import load_classifier
from rl.reward_models.replays import replays
from rl.schemas import check_device
from worldmodel.factory import load_world_model


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("train-reward-model", argv, _train)


def _train(overrides: list[str]) -> int:
    config = load("train-reward-model", overrides)
    assert isinstance(config, TrainRewardModelConfig)
    check_device(config.device)
    console, out, device = Console(), Path(config.out), torch.device(config.device)
    episodes = read_episodes(config.data)
    tasks = sorted({episode.task for episode in episodes})
    if len(tasks) > 1:
        raise RewardModelError(
            f"data.paths: one reward model judges one task, got {tasks}; train one for each"
        )
    clips = [episode.clip() for episode in episodes]
    if config.replay.world_model:
        world = load_world_model(Path(config.replay.world_model), device=device)
        clips += replays(world, episodes, config.replay, np.random.default_rng([config.seed, 1]))
    model = fit_classifier(
        clips,
        episodes,
        config,
        seed=config.seed,
        device=device,
        version=_next_version(out, tasks[0], device),
        say=lambda text: console.print(text, highlight=False),
    )
    model.save(out)
    console.print(summary(out, model), soft_wrap=True, highlight=False)
    return 0


def _next_version(out: Path, task: str, device: torch.device) -> int:
    """One more than the version that `out` holds; raises RewardModelError where it judges another task."""
    if not out.exists():
        return 1
    before = load_classifier(out, device)
    if before.task != task:
        raise RewardModelError(
            f"out={out}: it judges {before.task}, the data are of {task}; choose another file"
        )
    return before.version + 1


if __name__ == "__main__":
    raise SystemExit(main())
