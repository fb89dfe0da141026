"""Which weights of OpenVLA learn: low-rank additions (LoRA) to its linear layers, and the projector of readings."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rl.vla.openvla.network import OpenVLANetwork

# Every linear layer of the towers, the projector and the language model but its last: the published recipe.
LORA_LAYERS = r"(dino|siglip|projector|language_model\.model)\..*(_proj|fc[123])"


def add_lora(network: OpenVLANetwork, rank: int, alpha: int, generator: torch.Generator) -> None:
    """Add them in place, float32, without effect until they have learned; no dropout, so that chances are exact."""
    from peft import LoraConfig, inject_adapter_in_model

    trained_before = {name for name, weight in network.named_parameters() if weight.requires_grad}
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=LORA_LAYERS, init_lora_weights=False)
    inject_adapter_in_model(config, network)
    for name, weight in network.named_parameters():
        added = "lora_" in name
        weight.requires_grad_(added or name in trained_before)
        if not added:
            continue
        # Drawn on the CPU, so that a seed means the same on every device.
        fresh = torch.zeros(weight.shape)
        if "lora_A" in name:
            nn.init.kaiming_uniform_(fresh, a=math.sqrt(5), generator=generator)
        weight.data = fresh.to(weight.device)


def trained(network: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that learn, by name, in a fixed order."""
    return {name: weight for name, weight in network.named_parameters() if weight.requires_grad}


def save_memory(network: OpenVLANetwork) -> None:
    """Compute layers again in the backward pass instead of keeping their insides.

    transformers does so in training mode alone, which changes nothing else here: no layer drops out.
    """
    from transformers import GradientCheckpointingLayer

    def again(function: nn.Module, *args: Tensor) -> Tensor:
        result: Tensor = checkpoint(function, *args, use_reentrant=False)
        return result

    for module in network.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.gradient_checkpointing = True
            module._gradient_checkpointing_func = again
    network.train()
