"""The text condition as a constant: the empty prompt's embedding, projected once, instead of a 7B text encoder."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from worldmodel.interface import WorldModelError


def project_text(embedding: Tensor, projection: tuple[Tensor, Tensor]) -> Tensor:
    """gelu(embedding W^T + b): (1, L, in) or (L, in) to (1, L, out) float32.

    The released action model has only ever seen one text, so its 102.8 M projection weights are applied here, once,
    and then dropped. Raises WorldModelError for an embedding of another width, or one that is zero.
    """
    weight, bias = projection
    if embedding.ndim == 2:
        embedding = embedding[None]
    if embedding.ndim != 3 or embedding.shape[0] != 1 or embedding.shape[2] != weight.shape[1]:
        raise WorldModelError(
            f"text embedding: expected (1, length, {weight.shape[1]}), got {tuple(embedding.shape)}; it and the "
            "transformer must come from the same release"
        )
    if not torch.isfinite(embedding).all() or not embedding.any():
        raise WorldModelError(
            "text embedding: expected finite values that are not all zero; download it again"
        )
    return F.gelu(F.linear(embedding.float(), weight.float(), bias.float()))
