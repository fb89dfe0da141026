"""OpenVLA's towers and language model once more, written on the published names: what the network is compared with."""

from __future__ import annotations

import openvla_tiny as tiny
import torch
import torch.nn.functional as F
from torch import Tensor


def official_tower(weights: dict[str, Tensor], images: Tensor, *, dino: bool) -> Tensor:
    """The published tower, written on the published names: patches of the last block but one, without a norm."""
    width = tiny.WIDTH
    hidden = F.conv2d(
        images, weights["patch_embed.proj.weight"], weights["patch_embed.proj.bias"], stride=tiny.PATCH
    )
    hidden = hidden.flatten(2).transpose(1, 2) + weights["pos_embed"]
    if dino:
        before = torch.cat((weights["cls_token"], weights["reg_token"]), dim=1)
        hidden = torch.cat((before.expand(len(images), -1, -1), hidden), dim=1)
    for block in range(tiny.DEPTH - 1):
        w = {
            name.removeprefix(f"blocks.{block}."): tensor
            for name, tensor in weights.items()
            if name.startswith(f"blocks.{block}.")
        }
        normed = F.layer_norm(hidden, (width,), w["norm1.weight"], w["norm1.bias"], 1e-6)
        qkv = F.linear(normed, w["attn.qkv.weight"], w["attn.qkv.bias"])
        q, k, v = qkv.view(len(images), -1, 3, 16, width // 16).permute(2, 0, 3, 1, 4)
        mixed = torch.softmax(q @ k.transpose(-1, -2) / (width // 16) ** 0.5, dim=-1) @ v
        mixed = F.linear(mixed.transpose(1, 2).flatten(2), w["attn.proj.weight"], w["attn.proj.bias"])
        hidden = hidden + mixed * w.get("ls1.scale_factor", torch.tensor(1.0))
        normed = F.layer_norm(hidden, (width,), w["norm2.weight"], w["norm2.bias"], 1e-6)
        inner = F.gelu(F.linear(normed, w["mlp.fc1.weight"], w["mlp.fc1.bias"]))
        inner = F.linear(inner, w["mlp.fc2.weight"], w["mlp.fc2.bias"])
        hidden = hidden + inner * w.get("ls2.scale_factor", torch.tensor(1.0))
    return hidden[:, 1 + tiny.REGISTERS :] if dino else hidden


def official_llama(weights: dict[str, Tensor], hidden: Tensor) -> Tensor:
    """Llama on embeddings (1, S, D) without any mask, on the published names; the last hidden states."""
    heads, dim = 4, tiny.TEXT // 4

    def rms(values: Tensor, weight: Tensor) -> Tensor:
        return values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + 1e-6) * weight

    angles = torch.arange(hidden.shape[1])[:, None] * 10000.0 ** (-torch.arange(0, dim, 2) / dim)
    cosine, sine = torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()

    def turned(values: Tensor) -> Tensor:
        first, second = values.chunk(2, dim=-1)
        return values * cosine + torch.cat((-second, first), -1) * sine

    for layer in range(tiny.TEXT_LAYERS):
        w = {
            name.removeprefix(f"language_model.model.layers.{layer}."): tensor
            for name, tensor in weights.items()
        }
        normed = rms(hidden, w["input_layernorm.weight"])
        q, k, v = (
            F.linear(normed, w[f"self_attn.{part}_proj.weight"]).view(1, -1, heads, dim).transpose(1, 2)
            for part in "qkv"
        )
        mixed = torch.softmax(turned(q) @ turned(k).transpose(-1, -2) / dim**0.5, dim=-1) @ v
        hidden = hidden + F.linear(mixed.transpose(1, 2).flatten(2), w["self_attn.o_proj.weight"])
        normed = rms(hidden, w["post_attention_layernorm.weight"])
        gated = F.silu(F.linear(normed, w["mlp.gate_proj.weight"])) * F.linear(
            normed, w["mlp.up_proj.weight"]
        )
        hidden = hidden + F.linear(gated, w["mlp.down_proj.weight"])
    return rms(hidden, weights["language_model.model.norm.weight"])
