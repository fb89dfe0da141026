"""The video transformer of Cosmos-Predict2.5 with actions added to its time embedding, around diffusers' backbone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from worldmodel.interface import WorldModelError

FRAMES_PER_LATENT = 4  # the video autoencoder maps 1 + 4k frames to 1 + k latent frames
CHUNK = 12  # actions, and so frames, that are imagined at once
PATCH = 2  # latent pixels per token, in height and in width
# Not stored in a checkpoint. The released action model inherits 3, 3 and no frame-rate scaling from its base model.
ROPE_SCALE = (1.0, 3.0, 3.0)


def need_extra() -> None:
    """Raise WorldModelError where diffusers or peft is not installed."""
    try:
        import diffusers  # noqa: F401
        import peft  # noqa: F401
    except ImportError as error:
        raise WorldModelError(
            f"the Cosmos world model needs {error.name}; install it with: pip install 'groundhog[diffusion]'"
        ) from error


@dataclass(frozen=True)
class TransformerConfig:
    """Shape of the network; the defaults are those of the released Cosmos-Predict2.5-2B robot/action-cond.

    whole_chunk: one embedding sees all actions of a chunk and goes to every latent frame (an older variant);
    otherwise each latent frame has its own four.
    """

    heads: int = 16
    head_dim: int = 128
    layers: int = 28
    mlp_ratio: float = 4.0
    adaln_rank: int = 256
    latent_channels: int = 16
    text_dim: int = 1024
    action_dim: int = 7
    action_hidden: int = 8192
    whole_chunk: bool = False

    @property
    def width(self) -> int:
        return self.heads * self.head_dim

    @property
    def action_inputs(self) -> int:
        """Numbers that one action embedding sees: 28 or, for a whole chunk, 84 with 7-dimensional actions."""
        return self.action_dim * (CHUNK if self.whole_chunk else FRAMES_PER_LATENT)


class ActionMLP(nn.Module):
    """fc2(gelu(fc1(actions))), kept in float32."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.fc2 = nn.Linear(hidden, outputs)

    def forward(self, actions: Tensor) -> Tensor:
        out: Tensor = self.fc2(F.gelu(self.fc1(actions), approximate="tanh"))
        return out

    def start_afresh(self, generator: torch.Generator) -> None:
        """Random first layer, zero second one: the actions change nothing until they are learned."""
        nn.init.kaiming_uniform_(self.fc1.weight, a=math.sqrt(5), generator=generator)
        nn.init.zeros_(self.fc1.bias)
        nn.init.zeros_(self.fc2.weight)
        nn.init.zeros_(self.fc2.bias)


class ActionTimeEmbedding(nn.Module):
    """diffusers' time embedding plus actions: norm(sin(t) + a_D) and mlp(sin(t)) + a_3D, in float32.

    The backbone calls it with (B*T,) noise levels; the action terms of that call are set just before.
    """

    def __init__(self, embedding: Any, config: TransformerConfig) -> None:
        super().__init__()
        self.embedding = embedding
        self.to_time = ActionMLP(config.action_inputs, config.action_hidden, config.width)
        self.to_adaln = ActionMLP(config.action_inputs, config.action_hidden, 3 * config.width)
        self._terms: tuple[Tensor, Tensor] | None = None

    def set_actions(self, actions: Tensor, moving: Tensor, whole_chunk: bool) -> None:
        """actions (B, n, A), moving (B, T) 1 where a latent frame is predicted and 0 where it is given."""
        batch, frames = moving.shape
        self._terms = None
        terms = []
        for mlp in (self.to_time, self.to_adaln):
            if whole_chunk:
                term = mlp(actions.reshape(batch, 1, -1)).expand(-1, frames, -1)
            else:
                term = mlp(actions.reshape(batch, frames - 1, -1))
                term = F.pad(term, (0, 0, 1, 0)) * moving[..., None]  # nothing moved before the first frame
            terms.append(term.flatten(0, 1))
        self._terms = (terms[0], terms[1])

    def forward(self, hidden: Tensor, noise_level: Tensor) -> tuple[Tensor, Tensor]:
        assert self._terms is not None
        to_time, to_adaln = self._terms
        with torch.autocast(hidden.device.type, enabled=False):
            time = self.embedding.time_proj(noise_level.float())
            adaln = self.embedding.t_embedder(time) + to_adaln
            # The sum comes before the norm: only then do the released weights mean what they were trained for.
            return adaln, self.embedding.norm(time + to_time)


class ActionTransformer(nn.Module):
    """Predicts the velocity of a noisy latent video, given its first latent frame, the actions and a constant text."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        from diffusers import CosmosTransformer3DModel

        self.config = config
        self.backbone = CosmosTransformer3DModel(
            in_channels=config.latent_channels + 2,  # and the masks of given frames and of padding
            out_channels=config.latent_channels,
            num_attention_heads=config.heads,
            attention_head_dim=config.head_dim,
            num_layers=config.layers,
            mlp_ratio=config.mlp_ratio,
            text_embed_dim=config.text_dim,
            adaln_lora_dim=config.adaln_rank,
            patch_size=(1, PATCH, PATCH),
            rope_scale=ROPE_SCALE,
            concat_padding_mask=False,  # done below: no picture of ours is padded
            extra_pos_embed_type=None,
            use_crossattn_projection=False,  # the text is constant, so it arrives projected
        )
        self.backbone.time_embed = ActionTimeEmbedding(self.backbone.time_embed, config)

    @property
    def time_embedding(self) -> ActionTimeEmbedding:
        embedding = self.backbone.time_embed
        assert isinstance(embedding, ActionTimeEmbedding)
        return embedding

    def action_mlps(self) -> tuple[ActionMLP, ActionMLP]:
        return self.time_embedding.to_time, self.time_embedding.to_adaln

    def forward(
        self, noisy: Tensor, noise_level: Tensor, text: Tensor, actions: Tensor, given: Tensor
    ) -> Tensor:
        """Velocity (B, C, T, H, W) of `noisy` (B, C, T, H, W).

        noise_level: (B,) in [0, 1], one for all frames. text: (B, L, text_dim), projected. actions: (B, n, A).
        given: (B, 1, T, H, W), 1 on latent frames that are known. H and W: multiples of PATCH.
        """
        batch, _, frames = noisy.shape[:3]
        expected = FRAMES_PER_LATENT * (frames - 1)
        if actions.shape != (batch, expected, self.config.action_dim):
            raise WorldModelError(
                f"actions: expected {(batch, expected, self.config.action_dim)} for {frames} latent frames, got "
                f"{tuple(actions.shape)}"
            )
        if self.config.whole_chunk and expected != CHUNK:
            raise WorldModelError(f"this model embeds whole chunks: expected {CHUNK} actions, got {expected}")
        with torch.autocast(noisy.device.type, enabled=False):
            self.time_embedding.set_actions(
                actions.float(), 1.0 - given[:, 0, :, 0, 0].float(), self.config.whole_chunk
            )
        # Per-frame noise levels, though all are equal, so that each frame gets its own actions.
        per_frame = noise_level.float().view(batch, 1, 1, 1, 1).expand(batch, 1, frames, 1, 1)
        velocity: Tensor = self.backbone(
            hidden_states=noisy,
            timestep=per_frame.contiguous(),
            encoder_hidden_states=text,
            condition_mask=torch.cat((given, torch.zeros_like(given)), dim=1).to(noisy.dtype),
            return_dict=False,
        )[0]
        return velocity
