"""A whole CosmosWorldModel in one safetensors file: weights, autoencoder, text, optimiser and settings."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from robot.geometry import DeltaFrame
from worldmodel.cosmos.actions import ActionConfig, ActionConvention
from worldmodel.cosmos.adaptation import Adapt, Precision, prepare, trained
from worldmodel.cosmos.model import CosmosConfig, CosmosWorldModel
from worldmodel.cosmos.transformer import ActionTransformer, TransformerConfig
from worldmodel.interface import ActionNormalisation, WorldModelError, WorldModelSpec

FORMAT = "groundhog-cosmos-1"
_MOMENTS = ("exp_avg", "exp_avg_sq")


def save(model: CosmosWorldModel, path: Path, scores: Mapping[str, float]) -> None:
    """Write the model; once this returns the file is on the disk, and a kill before leaves the old one as it was."""
    tensors = {f"network.{name}": weight for name, weight in model.network.state_dict().items()}
    tensors |= {f"autoencoder.{name}": weight for name, weight in model.autoencoder.state_dict().items()}
    tensors["text"] = model.text
    tensors |= _optimizer_tensors(model)
    header = {
        "format": FORMAT,
        "version": model.version,
        "scores": dict(scores),
        "spec": {
            "views": [[view, list(size)] for view, size in model.spec.views.items()],
            "offset": model.spec.action.offset.tolist(),
            "scale": model.spec.action.scale.tolist(),
            "context_frames": model.spec.context_frames,
            "max_horizon": model.spec.max_horizon,
        },
        "config": asdict(model.config),
        "network": asdict(model.network.config),
        "autoencoder": {k: v for k, v in model.autoencoder.config.items() if not k.startswith("_")},
    }
    beside = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"groundhog": json.dumps(header, default=_plain)}
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, beside, metadata)
    with beside.open("rb") as file:
        os.fsync(file.fileno())
    beside.replace(path)


def load(path: Path, device: torch.device, spec: WorldModelSpec | None = None) -> CosmosWorldModel:
    """Read what `save` wrote, exactly. spec: what the caller needs; another one is refused.

    Raises WorldModelError for a missing, torn or foreign file, or one of other views or another action normalisation.
    """
    header, tensors = _read(path)
    stored = header["spec"]
    found = WorldModelSpec(
        {view: (int(height), int(width)) for view, (height, width) in stored["views"]},
        ActionNormalisation(np.array(stored["offset"], np.float32), np.array(stored["scale"], np.float32)),
        stored["context_frames"],
        stored["max_horizon"],
    )
    if spec is not None:
        _check_spec(path, spec, found)
    config = _config(header["config"])
    with torch.device("meta"):
        network = ActionTransformer(TransformerConfig(**header["network"]))
        # The names of LoRA weights exist once they are added; their values come from the file.
        prepare(network, config.adapt, config.lora_rank, config.precision, torch.Generator("cpu"))
        autoencoder = _autoencoder(header["autoencoder"])
    for name, module in (("network", network), ("autoencoder", autoencoder)):
        weights = {k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")}
        try:
            module.load_state_dict(weights, strict=True, assign=True)
        except RuntimeError as error:
            raise WorldModelError(f"{path}: {' '.join(str(error).split())}") from error
    model = CosmosWorldModel(
        found, config, network, autoencoder, tensors["text"], device, version=header["version"]
    )
    _restore_optimizer(model, tensors)
    return model


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            header = json.loads(metadata.get("groundhog", "{}"))
            if header.get("format") != FORMAT:
                raise WorldModelError(
                    f"{path}: expected a world model of format {FORMAT}, got {header.get('format', 'another file')}"
                )
            return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise WorldModelError(f"{path}: no such file; expected a saved Cosmos world model") from error
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise WorldModelError(
            f"{path}: torn or no safetensors file ({error}); restore it from a copy"
        ) from error


def _check_spec(path: Path, wanted: WorldModelSpec, found: WorldModelSpec) -> None:
    if list(wanted.views.items()) != list(found.views.items()):
        raise WorldModelError(f"{path}: trained on views {dict(found.views)}, needed {dict(wanted.views)}")
    for name in ("offset", "scale"):
        old, new = getattr(found.action, name), getattr(wanted.action, name)
        if not np.array_equal(old, new):
            raise WorldModelError(
                f"{path}: trained with action {name} {old.tolist()}, needed {new.tolist()}; adapt a new model"
            )


def _autoencoder(config: Mapping[str, Any]) -> Any:
    from diffusers import AutoencoderKLWan

    return AutoencoderKLWan(**config)


def _config(stored: dict[str, Any]) -> CosmosConfig:
    actions = dict(stored["actions"])
    actions["convention"] = ActionConvention(actions["convention"])
    actions["frame"] = DeltaFrame(actions["frame"])
    actions["gripper_from_tool"] = tuple(actions["gripper_from_tool"])
    changed = {
        "size": tuple(stored["size"]),
        "adapt": Adapt(stored["adapt"]),
        "precision": Precision(stored["precision"]),
        "actions": ActionConfig(**actions),
    }
    return CosmosConfig(**(stored | changed))


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"not for JSON: {value!r}")


def _optimizer_tensors(model: CosmosWorldModel) -> dict[str, Tensor]:
    tensors = {}
    for name, weight in trained(model.network):
        for key, value in model.optimizer.state.get(weight, {}).items():
            tensors[f"optimizer.{key}.{name}"] = value
    return tensors


def _restore_optimizer(model: CosmosWorldModel, tensors: Mapping[str, Tensor]) -> None:
    for name, weight in trained(model.network):
        step = tensors.get(f"optimizer.step.{name}")
        if step is None:
            continue
        moments = {key: tensors[f"optimizer.{key}.{name}"].to(weight.device) for key in _MOMENTS}
        model.optimizer.state[weight] = {"step": step, **moments}
