"""Fitting a success classifier on clips of known outcome, thresholds included: for the command and for a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from reward_model.classifier import SuccessClassifier
from reward_model.dataset import FrameSampler, KnownClip, hold_out
from reward_model.trainer import RewardTrainer
from rl.reward_models.config import RewardFitConfig
from rl.reward_models.data import KnownEpisode, RewardDataConfig, read_episodes
from rl.reward_models.loading import choose, make_classifier

FINGERPRINTS = "fingerprints"  # in a model's data: of the episodes that it has learned from


def fit_classifier(
    clips: Sequence[KnownClip],
    episodes: Sequence[KnownEpisode],
    config: RewardFitConfig,
    *,
    seed: int,
    device: torch.device,
    version: int,
    say: Callable[[str], None],
) -> SuccessClassifier:
    """A classifier of the clips' task, with its thresholds and the names of the episodes behind both.

    episodes: those that the clips were made of. Of the learned ones the model carries fingerprints too.
    Raises RewardModelError where one of the outcomes is missing.
    """
    learned, held = hold_out(clips, config.hold_out_every)
    model = make_classifier(
        config.classifier,
        clips[0].task,
        episodes[0].reader.schema.views,
        seed=seed,
        device=device,
        version=version,
    )
    frames = FrameSampler(learned, config.trainer.generated_share)
    for metrics in RewardTrainer(model, frames, config.trainer, seed=seed).train():
        step, loss = metrics["reward_model/step"], metrics["reward_model/loss"]
        say(f"step {step:.0f} of {config.trainer.steps}: loss {loss:.4f}")
    model.thresholds = choose(model, held, config.labels)
    names = {clip.episode for clip in learned}
    model.data = {
        "learned": sorted(names),
        "thresholds": sorted({clip.episode for clip in held}),
        FINGERPRINTS: sorted({episode.fingerprint for episode in episodes if episode.name in names}),
    }
    return model


def fit_on_store(
    path: Path,
    out: Path,
    config: RewardFitConfig,
    *,
    seed: int,
    device: torch.device,
    say: Callable[[str], None],
) -> SuccessClassifier:
    """A first version from the episodes of one store, saved as `out`; raises RewardModelError, StoreError."""
    episodes = read_episodes(RewardDataConfig(paths=[str(path)]))
    model = fit_classifier(
        [episode.clip() for episode in episodes],
        episodes,
        config,
        seed=seed,
        device=device,
        version=1,
        say=say,
    )
    model.save(out)
    return model


def summary(out: Path, model: SuccessClassifier) -> str:
    """What was learned from how much, and which thresholds hold."""
    thresholds = model.thresholds
    assert thresholds is not None
    lines = [f"{out}: version {model.version}, {len(model.data['learned'])} episodes learned from"]
    for name, value, count, kind in (
        ("success", thresholds.success, thresholds.negatives, "failures"),
        ("failure", thresholds.failure, thresholds.positives, "successes"),
    ):
        said = "none: too little evidence, nothing will be called so" if value is None else f"{value:.4f}"
        lines.append(f"threshold of {name}: {said} ({count} held-out {kind})")
    return "\n".join(lines)
