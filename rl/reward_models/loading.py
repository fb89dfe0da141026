"""Composition root of reward models: from configs and files to a classifier with its trunk, or to a judge."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from reward_model.classifier import ClassifierConfig, SuccessClassifier, TrunkKind
from reward_model.dataset import KnownClip, Origin
from reward_model.evaluate import score_clips, thresholds_of, trials_of
from reward_model.interface import RewardModel, RewardModelError, check_known
from reward_model.judge import Judge, check_answerable
from reward_model.judge_http import HttpBackend
from reward_model.judge_local import LocalBackend
from reward_model.labels import LabelConfig, Thresholds, stricter
from rl.agent.backbones import FrozenTrunk, lpips_alexnet_trunk, torchvision_trunk
from rl.replay.schema import StoreSchema
from rl.reward_models.config import JudgeKind, JudgeSource


def make_trunk(config: ClassifierConfig) -> FrozenTrunk:
    """The frozen trunk that a config names; raises BackboneError where its weights are missing."""
    weights = Path(config.weights) if config.weights else None
    if config.backbone == "lpips_alexnet":
        return lpips_alexnet_trunk(weights)
    return torchvision_trunk(config.backbone, weights)


def make_classifier(
    config: ClassifierConfig,
    task: str,
    views: Mapping[str, tuple[int, int]],
    *,
    seed: int,
    device: torch.device,
    version: int,
) -> SuccessClassifier:
    """An untrained classifier on its trunk."""
    frozen: nn.Module | None = make_trunk(config).to(device) if config.trunk is TrunkKind.FROZEN else None
    return SuccessClassifier(config, task, views, seed=seed, device=device, frozen=frozen, version=version)


def load_classifier(path: Path, device: torch.device) -> SuccessClassifier:
    """A trained classifier on its trunk; raises RewardModelError, BackboneError."""
    return SuccessClassifier.load(path, device=device, make_trunk=lambda c: make_trunk(c).to(device))


def load_for_labels(
    path: Path, task: str, proprio_names: Sequence[str], device: torch.device
) -> tuple[SuccessClassifier, Thresholds]:
    """A trained classifier of `task` with its thresholds; raises RewardModelError where it cannot label that.

    proprio_names: what the robot reads.
    """
    model = load_classifier(path, device)
    if model.task != task:
        raise RewardModelError(f"{path}: judges {model.task!r}, this run is about {task!r}; train one for it")
    if model.thresholds is None:
        raise RewardModelError(
            f"{path}: has no thresholds, too little was held out; train it with more episodes"
        )
    try:
        check_known(model.readings, proprio_names)
    except RewardModelError as error:
        raise RewardModelError(f"{path}: needs what this robot does not read; {error}") from error
    return model, model.thresholds


def make_judge(source: JudgeSource, schema: StoreSchema, device: torch.device) -> Judge:
    """The judge of the task that a store holds; raises RewardModelError."""
    check_answerable(schema.instruction)
    match source.kind:
        case JudgeKind.HTTP:
            backend: HttpBackend | LocalBackend = HttpBackend(
                source.endpoint, key=os.environ.get(source.key_variable)
            )
        case JudgeKind.LOCAL:
            backend = LocalBackend.load(Path(source.folder or ""), device)
        case JudgeKind.NONE:
            raise RewardModelError("judge.kind=none: expected http or local")
    return Judge(
        backend,
        source.ask,
        task=schema.task,
        instruction=schema.instruction,
        views=schema.views,
        version=source.version,
    )


def choose(model: RewardModel, clips: list[KnownClip], config: LabelConfig) -> Thresholds:
    """Thresholds that keep their bounds on real clips and, where there are any, on generated ones, each alone."""
    by_origin = [[clip for clip in clips if clip.origin is origin] for origin in Origin]
    chosen = [
        thresholds_of(trials_of(score_clips(model, mine, config.hold_frames)), config)
        for mine in by_origin
        if mine
    ]
    return stricter(chosen)
