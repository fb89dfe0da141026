"""`groundhog evaluate-reward-model`: how far a reward model can be trusted, on episodes that it has never seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from reward_model.dataset import KnownClip, hold_out
from reward_model.evaluate import report, score_clips
from reward_model.interface import RewardModel, RewardModelError
from reward_model.labels import Thresholds
from reward_model.reliability import draw_reliability
from rl import command
from rl.config import ConfigError, load
from rl.reward_models.config import EvaluateRewardModelConfig, JudgeKind
from rl.reward_models.data import KnownEpisode, read_episodes
from rl.reward_models.loading import choose, load_classifier, make_judge
from rl.reward_models.replays import replays
from rl.reward_models.report import describe, save_false_positives, save_rows
from rl.schemas import check_device
from worldmodel.factory import load_world_model


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("evaluate-reward-model", argv, _evaluate)


def _evaluate(overrides: list[str]) -> int:
    config = load("evaluate-reward-model", overrides)
    assert isinstance(config, EvaluateRewardModelConfig)
    check_device(config.device)
    if config.model is None and config.judge.kind is JudgeKind.NONE:
        raise ConfigError("nothing to evaluate: expected model=<file>, or a judge with judge.kind=http|local")
    console, device = Console(), torch.device(config.device)
    episodes = read_episodes(config.data)
    model: RewardModel
    if config.model is not None:
        model = classifier = load_classifier(Path(config.model), device)
        unseen = _unseen(episodes, classifier.data)
        thresholds = classifier.thresholds or Thresholds(None, None)
        console.print(f"{len(episodes) - len(unseen)} episodes left out: the model has seen them")
        clips = _clips(config, unseen, device)
    else:
        model = make_judge(config.judge, episodes[0].reader.schema, device)
        clips, chosen_on = hold_out(_clips(config, episodes, device), config.hold_out_every)
        thresholds = choose(model, chosen_on, config.labels)
    scored = score_clips(model, clips, thresholds.hold_frames)
    rng = np.random.default_rng([config.seed, 2])
    kinds = sorted({(clip.task, clip.origin) for clip in clips}, key=lambda kind: (kind[0], kind[1].value))
    reports = [report(scored, thresholds, task, origin, rng) for task, origin in kinds]
    out = Path(config.out or f"{Path(config.model or 'judge').with_suffix('')}_evaluation")
    save_rows(out / "report.json", model.version, thresholds, reports)
    draw_reliability(out / "reliability.png", reports, thresholds)
    wrong = save_false_positives(out / "false_positives", scored, thresholds)
    console.print(describe(reports, thresholds), soft_wrap=True, highlight=False)
    console.print(f"{out}; {wrong} false positives as clips in {out / 'false_positives'}", soft_wrap=True)
    return 0


def _unseen(episodes: Sequence[KnownEpisode], data: dict[str, list[str]]) -> list[KnownEpisode]:
    seen = {name for names in data.values() for name in names}
    unseen = [episode for episode in episodes if episode.name not in seen]
    if not unseen:
        raise RewardModelError(
            f"data.paths: the model has seen all {len(episodes)} episodes; record others to test it on"
        )
    return unseen


def _clips(
    config: EvaluateRewardModelConfig, episodes: Sequence[KnownEpisode], device: torch.device
) -> list[KnownClip]:
    clips = [episode.clip() for episode in episodes]
    if config.replay.world_model:
        world = load_world_model(Path(config.replay.world_model), device=device)
        clips += replays(world, episodes, config.replay, np.random.default_rng([config.seed, 1]))
    return clips


if __name__ == "__main__":
    raise SystemExit(main())
