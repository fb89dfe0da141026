"""The flow-warp network: context frames and actions in, and out how the pixels of the last real frame move.

One pass predicts, for each view, where each pixel comes from, how much of it is kept, and what is painted instead.
Motions compose, so every imagined frame resamples the last real frame once and stays sharp.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class NetworkConfig:
    """Size of the network. pixels: side at which motion is predicted, whatever the size of the views.

    stride: how many steps ahead one pass sees; what lies farther starts again from its last frames.
    unshuffle: side of the pixel blocks that become channels. channels: of each level, halving the resolution.
    """

    pixels: int = 64
    stride: int = 4
    unshuffle: int = 4
    channels: list[int] = field(default_factory=lambda: [64, 96, 128])
    embedding: int = 128

    def __post_init__(self) -> None:
        coarsest = self.unshuffle * 2 ** (len(self.channels) - 1)
        if self.stride < 1:
            raise ValueError(f"network.stride: expected >= 1, got {self.stride}")
        if not self.channels or self.unshuffle < 1 or self.pixels % coarsest:
            raise ValueError(
                f"network: expected pixels in multiples of unshuffle * 2^(levels - 1) = {coarsest}, got {self.pixels}"
            )
        if any(c < 16 or c % 16 for c in self.channels) or self.embedding < 8:
            raise ValueError(
                f"network: expected channels in multiples of 16 and embedding >= 8, got {self.channels} and "
                f"{self.embedding}"
            )


@dataclass(frozen=True)
class Layers:
    """Where the pixels of B frames of V views come from, at the network's size.

    shift: (B, V, 2, h, w) from each pixel to its place in the last real frame, in half-widths and half-heights.
    keep: (B, V, 1, h, w) in [0, 1], share of that pixel. paint: (B, V, 3, h, w), what is added, in [-1, 1].
    """

    shift: Tensor
    keep: Tensor
    paint: Tensor

    def then(self, motion: Layers) -> Layers:
        """These layers, moved once more by `motion`."""
        stacked = torch.cat((self.shift, self.keep, self.paint), dim=2).flatten(0, 1)
        moved = warp(stacked, motion.shift.flatten(0, 1)).view(*self.shift.shape[:2], 6, *stacked.shape[-2:])
        shift, keep, paint = torch.split(moved, [2, 1, 3], dim=2)
        return Layers(
            shift=shift + motion.shift,
            keep=motion.keep * keep,
            paint=motion.keep * paint + (1.0 - motion.keep) * motion.paint,
        )

    def render(self, view: int, anchor: Tensor) -> tuple[Tensor, Tensor]:
        """The frame of one view (B, 3, H, W), from its last real frame `anchor` of that size, in [-1, 1].

        And (B,), by how much painting changed it: mean absolute difference to the moved frame, in half-ranges.
        """
        layers = torch.cat((self.shift[:, view], self.keep[:, view], self.paint[:, view]), dim=1)
        if layers.shape[-2:] != anchor.shape[-2:]:
            layers = F.interpolate(layers, anchor.shape[-2:], mode="bilinear", align_corners=False)
        shift, keep, paint = torch.split(layers, [2, 1, 3], dim=1)
        moved = warp(anchor, shift)
        frame = keep * moved + paint
        return frame, (frame - moved).abs().mean(dim=(1, 2, 3))

    @classmethod
    def identity(cls, like: Layers) -> Layers:
        """Nothing moved, all kept."""
        return cls(torch.zeros_like(like.shift), torch.ones_like(like.keep), torch.zeros_like(like.paint))


def warp(image: Tensor, shift: Tensor) -> Tensor:
    """Sample `image` (B, C, h, w) at each pixel's place plus `shift` (B, 2, h, w), bilinear, the border repeated."""
    grid = pixel_centres(image) + shift.permute(0, 2, 3, 1)
    return F.grid_sample(image, grid, mode="bilinear", padding_mode="border", align_corners=False)


def pixel_centres(image: Tensor) -> Tensor:
    """(h, w, 2): x and y of the pixel centres of `image` (..., h, w), the picture spanning [-1, 1]."""
    height, width = image.shape[-2:]
    y = (2.0 * torch.arange(height, device=image.device) + 1.0) / height - 1.0
    x = (2.0 * torch.arange(width, device=image.device) + 1.0) / width - 1.0
    return torch.stack((x.expand(height, width), y[:, None].expand(height, width)), dim=-1)


class FlowWarp(nn.Module):
    """Predicts the motion from the last of K frames to one of the next `stride`, given the actions in between."""

    def __init__(self, num_views: int, context_frames: int, action_dim: int, config: NetworkConfig) -> None:
        super().__init__()
        self.num_views, self._unshuffle, self.stride = num_views, config.unshuffle, config.stride
        self._past = context_frames - 1
        num_actions = (self._past + config.stride) * action_dim
        channels, width = config.channels, config.embedding
        block = config.unshuffle**2
        self.embed = nn.Sequential(
            nn.Linear(num_actions + config.stride, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        self.enter = nn.Conv2d(3 * num_views * context_frames * block, channels[0], 1)
        side = config.pixels // config.unshuffle
        self.place = nn.Parameter(torch.zeros(channels[0], side, side))
        before = [channels[0], *channels[:-1]]
        self.down = nn.ModuleList(Residual(a, b, width) for a, b in zip(before, channels, strict=True))
        self.shrink = nn.ModuleList(nn.Conv2d(c, c, 3, stride=2, padding=1) for c in channels[:-1])
        deepest = channels[-1]
        self.middle = nn.ModuleList(
            (Residual(deepest, deepest, width), Attention(deepest), Residual(deepest, deepest, width))
        )
        below = [*channels[:-1], deepest]
        self.up = nn.ModuleList(Residual(a + b, b, width) for a, b in zip(below, channels, strict=True))
        self.grow = nn.ModuleList(nn.Conv2d(b, a, 1) for a, b in itertools.pairwise(channels))
        leave = nn.Conv2d(channels[0], 6 * num_views * block, 1)
        self.leave = nn.Sequential(nn.GroupNorm(channels[0] // 16, channels[0]), nn.SiLU(), leave)
        self.whole = nn.Sequential(nn.Linear(width + deepest, 128), nn.SiLU(), nn.Linear(128, num_views * 12))
        self.background = nn.Parameter(torch.zeros(num_views, 3, config.pixels, config.pixels))
        _zero(leave)
        _zero(self.whole[2])
        assert leave.bias is not None
        with torch.no_grad():  # begin with nearly everything kept
            leave.bias.view(num_views, 6, block)[:, 2] = 2.0

    def set_background(self, frames: Tensor) -> None:
        """Begin by painting the median of `frames` (N, V, 3, h, w), which is what a fixed camera's foreground hides."""
        median = frames.median(dim=0).values
        with torch.no_grad():
            self.background.copy_(torch.atanh(median.clamp(-0.98, 0.98)))

    def forward(self, frames: Tensor, actions: Tensor, ahead: Tensor) -> Layers:
        """The motion to the frame `ahead` (B,) steps away, 1 to `stride`; actions behind it are not looked at.

        frames: (B, K, V, 3, h, w) in [-1, 1] at the network's size. actions: (B, K - 1 + stride, A) normalised.
        """
        known = torch.arange(actions.shape[1], device=actions.device) < (self._past + ahead)[:, None]
        asked = F.one_hot(ahead - 1, self.stride).to(actions.dtype)
        embedding = self.embed(torch.cat(((actions * known[..., None]).flatten(1), asked), dim=1))
        x = self.enter(F.pixel_unshuffle(frames.flatten(1, 3), self._unshuffle))
        x = x + self.place.to(x.dtype)
        skips = []
        for level, residual in enumerate(self.down):
            x = residual(x, embedding)
            skips.append(x)
            if level < len(self.shrink):
                x = self.shrink[level](x)
        first, attention, second = self.middle
        x = second(attention(first(x, embedding)), embedding)
        pooled = x.mean(dim=(2, 3))
        for level in reversed(range(len(self.up))):
            x = self.up[level](torch.cat((x, skips[level]), dim=1), embedding)
            if level > 0:
                x = F.interpolate(self.grow[level - 1](x), scale_factor=2.0)
        out = F.pixel_shuffle(self.leave(x), self._unshuffle).float()
        shift, keep, paint = torch.split(
            out.view(len(out), self.num_views, 6, *out.shape[-2:]), [2, 1, 3], dim=2
        )
        with torch.autocast(x.device.type, enabled=False):  # bfloat16 is too coarse for coordinates
            whole = 0.3 * self.whole(torch.cat((embedding, pooled), dim=1).float())
        moved = torch.einsum("bvck,khw->bvchw", whole.view(-1, self.num_views, 2, 6), _basis(out))
        return Layers(moved + 0.25 * shift, torch.sigmoid(keep), torch.tanh(paint + self.background))


def _basis(image: Tensor) -> Tensor:
    """(6, h, w): 1, x, y, xy, x^2, y^2, in which the motion of a camera is nearly linear."""
    x, y = pixel_centres(image).unbind(-1)
    return torch.stack((torch.ones_like(x), x, y, x * y, x * x, y * y))


class Residual(nn.Module):
    """Two 3x3 convolutions, each behind a group norm whose scale and offset come from the embedding."""

    def __init__(self, entering: int, leaving: int, embedding: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = AdaptiveNorm(entering, embedding), nn.Conv2d(entering, leaving, 3, padding=1)
        self.norm2, self.conv2 = AdaptiveNorm(leaving, embedding), nn.Conv2d(leaving, leaving, 3, padding=1)
        self.skip = nn.Identity() if entering == leaving else nn.Conv2d(entering, leaving, 1)
        _zero(self.conv2)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x, embedding)))
        out: Tensor = self.skip(x) + self.conv2(F.silu(self.norm2(y, embedding)))
        return out


class AdaptiveNorm(nn.Module):
    """Group norm with scale and offset from an embedding; begins as a plain norm."""

    def __init__(self, channels: int, embedding: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(channels // 16, channels, affine=False)
        self.linear = nn.Linear(embedding, 2 * channels)
        _zero(self.linear)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        scale, offset = self.linear(embedding)[:, :, None, None].chunk(2, dim=1)
        out: Tensor = self.norm(x) * (1.0 + scale) + offset
        return out


class Attention(nn.Module):
    """Self-attention over the pixels, heads of 32 channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.heads = max(1, channels // 32)
        self.norm = nn.GroupNorm(1, channels)
        self.project = nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)
        _zero(self.out)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.norm(x)).flatten(2).unflatten(1, (3, self.heads, -1)).transpose(-1, -2)
        mixed = F.scaled_dot_product_attention(*parts.unbind(1)).transpose(-1, -2)
        out: Tensor = x + self.out(mixed.flatten(1, 2).view_as(x))
        return out


def _zero(layer: nn.Module) -> None:
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
