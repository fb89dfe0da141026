"""A checkpoint in the layout of openvla/openvla-7b with small random tensors, and policies that start from it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor

from rl.vla.openvla.config import OpenVLAConfig
from rl.vla.openvla.policy import OpenVLAPolicy
from rl.vla.policy import PolicyInputs, PolicySpec
from robot.types import ACTION_DIM, ProprioSpec

WIDTH, DEPTH, PATCH, SIDE, REGISTERS = 32, 3, 4, 8, 4
DINO_MLP, SIGLIP_MLP, TEXT, TEXT_LAYERS, TEXT_MLP = 128, 48, 32, 2, 64
VOCABULARY, PADDED_BY = 320, 16  # action tokens are 48 .. 303
CHUNK, VIEWS = 2, ("wrist", "side")
WORDS = re.findall(r"\S+", "In What action should the robot take to press red blue button slowly Out : ? ▁")
INSTRUCTIONS = ("press the red button", "press the blue button slowly")
STATS = {
    "bridge_orig": {
        "action": {
            "q01": [-0.03, -0.04, -0.02, -0.1, -0.2, -0.1, 0.0],
            "q99": [0.03, 0.02, 0.05, 0.1, 0.1, 0.2, 1.0],
            "mask": [True] * 6 + [False],
        }
    }
}
PROPRIO = ProprioSpec(
    ("place", "noise"), np.zeros(2, np.float32), np.ones(2, np.float32), np.array([0.1, 0.0], np.float32)
)
SPEC = PolicySpec(VIEWS, (12, 16), PROPRIO, chunk=CHUNK, tokens=ACTION_DIM)
CONFIG = OpenVLAConfig(chunk=CHUNK, lora_rank=2, lora_alpha=2, pass_batch=3)


def official_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes as they are published, at our sizes."""
    shapes: dict[str, tuple[int, ...]] = {}
    patches = (SIDE // PATCH) ** 2
    for prefix, mlp in (("featurizer", DINO_MLP), ("fused_featurizer", SIGLIP_MLP)):
        tower = {"pos_embed": (1, patches, WIDTH), "patch_embed.proj.weight": (WIDTH, 3, PATCH, PATCH)}
        tower |= {"patch_embed.proj.bias": (WIDTH,), "norm.weight": (WIDTH,), "norm.bias": (WIDTH,)}
        dino = prefix == "featurizer"
        if dino:
            tower |= {"cls_token": (1, 1, WIDTH), "reg_token": (1, REGISTERS, WIDTH)}
        else:
            tower |= {"attn_pool.latent": (1, 1, WIDTH), "attn_pool.q.weight": (WIDTH, WIDTH)}
        for block in range(DEPTH):
            inside = {"norm1.weight": (WIDTH,), "norm1.bias": (WIDTH,)}
            inside |= {"norm2.weight": (WIDTH,), "norm2.bias": (WIDTH,)}
            inside |= {"attn.qkv.weight": (3 * WIDTH, WIDTH), "attn.qkv.bias": (3 * WIDTH,)}
            inside |= {"attn.proj.weight": (WIDTH, WIDTH), "attn.proj.bias": (WIDTH,)}
            inside |= {"mlp.fc1.weight": (mlp, WIDTH), "mlp.fc1.bias": (mlp,)}
            inside |= {"mlp.fc2.weight": (WIDTH, mlp), "mlp.fc2.bias": (WIDTH,)}
            if dino:
                inside |= {"ls1.scale_factor": (WIDTH,), "ls2.scale_factor": (WIDTH,)}
            tower |= {f"blocks.{block}.{name}": shape for name, shape in inside.items()}
        shapes |= {f"vision_backbone.{prefix}.{name}": shape for name, shape in tower.items()}
    vision = 2 * WIDTH
    for name, (outputs, inputs) in {
        "fc1": (4 * vision, vision),
        "fc2": (TEXT, 4 * vision),
        "fc3": (TEXT, TEXT),
    }.items():
        shapes |= {f"projector.{name}.weight": (outputs, inputs), f"projector.{name}.bias": (outputs,)}
    llama = {"embed_tokens.weight": (VOCABULARY, TEXT), "norm.weight": (TEXT,)}
    for layer in range(TEXT_LAYERS):
        inside = {f"self_attn.{part}_proj.weight": (TEXT, TEXT) for part in "qkvo"}
        inside |= {f"mlp.{part}_proj.weight": (TEXT_MLP, TEXT) for part in ("gate", "up")}
        inside |= {"mlp.down_proj.weight": (TEXT, TEXT_MLP)}
        inside |= {"input_layernorm.weight": (TEXT,), "post_attention_layernorm.weight": (TEXT,)}
        llama |= {f"layers.{layer}.{name}": shape for name, shape in inside.items()}
    shapes |= {f"language_model.model.{name}": shape for name, shape in llama.items()}
    return shapes | {"language_model.lm_head.weight": (VOCABULARY, TEXT)}


def official_tensors(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * 0.2 + (0.8 if "norm" in name else 0.0)
        for name, shape in official_shapes().items()
    }


def official_config() -> dict[str, Any]:
    return {
        "model_type": "openvla",
        "vision_backbone_id": "dinosiglip-vit-so-224px",
        "image_resize_strategy": "resize-naive",
        "pad_to_multiple_of": PADDED_BY,
        "norm_stats": STATS,
        "auto_map": {"AutoConfig": "configuration_prismatic.OpenVLAConfig"},  # remote code, never looked at
        "text_config": {
            "model_type": "llama",
            "torch_dtype": "bfloat16",
            "vocab_size": VOCABULARY,
            "hidden_size": TEXT,
            "intermediate_size": TEXT_MLP,
            "num_hidden_layers": TEXT_LAYERS,
            "num_attention_heads": 4,
        },
    }


def write_checkpoint(path: Path, tensors: dict[str, Tensor] | None = None) -> Path:
    """In two files with an index, as the released one is in three."""
    path.mkdir(parents=True, exist_ok=True)
    tensors = official_tensors() if tensors is None else tensors
    names, index = sorted(tensors), {}
    for number, part in enumerate((names[::2], names[1::2])):
        file = f"model-{number}.safetensors"
        save_file({name: tensors[name].contiguous() for name in part}, path / file)
        index |= dict.fromkeys(part, file)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (path / "config.json").write_text(json.dumps(official_config()))
    vocabulary = {word: number for number, word in enumerate(["<unk>", "<s>", "</s>", *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(path / "tokenizer.json"))
    return path


def tiny_policy(checkpoint: Path, seed: int = 0, *, moved: bool = True, **changes: Any) -> OpenVLAPolicy:
    """moved: its additions are not zero, as after some training."""
    config = replace(CONFIG, checkpoint=str(checkpoint), **changes)
    policy = OpenVLAPolicy(config, SPEC, device=torch.device("cpu"), seed=seed)
    if moved:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in policy.trainable_parameters():
                weight.add_(torch.randn(weight.shape, generator=generator) * 0.1)
    return policy


def tiny_inputs(batch: int, seed: int = 0) -> PolicyInputs:
    rng = np.random.default_rng(seed)
    height, width = SPEC.image_size
    images = rng.integers(256, size=(batch, len(VIEWS), height, width, 3), dtype=np.uint8)
    proprio = torch.from_numpy(rng.standard_normal((batch, PROPRIO.dim)).astype(np.float32))
    return PolicyInputs([INSTRUCTIONS[i % 2] for i in range(batch)], torch.from_numpy(images), proprio)
