"""Tiny random stand-ins for the vendor's files: a checkpoint with official names, an autoencoder, clips in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot.types import Clip
from worldmodel.cosmos.adaptation import Adapt, Precision, learn_actions_anew, prepare
from worldmodel.cosmos.checkpoint import translate
from worldmodel.cosmos.model import CosmosConfig, CosmosWorldModel
from worldmodel.cosmos.release import Files
from worldmodel.cosmos.text import project_text
from worldmodel.interface import ActionNormalisation, WorldModelSpec

HEADS, HEAD_DIM, LAYERS, RANK, TEXT, RAW_TEXT, HIDDEN = 2, 32, 2, 16, 32, 96, 40
WIDTH = HEADS * HEAD_DIM
VIEWS = {"side": (16, 24), "wrist": (16, 16)}
CPU = torch.device("cpu")


def official_checkpoint(action_inputs: int = 28, seed: int = 0) -> dict[str, Any]:
    """Random weights under the vendor's names, with all that its files carry besides weights."""
    shapes = {
        "x_embedder.proj.1.weight": (WIDTH, 72),
        "t_embedder.1.linear_1.weight": (WIDTH, WIDTH),
        "t_embedder.1.linear_2.weight": (3 * WIDTH, WIDTH),
        "t_embedding_norm.weight": (WIDTH,),
        "final_layer.adaln_modulation.1.weight": (RANK, WIDTH),
        "final_layer.adaln_modulation.2.weight": (2 * WIDTH, RANK),
        "final_layer.linear.weight": (64, WIDTH),
        "crossattn_proj.0.weight": (TEXT, RAW_TEXT),
        "crossattn_proj.0.bias": (TEXT,),
    }
    for name, width in (("B_D", WIDTH), ("B_3D", 3 * WIDTH)):
        shapes[f"action_embedder_{name}.fc1.weight"] = (HIDDEN, action_inputs)
        shapes[f"action_embedder_{name}.fc1.bias"] = (HIDDEN,)
        shapes[f"action_embedder_{name}.fc2.weight"] = (width, HIDDEN)
        shapes[f"action_embedder_{name}.fc2.bias"] = (width,)
    for layer in range(LAYERS):
        block = f"blocks.{layer}."
        for kind in ("self_attn", "cross_attn", "mlp"):
            shapes[f"{block}adaln_modulation_{kind}.1.weight"] = (RANK, WIDTH)
            shapes[f"{block}adaln_modulation_{kind}.2.weight"] = (3 * WIDTH, RANK)
        for kind, entering in (("self_attn", WIDTH), ("cross_attn", TEXT)):
            shapes[f"{block}{kind}.q_proj.weight"] = (WIDTH, WIDTH)
            shapes[f"{block}{kind}.k_proj.weight"] = (WIDTH, entering)
            shapes[f"{block}{kind}.v_proj.weight"] = (WIDTH, entering)
            shapes[f"{block}{kind}.output_proj.weight"] = (WIDTH, WIDTH)
            shapes[f"{block}{kind}.q_norm.weight"] = (HEAD_DIM,)
            shapes[f"{block}{kind}.k_norm.weight"] = (HEAD_DIM,)
        shapes[f"{block}mlp.layer1.weight"] = (4 * WIDTH, WIDTH)
        shapes[f"{block}mlp.layer2.weight"] = (WIDTH, 4 * WIDTH)
    generator = torch.Generator().manual_seed(seed)
    content: dict[str, Any] = {
        f"net.{name}": 0.15 * torch.randn(shape, generator=generator) for name, shape in shapes.items()
    }
    content |= {
        "net.pos_embedder.seq": torch.arange(128.0),
        "net.pos_embedder.dim_spatial_range": torch.zeros(3),
        "net.pos_embedder.dim_temporal_range": torch.zeros(3),
        "net.accum_iteration": torch.tensor(0),
        "net.accum_video_sample_counter": torch.tensor(0),
        "net.blocks.0.self_attn.q_norm._extra_state": torch.zeros(1, dtype=torch.uint8),
    }
    return content


def text_embedding(seed: int = 1) -> Tensor:
    return torch.randn(1, 5, RAW_TEXT, generator=torch.Generator().manual_seed(seed))


def tiny_autoencoder(seed: int = 2) -> Any:
    from diffusers import AutoencoderKLWan

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoencoderKLWan(base_dim=8, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1)


def tiny_config(**changes: Any) -> CosmosConfig:
    settings: dict[str, Any] = {
        "height": 16,
        "width": 32,
        "adapt": Adapt.FULL,
        "lora_rank": 2,
        "batch": 2,
        "learning_rate": 2e-3,
        "action_learning_rate": 2e-3,
        "num_denoising_steps": 4,
        "precision": Precision.FLOAT32,
    }
    return CosmosConfig(**(settings | changes))


def tiny_spec(action: ActionNormalisation | None = None) -> WorldModelSpec:
    return WorldModelSpec(VIEWS, action or ActionNormalisation.identity(7), context_frames=2, max_horizon=24)


def tiny_model(config: CosmosConfig | None = None) -> CosmosWorldModel:
    """The whole model, as built from the vendor's files, with its released action embedding kept."""
    config = config or tiny_config()
    official = translate(official_checkpoint(), "tiny")
    network = official.transformer()
    prepare(network, config.adapt, config.lora_rank, config.precision, torch.Generator().manual_seed(3))
    text = project_text(text_embedding(), official.text_projection)
    return CosmosWorldModel(tiny_spec(), config, network, tiny_autoencoder(), text, CPU)


def model_of(spec: WorldModelSpec) -> CosmosWorldModel:
    """A model of any spec, with an action embedding that is learned anew."""
    official = translate(official_checkpoint(), "tiny")
    network, config, generator = official.transformer(), tiny_config(), torch.Generator().manual_seed(3)
    learn_actions_anew(network, spec.action_dim, generator)
    prepare(network, config.adapt, config.lora_rank, config.precision, generator)
    text = project_text(text_embedding(), official.text_projection)
    return CosmosWorldModel(spec, config, network, tiny_autoencoder(), text, CPU)


def release(directory: Path) -> Files:
    """The vendor's files, tiny, as they would lie in the cache."""
    torch.save(official_checkpoint(), directory / "transformer.pt")
    torch.save(text_embedding().bfloat16(), directory / "text.pt")
    tiny_autoencoder().save_pretrained(directory / "vae")
    return Files(directory / "transformer.pt", directory / "text.pt", directory / "vae")


def frames(rng: np.random.Generator, batch: int, length: int) -> dict[str, NDArray[np.uint8]]:
    return {
        view: rng.integers(0, 256, (batch, length, *size, 3)).astype(np.uint8) for view, size in VIEWS.items()
    }


class FixedClips:
    """Always the same `n` clips."""

    size = 2

    def __init__(self, seed: int = 4, images: Mapping[str, NDArray[np.uint8]] | None = None) -> None:
        self._seed, self._images = seed, images

    def sample(self, n: int, length: int, rng: np.random.Generator, history: int = 0) -> Clip:
        del rng
        fixed = np.random.default_rng(self._seed)
        steps = history + length
        valid = np.ones((n, steps), np.bool_)
        valid[0, -4:] = False
        action = fixed.uniform(-1, 1, (n, steps, 7)).astype(np.float32) * valid[..., None]
        return Clip(
            images=self._images or frames(fixed, n, steps + 1),
            proprio=np.zeros((n, steps + 1, 1), np.float32),
            action=action,
            reward=np.zeros((n, steps), np.float32),
            terminated=np.zeros((n, steps), np.bool_),
            valid=valid,
            episode=np.zeros(n, np.int64),
            step=np.zeros(n, np.int64),
            history=history,
        )
