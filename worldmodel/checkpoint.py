"""Checkpoints of world models: one safetensors file with its meaning as JSON in the header, verified when read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from worldmodel.interface import ActionNormalisation, WorldModelError, WorldModelSpec

FORMAT = 1
_KEY = "groundhog_world_model"


@dataclass(frozen=True)
class Checkpoint:
    """A world model as it lies on disk. kind: of the model. config: its own, as JSON. scores: on held-out clips.

    learned: names of the episodes that it has learned from; None: not known, as of files from before they were kept.
    """

    kind: str
    spec: WorldModelSpec
    config: Mapping[str, Any]
    version: int
    updates: int
    tensors: Mapping[str, Tensor]
    scores: Mapping[str, float]
    learned: Collection[str] | None = None

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with `prefix.`, without it."""
        start = f"{prefix}."
        return {name.removeprefix(start): t for name, t in self.tensors.items() if name.startswith(start)}


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write beside and rename."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    spec = checkpoint.spec
    meta = {
        "format": FORMAT,
        "kind": checkpoint.kind,
        "version": checkpoint.version,
        "updates": checkpoint.updates,
        "views": list(spec.views.items()),  # a list: their order is that of the network's channels
        "action_offset": spec.action.offset.tolist(),
        "action_scale": spec.action.scale.tolist(),
        "action_meaning": spec.action.meaning,
        "context_frames": spec.context_frames,
        "max_horizon": spec.max_horizon,
        "config": checkpoint.config,
        "scores": dict(checkpoint.scores),
        "learned": None if checkpoint.learned is None else sorted(checkpoint.learned),
        "crc32": _checksum(plain),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".tmp")
    save_file(plain, beside, metadata={_KEY: json.dumps(meta)})
    beside.rename(path)


def read(path: Path) -> Checkpoint:
    """Read and verify; raises WorldModelError naming the file where it is missing, torn or no world model."""
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (OSError, SafetensorError) as error:
        raise WorldModelError(
            f"{path}: no whole checkpoint ({error}); choose another version, or train a new model"
        ) from error
    if text is None:
        raise WorldModelError(f"{path}: a safetensors file, but no world model of this project")
    try:
        meta = json.loads(text)
        if meta["format"] != FORMAT:
            raise WorldModelError(
                f"{path}: expected format {FORMAT}, got {meta['format']}; read it with the version that wrote it"
            )
        if (motion := meta.get("conditioning", "commanded")) != "commanded":
            raise WorldModelError(
                f"{path}: expected a model that is told the commanded motion, got {motion}; train a new model"
            )
        action = ActionNormalisation(
            np.asarray(meta["action_offset"], np.float32),
            np.asarray(meta["action_scale"], np.float32),
            str(meta["action_meaning"]),
        )
        views = {str(view): (int(size[0]), int(size[1])) for view, size in meta["views"]}
        spec = WorldModelSpec(views, action, int(meta["context_frames"]), int(meta["max_horizon"]))
        found = Checkpoint(
            kind=str(meta["kind"]),
            spec=spec,
            config=dict(meta["config"]),
            version=int(meta["version"]),
            updates=int(meta["updates"]),
            tensors=tensors,
            scores={str(name): float(value) for name, value in meta["scores"].items()},
            learned=None if meta.get("learned") is None else frozenset(meta["learned"]),
        )
        crc = int(meta["crc32"])
    except (KeyError, TypeError, IndexError, ValueError) as error:
        if isinstance(error, WorldModelError):
            raise
        raise WorldModelError(f"{path}: damaged header ({error!r}); choose another version") from error
    if crc != _checksum(tensors):
        raise WorldModelError(f"{path}: damaged, its checksum does not hold; choose another version")
    return found


def check_same(path: Path, stored: WorldModelSpec, wanted: WorldModelSpec) -> None:
    """Raise WorldModelError naming the first thing in which the checkpoint's spec is not the wanted one."""
    mine, theirs = wanted.action, stored.action
    pairs: list[tuple[str, object, object]] = [
        ("views (height, width)", list(wanted.views.items()), list(stored.views.items())),
        ("context_frames", wanted.context_frames, stored.context_frames),
        ("action normalisation offset", mine.offset.tolist(), theirs.offset.tolist()),
        ("action normalisation scale", mine.scale.tolist(), theirs.scale.tolist()),
        ("action normalisation meaning", mine.meaning, theirs.meaning),
    ]
    for name, expected, got in pairs:
        if expected != got:
            raise WorldModelError(
                f"{path}: {name}: expected {expected}, the checkpoint has {got}; "
                "use the settings it was trained with, or train a new model"
            )


def restore(module: torch.nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Load all tensors of a module; raises WorldModelError where names or shapes differ."""
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise WorldModelError(f"{path}: does not fit its own config ({error})") from error


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    """CRC-32 over names and values, in the order of the names."""
    crc = 0
    for name in sorted(tensors):
        data = tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy()
        crc = zlib.crc32(data.data, zlib.crc32(name.encode(), crc))
    return crc
