"""Which weights of the transformer learn: all of them, or low-rank additions (LoRA) and the action embedding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

from worldmodel.cosmos.transformer import ActionTimeEmbedding, ActionTransformer

# The projections that the vendor's own LoRA recipe adapts.
LORA_LAYERS = r".*transformer_blocks\.\d+\.(attn[12]\.to_([qkv]|out\.0)|ff\.net\.(0\.proj|2))"


class Adapt(Enum):
    """FULL: every weight of the transformer. LORA: low-rank additions to its attention and feed-forward layers.

    Both train the whole action embedding. The autoencoder and the text are constants.
    """

    FULL = "full"
    LORA = "lora"


class Precision(Enum):
    """Of weights that do not learn, and of the arithmetic; weights that learn are float32."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self is Precision.FLOAT32 else torch.bfloat16


def prepare(
    network: ActionTransformer, adapt: Adapt, rank: int, precision: Precision, generator: torch.Generator
) -> None:
    """Freeze, add and cast the network's weights in place for this way of adapting.

    New LoRA weights start at zero effect. The time and action embeddings are float32 in every case, like the
    vendor's: small sums there decide every layer's scale.
    """
    if adapt is Adapt.LORA:
        network.requires_grad_(False)
        _add_lora(network, rank, generator)
        for mlp in network.action_mlps():
            mlp.requires_grad_(True)
    else:
        network.requires_grad_(True)
    for parameter in network.parameters():
        parameter.data = parameter.data.to(torch.float32 if parameter.requires_grad else precision.dtype)
    network.time_embedding.float()
    network.backbone.enable_gradient_checkpointing()


def trained(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Names and weights that learn, in a fixed order."""
    return ((name, weight) for name, weight in network.named_parameters() if weight.requires_grad)


def learn_actions_anew(network: ActionTransformer, action_dim: int, generator: torch.Generator) -> None:
    """Replace the action embedding by one for `action_dim` numbers; until it has learned, actions change nothing."""
    network.config = replace(network.config, action_dim=action_dim)
    with torch.device("meta"):  # without values, which come next
        embedding = ActionTimeEmbedding(network.time_embedding.embedding, network.config)
    for mlp in (embedding.to_time, embedding.to_adaln):
        mlp.to_empty(device="cpu")
        mlp.start_afresh(generator)
    network.backbone.time_embed = embedding


def _add_lora(network: ActionTransformer, rank: int, generator: torch.Generator) -> None:
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=LORA_LAYERS, init_lora_weights=False)
    inject_adapter_in_model(config, network.backbone)
    for name, weight in network.named_parameters():
        if "lora_A" in name and not weight.is_meta:
            nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
        if "lora_B" in name and not weight.is_meta:
            nn.init.zeros_(weight)


def autocast(device: torch.device, precision: Precision) -> Any:
    """The arithmetic of a forward pass."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision is Precision.BFLOAT16)
