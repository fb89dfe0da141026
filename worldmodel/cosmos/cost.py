"""What the model needs before it runs: parameters, memory and arithmetic, computed from its shapes and settings."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from worldmodel.cosmos.adaptation import Adapt, prepare, trained
from worldmodel.cosmos.model import LATENT_FRAMES, CosmosConfig
from worldmodel.cosmos.transformer import PATCH, ActionTransformer, TransformerConfig
from worldmodel.cosmos.views import LATENT_PIXEL

GIB = 2**30
TEXT_TOKENS = 512  # of the released, constant text
# The Wan 2.1 autoencoder, counted on its layers at 256 x 320: operations per pixel of a view.
AUTOENCODER_PARAMETERS = 126_892_531
ENCODE_FRAME, ENCODE_CHUNK, DECODE_CHUNK = 6.69e6, 66.8e6, 112.2e6
# Bytes per pixel of a view that are alive at once while it works in bfloat16.
ENCODE_BYTES, DECODE_BYTES = 7.5e3, 10.6e3
# Bytes per token and unit of width: one block that is computed again for its gradients, with those gradients; the
# input of each block that is kept for that; the embeddings of time, spread over tokens; a block without gradients.
BLOCK_BYTES, KEPT_BYTES, TIME_BYTES, FORWARD_BYTES = 240, 4, 32, 60
OVERHEAD_BYTES = 1.5 * GIB  # CUDA's context, workspaces of its libraries
# Share of a GPU's large-matrix rate that such a model is taken to reach.
EFFICIENCY = 0.4


@dataclass(frozen=True)
class Cost:
    """Of the transformer and its autoencoder, for one CosmosConfig and a number of views.

    adapt_bytes, rollout_bytes: peak of GPU memory, estimated to about a quarter. file_bytes: of a saved version.
    step_operations: of an optimiser step. chunk_operations: of twelve frames of one future, all views. A
    multiplication and an addition are two operations.
    """

    parameters: int
    trained: int
    weight_bytes: float
    adapt_bytes: float
    rollout_bytes: float
    file_bytes: float
    step_operations: float
    chunk_operations: float

    def lines(self, config: CosmosConfig, views: int, rate: float) -> list[str]:
        """For people. rate: operations per second that are really reached."""
        futures = config.num_samples
        return [
            f"{self.parameters / 1e9:.2f} B parameters, {self.trained / 1e6:.0f} M of them learn "
            f"({config.adapt.value}); {views} view(s) at {config.height}x{config.width}",
            f"memory: {self.adapt_bytes / GIB:.0f} GiB while adapting in batches of {config.batch}, "
            f"{self.rollout_bytes / GIB:.0f} GiB while imagining {config.rollout_batch} futures at once; "
            f"weights {self.weight_bytes / GIB:.1f} GiB, a saved version {self.file_bytes / GIB:.1f} GiB",
            f"time at {rate / 1e12:.0f} TFLOP/s: {self.step_operations / rate:.2f} s per adaptation step "
            f"({self.step_operations / 1e12:.0f} TFLOP); {futures * self.chunk_operations / rate:.2f} s per rollout "
            f"of 12 frames in {config.num_denoising_steps} steps ({futures} futures of "
            f"{self.chunk_operations / 1e12:.0f} TFLOP)",
        ]


def cost(config: CosmosConfig, views: int, shape: TransformerConfig | None = None) -> Cost:
    """Counts weights on the network itself, without memory for them; the rest follows from tokens and pixels."""
    shape = shape or TransformerConfig()
    with torch.device("meta"):
        network = ActionTransformer(shape)
        prepare(network, config.adapt, config.lora_rank, config.precision, torch.Generator("cpu"))
    weights = list(network.parameters())
    learning = sum(weight.numel() for _, weight in trained(network))
    constants = AUTOENCODER_PARAMETERS * config.precision.dtype.itemsize
    weight_bytes = sum(weight.numel() * weight.element_size() for weight in weights) + constants
    # Learning weights are cast for every use; those of the whole transformer are kept cast during a pass.
    cast = 2 * learning if config.adapt is Adapt.FULL else 0
    moments = 8 * learning  # float32, two of them; they stay while the model imagines
    tokens = views * (config.height // LATENT_PIXEL // PATCH) * (config.width // LATENT_PIXEL // PATCH)
    tokens *= LATENT_FRAMES
    pixels = views * config.height * config.width
    forward = forward_operations(shape, tokens, TEXT_TOKENS)
    # Forward, forward again where it is recomputed, and one product per weight for gradients of inputs; weights that
    # learn need a second one.
    passes = 4 if config.adapt is Adapt.FULL else 3
    kept = shape.layers * KEPT_BYTES + BLOCK_BYTES + TIME_BYTES
    per_clip = tokens * shape.width * kept
    return Cost(
        parameters=sum(weight.numel() for weight in weights),
        trained=learning,
        weight_bytes=weight_bytes,
        adapt_bytes=weight_bytes
        + moments
        + 4 * learning  # gradients, float32
        + cast
        + max(config.batch * per_clip, config.batch * pixels * ENCODE_BYTES)
        + OVERHEAD_BYTES,
        rollout_bytes=weight_bytes
        + moments
        + cast
        + config.rollout_batch * max(tokens * shape.width * FORWARD_BYTES, pixels * DECODE_BYTES)
        + OVERHEAD_BYTES,
        file_bytes=weight_bytes + moments,
        step_operations=config.batch * (passes * forward + pixels * ENCODE_CHUNK),
        chunk_operations=config.num_denoising_steps * forward + pixels * (ENCODE_FRAME + DECODE_CHUNK),
    )


def forward_operations(shape: TransformerConfig, tokens: int, text: int) -> float:
    """Operations of one pass over `tokens` tokens and `text` text tokens, without the few of the time embedding."""
    d, n = shape.width, tokens
    self_attention = 2 * n * 4 * d * d + 4 * n * n * d
    cross_attention = 2 * n * 2 * d * d + 2 * text * 2 * shape.text_dim * d + 4 * n * text * d
    feed_forward = 2 * n * 2 * shape.mlp_ratio * d * d
    scales = 3 * 2 * n * (d + 3 * d) * shape.adaln_rank  # computed per token, though equal within a frame
    ends = 2 * n * d * PATCH**2 * (2 * shape.latent_channels + 2) + 2 * n * (d + 2 * d) * shape.adaln_rank
    return shape.layers * (self_attention + cross_attention + feed_forward + scales) + ends


def measured_rate(device: torch.device, size: int = 8192, repeats: int = 20) -> float:
    """Operations per second to count on: bfloat16 products of large matrices on this GPU, times EFFICIENCY."""
    left, right = (torch.ones(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    for repeat in range(repeats + 3):
        if repeat == 3:  # the first ones choose kernels and raise the clock
            begin.record()
        torch.mm(left, right)
    end.record()
    torch.cuda.synchronize(device)
    seconds = float(begin.elapsed_time(end)) / 1000
    return EFFICIENCY * repeats * 2 * size**3 / seconds
