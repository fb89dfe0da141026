"""Composition root of the world models: from WorldModelConfig, or from a file, to a WorldModel."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import torch

from worldmodel import checkpoint
from worldmodel.baselines import CopyLastFrame, TrainMean
from worldmodel.cosmos import persistence, release
from worldmodel.cosmos.model import CosmosConfig
from worldmodel.edm import EdmConfig, EdmModel
from worldmodel.interface import WorldModel, WorldModelError, WorldModelSpec
from worldmodel.warp_model import FlowWarpConfig, FlowWarpModel


class ModelKind(Enum):
    """Which world model; the values are what checkpoints say."""

    FLOW_WARP = "flow_warp"
    EDM = "edm"
    COSMOS = "cosmos"
    COPY_LAST = "copy_last"
    TRAIN_MEAN = "train_mean"


@dataclass(frozen=True)
class WorldModelConfig:
    """Which model, what it starts from and how far it sees. context_frames, max_horizon: control steps."""

    kind: ModelKind = ModelKind.FLOW_WARP
    context_frames: int = 2
    max_horizon: int = 24
    flow_warp: FlowWarpConfig = field(default_factory=FlowWarpConfig)
    edm: EdmConfig = field(default_factory=EdmConfig)
    cosmos: CosmosConfig = field(default_factory=CosmosConfig)

    def __post_init__(self) -> None:
        if self.context_frames < 1 or self.max_horizon < 1:
            raise ValueError(
                f"world model: expected context_frames and max_horizon >= 1, got {self.context_frames} and "
                f"{self.max_horizon}"
            )


def make_world_model(
    config: WorldModelConfig, spec: WorldModelSpec, *, device: torch.device, seed: int = 0
) -> WorldModel:
    """A model that has not seen a clip yet, version 0; COSMOS starts from the vendor's release, which it downloads."""
    match config.kind:
        case ModelKind.FLOW_WARP:
            return FlowWarpModel(spec, config.flow_warp, device, seed)
        case ModelKind.EDM:
            return EdmModel(spec, config.edm, device, seed)
        case ModelKind.COSMOS:
            return release.start(spec, config.cosmos, device, seed)
        case ModelKind.COPY_LAST:
            return CopyLastFrame(spec)
        case ModelKind.TRAIN_MEAN:
            return TrainMean(spec)


def load_world_model(path: Path, *, device: torch.device, spec: WorldModelSpec | None = None) -> WorldModel:
    """The model saved in `path`, with its optimiser. spec: what it must have been made for.

    Raises WorldModelError where the file is torn, of another format, or of another spec.
    """
    stored = checkpoint.read(path)
    if spec is not None:
        checkpoint.check_same(path, stored.spec, spec)
    try:
        kind = ModelKind(stored.kind)
    except ValueError as error:
        raise WorldModelError(
            f"{path}: a model of kind {stored.kind!r}; known: {', '.join(k.value for k in ModelKind)}"
        ) from error
    match kind:
        case ModelKind.FLOW_WARP:
            return FlowWarpModel.restore(stored, path, device)
        case ModelKind.EDM:
            return EdmModel.restore(stored, path, device)
        case ModelKind.COSMOS:
            return persistence.restore(stored, path, device)
        case ModelKind.COPY_LAST:
            return CopyLastFrame.restore(stored)
        case ModelKind.TRAIN_MEAN:
            return TrainMean.restore(stored)
