"""Reads the vendor's checkpoint: its names to ours, the shape of the network from its tensors."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from worldmodel.cosmos.transformer import PATCH, ActionTransformer, TransformerConfig
from worldmodel.interface import WorldModelError

PREFIX = "net."
TEXT_PROJECTION = ("crossattn_proj.0.weight", "crossattn_proj.0.bias")

# Official name -> ours; the first pattern that matches the whole name decides.
_BLOCK = r"blocks\.(\d+)\."
_RENAMED = tuple(
    (re.compile(pattern), ours)
    for pattern, ours in (
        (r"x_embedder\.proj\.1\.(.+)", r"backbone.patch_embed.proj.\1"),
        (r"t_embedder\.1\.(.+)", r"backbone.time_embed.embedding.t_embedder.\1"),
        (r"t_embedding_norm\.(.+)", r"backbone.time_embed.embedding.norm.\1"),
        (r"action_embedder_B_D\.(.+)", r"backbone.time_embed.to_time.\1"),
        (r"action_embedder_B_3D\.(.+)", r"backbone.time_embed.to_adaln.\1"),
        (r"final_layer\.adaln_modulation\.([12])\.(.+)", r"backbone.norm_out.linear_\1.\2"),
        (r"final_layer\.linear\.(.+)", r"backbone.proj_out.\1"),
        (_BLOCK + r"adaln_modulation_self_attn\.([12])\.(.+)", r"@\1.norm1.linear_\2.\3"),
        (_BLOCK + r"adaln_modulation_cross_attn\.([12])\.(.+)", r"@\1.norm2.linear_\2.\3"),
        (_BLOCK + r"adaln_modulation_mlp\.([12])\.(.+)", r"@\1.norm3.linear_\2.\3"),
        (_BLOCK + r"self_attn\.([qkv])_proj\.(.+)", r"@\1.attn1.to_\2.\3"),
        (_BLOCK + r"cross_attn\.([qkv])_proj\.(.+)", r"@\1.attn2.to_\2.\3"),
        (_BLOCK + r"self_attn\.output_proj\.(.+)", r"@\1.attn1.to_out.0.\2"),
        (_BLOCK + r"cross_attn\.output_proj\.(.+)", r"@\1.attn2.to_out.0.\2"),
        (_BLOCK + r"self_attn\.([qk])_norm\.(.+)", r"@\1.attn1.norm_\2.\3"),
        (_BLOCK + r"cross_attn\.([qk])_norm\.(.+)", r"@\1.attn2.norm_\2.\3"),
        (_BLOCK + r"mlp\.layer1\.(.+)", r"@\1.ff.net.0.proj.\2"),
        (_BLOCK + r"mlp\.layer2\.(.+)", r"@\1.ff.net.2.\2"),
    )
)
# Training bookkeeping and tables that are computed anew: no weights.
_IGNORED = re.compile(
    r"accum_.*|pos_embedder\.(seq|dim_spatial_range|dim_temporal_range)|(.*\.)?_extra_state"
)


@dataclass(frozen=True)
class Official:
    """The vendor's weights under our names. text_projection: weight (text_dim, in) and bias (text_dim,)."""

    config: TransformerConfig
    tensors: Mapping[str, Tensor]
    text_projection: tuple[Tensor, Tensor]

    def transformer(self) -> ActionTransformer:
        """The network with exactly these weights; raises WorldModelError naming missing or surplus ones."""
        with torch.device("meta"):
            model = ActionTransformer(self.config)
        wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        have = {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}
        _compare(wanted, have)
        model.load_state_dict(dict(self.tensors), strict=True, assign=True)
        return model


def read_official(path: Path) -> Official:
    """Read `*_ema_bf16.pt` or a training checkpoint in the vendor's layout; no code in the file is run."""
    return translate(_load(path), str(path))


def read_tensor(path: Path) -> Tensor:
    """One tensor from a vendor's file, such as the cached text embedding; no code in the file is run."""
    content = _load(path)
    if not isinstance(content, Tensor):
        raise WorldModelError(f"{path}: expected one tensor, got {type(content).__name__}")
    return content


def translate(content: Any, where: str) -> Official:
    """An official state dict, possibly nested under `model`, under our names; `where` is for messages.

    Raises WorldModelError for keys that belong to no layer.
    """
    if isinstance(content, Mapping) and isinstance(content.get("model"), Mapping):
        content = content["model"]
    if not isinstance(content, Mapping):
        raise WorldModelError(f"{where}: expected a dictionary of tensors, got {type(content).__name__}")
    named = {str(key).removeprefix(PREFIX): value for key, value in content.items()}
    weights = {key: value for key, value in named.items() if not _IGNORED.fullmatch(key)}
    strange = [key for key, value in weights.items() if not isinstance(value, Tensor)]
    if strange:
        raise WorldModelError(f"{where}: expected tensors only, got other things under {_some(strange)}")
    missing = [key for key in TEXT_PROJECTION if key not in weights]
    if missing:
        raise WorldModelError(
            f"{where}: {_some(missing)} missing; expected Cosmos-Predict2.5 robot/action-cond (older models have no "
            "text projection)"
        )
    projection = (weights.pop(TEXT_PROJECTION[0]), weights.pop(TEXT_PROJECTION[1]))
    config = infer_config(weights, where)
    renamed = {key: _rename(key) for key in weights}
    surplus = [key for key, ours in renamed.items() if ours is None]
    if surplus:
        raise WorldModelError(f"{where}: keys that belong to no layer: {_some(surplus)}")
    return Official(config, {str(renamed[key]): value for key, value in weights.items()}, projection)


def infer_config(weights: Mapping[str, Tensor], where: str) -> TransformerConfig:
    """The network's shape from official names (without prefix) and tensor shapes alone."""

    def shape(key: str) -> tuple[int, ...]:
        if key not in weights:
            raise WorldModelError(
                f"{where}: {key} missing; expected an action-conditioned Cosmos transformer"
            )
        return tuple(weights[key].shape)

    width, patch_inputs = shape("x_embedder.proj.1.weight")
    head_dim = shape("blocks.0.self_attn.q_norm.weight")[0]
    layers = {int(match[1]) for key in weights if (match := re.match(_BLOCK, key))}
    action_hidden, action_inputs = shape("action_embedder_B_D.fc1.weight")
    for whole_chunk in (False, True):
        actions = TransformerConfig(action_hidden=action_hidden, whole_chunk=whole_chunk)
        if actions.action_inputs == action_inputs:
            break
    else:
        raise WorldModelError(
            f"{where}: action embedding: expected 28 inputs (4 actions of 7) or 84 (12 actions), got {action_inputs}; "
            "it belongs to another robot's actions"
        )
    return replace(
        actions,
        heads=width // head_dim,
        head_dim=head_dim,
        layers=max(layers) + 1,
        mlp_ratio=shape("blocks.0.mlp.layer1.weight")[0] / width,
        adaln_rank=shape("blocks.0.adaln_modulation_self_attn.1.weight")[0],
        latent_channels=patch_inputs // PATCH**2 - 2,  # without the two masks
        text_dim=shape("blocks.0.cross_attn.k_proj.weight")[1],
    )


def _load(path: Path) -> Any:
    # Older Transformer Engine layers leave BytesIO under _extra_state, which is dropped.
    try:
        with torch.serialization.safe_globals([io.BytesIO]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise WorldModelError(f"{path}: no such file; `groundhog cosmos` downloads it") from error
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WorldModelError(f"{path}: no readable PyTorch file of tensors ({reason})") from error


def _rename(key: str) -> str | None:
    for pattern, ours in _RENAMED:
        match = pattern.fullmatch(key)
        if match:
            return match.expand(ours).replace("@", "backbone.transformer_blocks.")
    return None


def _compare(wanted: Mapping[str, tuple[int, ...]], have: Mapping[str, tuple[int, ...]]) -> None:
    missing, surplus = wanted.keys() - have.keys(), have.keys() - wanted.keys()
    if missing or surplus:
        parts = [f"missing {_some(missing)}"] * bool(missing) + [f"surplus {_some(surplus)}"] * bool(surplus)
        raise WorldModelError(f"checkpoint: {'; '.join(parts)}")
    for name in wanted:
        if wanted[name] != have[name]:
            raise WorldModelError(f"checkpoint: {name}: expected shape {wanted[name]}, got {have[name]}")


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - 4} more" if len(ordered) > 4 else ""
    return ", ".join(ordered[:4]) + more
