"""A CosmosWorldModel to and from a checkpoint: weights, autoencoder, text, optimiser and settings in one file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from robot.geometry import DeltaFrame
from worldmodel.checkpoint import Checkpoint
from worldmodel.cosmos.actions import ActionConfig, ActionConvention
from worldmodel.cosmos.adaptation import Adapt, Precision, prepare, trained
from worldmodel.cosmos.transformer import ActionTransformer, TransformerConfig, need_extra
from worldmodel.interface import WorldModelError

if TYPE_CHECKING:
    from worldmodel.cosmos.model import CosmosWorldModel

_MOMENTS = ("exp_avg", "exp_avg_sq")


def to_checkpoint(
    model: CosmosWorldModel, scores: Mapping[str, float], learned: Collection[str] | None
) -> Checkpoint:
    """All that `restore` needs, the constants too, so that a version needs no other file."""
    tensors = {"text": model.text}
    tensors |= {f"network.{name}": weight for name, weight in model.network.state_dict().items()}
    tensors |= {f"autoencoder.{name}": weight for name, weight in model.autoencoder.state_dict().items()}
    for name, weight in trained(model.network):
        for key, value in model.optimizer.state.get(weight, {}).items():
            tensors[f"optimizer.{key}.{name}"] = value
    config = {
        "model": _plain(asdict(model.config)),
        "network": asdict(model.network.config),
        "autoencoder": {key: v for key, v in model.autoencoder.config.items() if not key.startswith("_")},
    }
    return Checkpoint(model.KIND, model.spec, config, model.version, model.updates, tensors, scores, learned)


def restore(stored: Checkpoint, path: Path, device: torch.device) -> CosmosWorldModel:
    """The model of a checkpoint read from `path`, exactly; raises WorldModelError where it does not fit itself."""
    from worldmodel.cosmos.model import CosmosConfig, CosmosWorldModel

    need_extra()
    try:
        config = CosmosConfig(**_typed(stored.config["model"]))
        shape = TransformerConfig(**stored.config["network"])
        text = stored.tensors["text"]
    except (KeyError, TypeError, ValueError) as error:
        raise WorldModelError(f"{path}: its config is not of this version ({error!r})") from error
    with torch.device("meta"):
        network = ActionTransformer(shape)
        # Adds the names of LoRA weights; their values, like all others, come from the file.
        prepare(network, config.adapt, config.lora_rank, config.precision, torch.Generator("cpu"))
        autoencoder = _autoencoder(stored.config["autoencoder"])
    for name, module in (("network", network), ("autoencoder", autoencoder)):
        try:
            module.load_state_dict(stored.part(name), assign=True)
        except RuntimeError as error:
            raise WorldModelError(f"{path}: does not fit its own config ({error})") from error
    model = CosmosWorldModel(stored.spec, config, network, autoencoder, text, device, version=stored.version)
    model.updates = stored.updates
    for name, weight in trained(model.network):
        step = stored.tensors.get(f"optimizer.step.{name}")
        if step is not None:
            moments = {key: stored.tensors[f"optimizer.{key}.{name}"].to(device) for key in _MOMENTS}
            model.optimizer.state[weight] = {"step": step, **moments}
    return model


def _autoencoder(config: Mapping[str, Any]) -> Any:
    from diffusers import AutoencoderKLWan

    return AutoencoderKLWan(**config)


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Enums as their values, for JSON."""
    plain: dict[str, Any] = {}
    for key, value in config.items():
        plain[key] = _plain(value) if isinstance(value, Mapping) else value
        if isinstance(value, Enum):
            plain[key] = value.value
    return plain


def _typed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `_plain` for a CosmosConfig."""
    actions = dict(stored["actions"])
    actions["convention"] = ActionConvention(actions["convention"])
    actions["frame"] = DeltaFrame(actions["frame"])
    typed = dict(stored)
    typed["adapt"], typed["precision"] = Adapt(stored["adapt"]), Precision(stored["precision"])
    typed["actions"] = ActionConfig(**actions)
    return typed
