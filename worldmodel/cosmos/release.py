"""The vendor's release: where its files lie, how to fetch them, and a world model that starts from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from worldmodel.cosmos.actions import ActionConvention
from worldmodel.cosmos.adaptation import learn_actions_anew, prepare
from worldmodel.cosmos.checkpoint import read_official, read_tensor
from worldmodel.cosmos.model import CosmosConfig, CosmosWorldModel
from worldmodel.cosmos.text import project_text
from worldmodel.cosmos.transformer import need_extra
from worldmodel.interface import WorldModelError, WorldModelSpec

REPOSITORY = "nvidia/Cosmos-Predict2.5-2B"  # gated: its licence is accepted on its page
TRANSFORMER = "robot/action-cond/38c6c645-7d41-4560-8eeb-6f4ddc0e6574_ema_bf16.pt"
TEXT = "robot/action-cond/cr1_empty_string_text_embeddings.pt"
AUTOENCODER_REPOSITORY = (
    "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"  # Wan 2.1's, which Cosmos-Predict2.5 uses as it is
)
AUTOENCODER = ("vae/config.json", "vae/diffusion_pytorch_model.safetensors")


@dataclass(frozen=True)
class Files:
    """transformer, text: the vendor's PyTorch files. autoencoder: a directory in diffusers' layout."""

    transformer: Path
    text: Path
    autoencoder: Path


def download() -> Files:
    """The release's files, fetched once into Hugging Face's cache: about 5 GB.

    Raises WorldModelError without a token, before the licence is accepted, and where the network fails.
    """
    transformer, text = (_fetch(REPOSITORY, name) for name in (TRANSFORMER, TEXT))  # gated: first to fail
    config, weights = (_fetch(AUTOENCODER_REPOSITORY, name) for name in AUTOENCODER)
    if config.parent != weights.parent:
        raise WorldModelError(f"{config.parent}: the autoencoder changed while it was fetched; start again")
    return Files(transformer, text, config.parent)


def start(
    spec: WorldModelSpec, config: CosmosConfig, device: torch.device, seed: int = 0
) -> CosmosWorldModel:
    """The released model, not adapted yet, version 0; downloads it where it is not in the cache."""
    need_extra()
    return start_from(download(), spec, config, device, seed)


def start_from(
    files: Files, spec: WorldModelSpec, config: CosmosConfig, device: torch.device, seed: int = 0
) -> CosmosWorldModel:
    """As `start`, from files at hand. seed: of the weights that are new. Raises WorldModelError for foreign files."""
    from diffusers import AutoencoderKLWan

    official = read_official(files.transformer)
    text = project_text(read_tensor(files.text), official.text_projection)
    network = official.transformer()
    generator = torch.Generator().manual_seed(seed)
    if config.actions.convention is ActionConvention.LEARNED:
        learn_actions_anew(network, spec.action_dim, generator)
    prepare(network, config.adapt, config.lora_rank, config.precision, generator)
    autoencoder = AutoencoderKLWan.from_pretrained(files.autoencoder)
    return CosmosWorldModel(spec, config, network, autoencoder, text, device)


def _fetch(repository: str, name: str) -> Path:
    from huggingface_hub import errors, get_token, hf_hub_download

    def fetch(**how: Any) -> Path:
        return Path(hf_hub_download(repository, name, **how))

    try:
        return fetch(local_files_only=True)
    except errors.LocalEntryNotFoundError:
        pass
    if repository == REPOSITORY and get_token() is None:
        raise WorldModelError(
            f"{repository} is gated: accept its licence on https://huggingface.co/{repository}, then set HF_TOKEN or "
            "run `hf auth login`"
        )
    try:
        return fetch()
    except errors.GatedRepoError as error:
        raise WorldModelError(
            f"{repository}: this token has no access; accept the licence on https://huggingface.co/{repository}"
        ) from error
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WorldModelError(f"{repository}/{name}: cannot be fetched ({reason})") from error
