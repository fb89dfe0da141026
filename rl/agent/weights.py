"""Named weights: checked before they are used, copied before they leave."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class WeightsError(ValueError):
    """Weights that must not be used: other names, shapes or inputs, or values that are not finite."""


def check_weights(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise WeightsError unless `tensors` has the names, shapes and dtypes of `expected` and is finite."""
    missing, unknown = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or unknown:
        raise WeightsError(
            f"weights: missing {missing[:4]}, not expected {unknown[:4]}; use the same configuration"
        )
    for name, target in expected.items():
        tensor = tensors[name]
        if tensor.shape != target.shape or tensor.dtype != target.dtype:
            raise WeightsError(
                f"weights {name}: expected {tuple(target.shape)} {target.dtype}, got {tuple(tensor.shape)} "
                f"{tensor.dtype}; use the same configuration"
            )
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise WeightsError(
                f"weights {name}: expected finite values, got NaN or infinity; keep the old weights"
            )


def copied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, apart from what learns on."""
    return {name: weight.detach().to("cpu", copy=True).contiguous() for name, weight in weights.items()}
