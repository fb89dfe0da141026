"""Reads a checkpoint in the layout of openvla/openvla-7b: its names to ours, every tensor accounted for."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rl.vla.openvla.network import NetworkShape, OpenVLANetwork, TowerShape
from rl.vla.policy import PolicyError

VISION = "dinosiglip-vit-so-224px"
_DINO, _SIGLIP = "vision_backbone.featurizer.", "vision_backbone.fused_featurizer."
_SAMPLED = 1024  # values of each tensor that its fingerprint looks at

# Official name inside a tower -> ours; the first pattern that matches the whole name decides.
_BLOCK = r"blocks\.(\d+)\."
_DINO_NAMES = {
    r"cls_token": r"embeddings.cls_token",
    r"reg_token": r"embeddings.register_tokens",
    r"pos_embed": r"embeddings.position_embeddings",
    r"patch_embed\.proj\.(\w+)": r"embeddings.patch_embeddings.projection.\1",
    _BLOCK + r"norm([12])\.(\w+)": r"encoder.layer.\1.norm\2.\3",
    _BLOCK + r"attn\.qkv\.(\w+)": r"encoder.layer.\1.attention.{}_proj.\2",
    _BLOCK + r"attn\.proj\.(\w+)": r"encoder.layer.\1.attention.o_proj.\2",
    _BLOCK + r"ls([12])\.scale_factor": r"encoder.layer.\1.layer_scale\2.lambda1",
    _BLOCK + r"mlp\.fc([12])\.(\w+)": r"encoder.layer.\1.mlp.fc\2.\3",
}
_SIGLIP_NAMES = {
    r"pos_embed": r"embeddings.position_embedding.weight",
    r"patch_embed\.proj\.(\w+)": r"embeddings.patch_embedding.\1",
    _BLOCK + r"norm([12])\.(\w+)": r"encoder.layers.\1.layer_norm\2.\3",
    _BLOCK + r"attn\.qkv\.(\w+)": r"encoder.layers.\1.self_attn.{}_proj.\2",
    _BLOCK + r"attn\.proj\.(\w+)": r"encoder.layers.\1.self_attn.out_proj.\2",
    _BLOCK + r"mlp\.fc([12])\.(\w+)": r"encoder.layers.\1.mlp.fc\2.\3",
}
# Behind the layer whose patches are used: in the file, in no computation.
_UNUSED = r"norm\.(weight|bias)|attn_pool\..+"
# Stands in for masked patches in pre-training; the released file has none.
_CONSTANT = ("dino.embeddings.mask_token",)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose tensors have not been read yet. norm_stats: what actions mean, by data set."""

    path: Path
    shape: NetworkShape
    norm_stats: Mapping[str, Any]
    files: Mapping[str, Path]  # of each tensor


def locate(checkpoint: str) -> Path:
    """The directory itself, or that of the hub's copy in the local cache, fetched where it is not there yet.

    No code of the hub's is fetched or run. Raises PolicyError where there is neither.
    """
    path = Path(checkpoint).expanduser()
    if path.is_dir():
        return path
    if path.exists() or not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", checkpoint):
        raise PolicyError(
            f"openvla.checkpoint={checkpoint}: no such directory, and no <owner>/<name> of the hub"
        )
    from huggingface_hub import errors, snapshot_download

    try:
        return Path(snapshot_download(checkpoint, allow_patterns=["*.json", "*.safetensors"]))
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PolicyError(
            f"openvla.checkpoint={checkpoint}: no such directory, and the hub does not give it ({reason})"
        ) from error


def open_checkpoint(path: Path) -> Checkpoint:
    """Reads the configuration and the shapes; raises PolicyError naming the file that is missing or foreign."""
    config = _json(path / "config.json")
    vision, resize = config.get("vision_backbone_id"), config.get("image_resize_strategy")
    if config.get("model_type") != "openvla" or vision != VISION or resize != "resize-naive":
        raise PolicyError(
            f"{path / 'config.json'}: expected model_type openvla, vision_backbone_id {VISION} and "
            f"image_resize_strategy resize-naive, got {config.get('model_type')}, {vision} and {resize}"
        )
    text, padded = config.get("text_config") or {}, config.get("pad_to_multiple_of", 64)
    if text.get("model_type", "llama") != "llama" or config.get("n_action_bins", 256) != 256:
        raise PolicyError(f"{path / 'config.json'}: expected a Llama with 256 action bins")
    text = {name: value for name, value in text.items() if name not in ("model_type", "torch_dtype", "dtype")}
    stats = dict(config.get("norm_stats") or {})
    own = path / "dataset_statistics.json"  # of a data set it was fine-tuned on
    if own.exists():
        stats |= _json(own)
    files = _files(path)
    shapes = _shapes(files)
    shape = NetworkShape(
        dino=_tower(shapes, _DINO, path),
        siglip=_tower(shapes, _SIGLIP, path),
        text=text,
        # The vocabulary was padded by a whole multiple; the action tokens are the last ones before that.
        action_tokens=int(text.get("vocab_size", 32064)) - int(padded),
    )
    return Checkpoint(path, shape, stats, files)


def load_base(
    network: OpenVLANetwork, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype
) -> str:
    """Give `network` the checkpoint's weights, frozen, tensor by tensor; returns their fingerprint.

    It tells one model from another: a digest over names, shapes and the first values of each tensor. Raises
    PolicyError naming missing, surplus and misshapen tensors.
    """
    wanted = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items() if tensor.is_meta}
    held = [(official, name) for official in checkpoint.files for name in _ours(official, checkpoint.shape)]
    missing = wanted.keys() - {name for _, name in held} - {*_CONSTANT}
    surplus = {official for official, name in held if name not in wanted}
    if missing or surplus:
        parts = [f"missing {_some(missing)}"] * bool(missing) + [f"surplus {_some(surplus)}"] * bool(surplus)
        raise PolicyError(f"{checkpoint.path}: not the layout of openvla-7b: {'; '.join(parts)}")
    digest, loaded = hashlib.sha256(), {}
    for official, tensor in _read(checkpoint.files):
        sample = tensor.flatten()[:_SAMPLED].contiguous().view(torch.uint8).numpy().tobytes()
        digest.update(f"{official} {tuple(tensor.shape)} {tensor.dtype}".encode() + sample)
        for name, part in _translate(official, tensor, checkpoint.shape):
            if tuple(part.shape) != wanted[name]:
                raise PolicyError(
                    f"{checkpoint.path}: {official}: expected a shape of {wanted[name]}, got {tuple(part.shape)}; "
                    "config.json and the tensors are of different models"
                )
            loaded[name] = part.to(device, dtype)
    for name in _CONSTANT:
        loaded[name] = torch.zeros(wanted[name], device=device, dtype=dtype)
    network.load_state_dict(loaded, strict=False, assign=True)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name not in wanted)
    return digest.hexdigest()


def _ours(official: str, shape: NetworkShape) -> tuple[str, ...]:
    """Our names of what an official tensor holds: three for a fused one, none for an unused one."""
    for prefix, ours, tower, names in (
        (_DINO, "dino.", shape.dino, _DINO_NAMES),
        (_SIGLIP, "siglip.", shape.siglip, _SIGLIP_NAMES),
    ):
        if not official.startswith(prefix):
            continue
        inner = official.removeprefix(prefix)
        for pattern, replacement in names.items():
            match = re.fullmatch(pattern, inner)
            if match is None:
                continue
            if inner.startswith(f"blocks.{tower.layers - 1}."):
                return ()
            name = ours + match.expand(replacement)
            return tuple(name.format(part) for part in "qkv") if "{}" in name else (name,)
        return () if re.fullmatch(_UNUSED, inner) else (official,)
    return (official,)


def _translate(official: str, tensor: Tensor, shape: NetworkShape) -> Iterator[tuple[str, Tensor]]:
    names = _ours(official, shape)
    if len(names) == 3:
        yield from zip(names, tensor.chunk(3), strict=True)
    elif official == _DINO + "pos_embed":
        # The place of the class token is part of that token here, a row of its own in transformers.
        yield names[0], torch.cat((torch.zeros_like(tensor[:, :1]), tensor), dim=1)
    elif official == _SIGLIP + "pos_embed":
        yield names[0], tensor[0]
    elif names:
        yield names[0], tensor


def _tower(shapes: Mapping[str, tuple[int, ...]], prefix: str, path: Path) -> TowerShape:
    def shape(name: str, sizes: int) -> tuple[int, ...]:
        found = shapes.get(prefix + name, ())
        if len(found) != sizes:
            raise PolicyError(
                f"{path}: {prefix + name} missing or misshapen; expected the layout of openvla-7b"
            )
        return found

    layers = {int(match[1]) for name in shapes if (match := re.match(re.escape(prefix) + _BLOCK, name))}
    _, patches, width = shape("pos_embed", 3)
    patch = shape("patch_embed.proj.weight", 4)[-1]
    registers = shape("reg_token", 3)[1] if prefix == _DINO else 0
    mlp = shape("blocks.0.mlp.fc1.weight", 2)[0]
    return TowerShape(width, max(layers) + 1, mlp, patch, isqrt(patches) * patch, registers)


def _files(path: Path) -> dict[str, Path]:
    """The file of each tensor."""
    index = path / "model.safetensors.index.json"
    names = set(_json(index).get("weight_map", {}).values()) if index.exists() else {"model.safetensors"}
    files: dict[str, Path] = {}
    for name in sorted(names):
        if not (path / name).is_file():
            raise PolicyError(f"{path / name}: missing; copy the whole checkpoint")
        with _opened(path / name) as content:
            for key in content.keys():  # noqa: SIM118 - not a dictionary
                if key in files:
                    raise PolicyError(f"{path / name}: {key} is in {files[key].name} too; keep one of them")
                files[key] = path / name
    return files


def _shapes(files: Mapping[str, Path]) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for path in sorted(set(files.values())):
        with _opened(path) as content:
            for key in content.keys():  # noqa: SIM118 - not a dictionary
                shapes[key] = tuple(content.get_slice(key).get_shape())
    return shapes


def _read(files: Mapping[str, Path]) -> Iterator[tuple[str, Tensor]]:
    """Name by name in their order, so that the split into files does not matter."""
    opened = {path: _opened(path) for path in set(files.values())}
    for name in sorted(files):
        yield name, opened[files[name]].get_tensor(name)


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise PolicyError(f"{path}: no readable safetensors file ({error}); copy it again") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PolicyError(
            f"{path}: missing or no JSON ({error}); expected a checkpoint's directory"
        ) from error
    if not isinstance(content, dict):
        raise PolicyError(f"{path}: expected a JSON object")
    return content


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - 4} more" if len(ordered) > 4 else ""
    return ", ".join(ordered[:4]) + more
