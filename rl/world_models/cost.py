"""What a large world model will need, said before anything is downloaded, and refused where it cannot work."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from rl.world_models.config import FinetuneWorldModelConfig
from worldmodel.cosmos.cost import GIB, Cost, cost, measured_rate
from worldmodel.cosmos.transformer import CHUNK, need_extra
from worldmodel.factory import ModelKind
from worldmodel.interface import WorldModelError

NOMINAL_RATE = 0.4 * 790e12  # of an H200 in bfloat16, for machines that cannot be measured
ROLLOUTS_PER_CLIP = 3  # of judging: PSNR, and twice for action following


def foretell(config: FinetuneWorldModelConfig, views: int) -> Iterator[str]:
    """Lines for people with memory and time; nothing for a small model.

    Raises WorldModelError, after the lines, without a GPU or with one that is too small.
    """
    if config.model.kind is not ModelKind.COSMOS:
        return
    need_extra()
    needed, device = cost(config.model.cosmos, views), torch.device(config.device)
    usable = device.type == "cuda" and torch.cuda.is_available()
    rate = measured_rate(device) if usable else NOMINAL_RATE
    yield f"Cosmos-Predict2.5-2B, computed for {'this GPU' if usable else 'an H200'}:"
    yield from needed.lines(config.model.cosmos, views, rate)
    yield _duration(config, needed, rate)
    if not usable:
        raise WorldModelError(
            f"device={config.device}: the Cosmos world model needs a CUDA GPU, and "
            f"{'PyTorch finds none' if device.type == 'cuda' else 'this is none'}; use model.kind=flow_warp here, or "
            "device=cuda on a machine with one"
        )
    free, want = torch.cuda.mem_get_info(device)[0], max(needed.adapt_bytes, needed.rollout_bytes)
    if free < want:
        raise WorldModelError(
            f"{device}: {free / GIB:.0f} GiB are free, about {want / GIB:.0f} GiB are needed; lower "
            "model.cosmos.batch and model.cosmos.rollout_batch, or use model.cosmos.adapt=lora"
        )


def _duration(config: FinetuneWorldModelConfig, needed: Cost, rate: float) -> str:
    chunks = math.ceil(config.horizon / CHUNK)
    futures = config.clips * ROLLOUTS_PER_CLIP * config.model.cosmos.num_samples
    judging = f"judging {config.clips} held-out clips {futures * chunks * needed.chunk_operations / rate / 60:.0f} min"
    if config.steps is None:
        return f"{judging}; choose steps=<n> cpu_minutes=null: processor time says nothing of a GPU"
    return f"{config.steps} steps {config.steps * needed.step_operations / rate / 60:.0f} min, {judging}"
