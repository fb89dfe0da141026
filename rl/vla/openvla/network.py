"""OpenVLA's network from transformers' classes: two vision towers, a projector, Llama 2; all actions in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rl.agent.features import ProprioFeatures
from rl.vla.openvla.tokens import BINS
from rl.vla.policy import PolicyError, PolicySpec

HEADS = 16  # of both towers; their tensors do not tell
NORM_EPS = 1e-6


def need_extra() -> None:
    """Raise PolicyError where the libraries are not installed."""
    try:
        import accelerate  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
        import peft  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise PolicyError(
            f"openvla: needs {error.name}, which is not installed; pip install 'groundhog[vla]'"
        ) from error


@dataclass(frozen=True)
class TowerShape:
    """A vision transformer. layers: in the checkpoint; the last one is never computed. mlp: hidden width."""

    width: int
    layers: int
    mlp: int
    patch: int
    image_size: int
    registers: int = 0

    @property
    def patches(self) -> int:
        return (self.image_size // self.patch) ** 2


@dataclass(frozen=True)
class NetworkShape:
    """text: fields of a LlamaConfig. action_tokens: id behind the last action token, which are the 256 before it."""

    dino: TowerShape
    siglip: TowerShape
    text: Mapping[str, Any]
    action_tokens: int


class DinoTower(nn.Module):
    """DINOv2 with registers: (N, 3, S, S) to the patches (N, P, D) of the last layer but one, without a norm."""

    def __init__(self, shape: TowerShape) -> None:
        super().__init__()
        from transformers import Dinov2WithRegistersConfig
        from transformers.models.dinov2_with_registers import modeling_dinov2_with_registers as dino

        config = Dinov2WithRegistersConfig(
            hidden_size=shape.width,
            num_hidden_layers=shape.layers - 1,
            num_attention_heads=HEADS,
            mlp_ratio=shape.mlp // shape.width,
            image_size=shape.image_size,
            patch_size=shape.patch,
            num_register_tokens=shape.registers,
            layer_norm_eps=NORM_EPS,
            hidden_act="gelu",
            attn_implementation="sdpa",
        )
        self._before_patches = 1 + shape.registers
        self.embeddings = dino.Dinov2WithRegistersEmbeddings(config)
        self.encoder = dino.Dinov2WithRegistersEncoder(config)

    def forward(self, images: Tensor) -> Tensor:
        hidden: Tensor = self.encoder(self.embeddings(images)).last_hidden_state
        return hidden[:, self._before_patches :]


class SiglipTower(nn.Module):
    """SigLIP: (N, 3, S, S) to the patches (N, P, D) of the last layer but one, without a norm."""

    def __init__(self, shape: TowerShape) -> None:
        super().__init__()
        from transformers import SiglipVisionConfig
        from transformers.models.siglip import modeling_siglip as siglip

        config = SiglipVisionConfig(
            hidden_size=shape.width,
            intermediate_size=shape.mlp,
            num_hidden_layers=shape.layers - 1,
            num_attention_heads=HEADS,
            image_size=shape.image_size,
            patch_size=shape.patch,
            layer_norm_eps=NORM_EPS,
            hidden_act="gelu",  # exact, as in the library that OpenVLA was trained with; SigLIP's own is the tanh one
            attn_implementation="sdpa",
        )
        self.embeddings = siglip.SiglipVisionEmbeddings(config)
        self.encoder = siglip.SiglipEncoder(config)

    def forward(self, images: Tensor) -> Tensor:
        hidden: Tensor = self.encoder(self.embeddings(images)).last_hidden_state
        return hidden


class Projector(nn.Module):
    """Patches of both towers (N, P, D) to the width of the language model."""

    def __init__(self, vision: int, text: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(vision, 4 * vision)
        self.fc2 = nn.Linear(4 * vision, text)
        self.fc3 = nn.Linear(text, text)

    def forward(self, patches: Tensor) -> Tensor:
        return self.fc3(F.gelu(self.fc2(F.gelu(self.fc1(patches)))))  # type: ignore[no-any-return]


class ProprioProjector(nn.Module):
    """Readings (B, P) in SI units to one token (B, 1, D); new here, since every robot has other readings."""

    def __init__(self, spec: PolicySpec, text: int) -> None:
        super().__init__()
        self.features = ProprioFeatures(spec.proprio)
        self.fc1 = nn.Linear(self.features.out_dim, text)
        self.fc2 = nn.Linear(text, text)

    def forward(self, proprio: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(self.features(proprio))))[:, None]  # type: ignore[no-any-return]


class OpenVLANetwork(nn.Module):
    """Logits of every bin of every action entry of a chunk, from one pass (OpenVLA-OFT's parallel decoding).

    Weights of the checkpoint stand on the meta device until `checkpoint.load_base` brings them; the rest is real.
    """

    def __init__(self, shape: NetworkShape, spec: PolicySpec) -> None:
        super().__init__()
        from accelerate import init_empty_weights  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from transformers import LlamaConfig, LlamaForCausalLM

        text = LlamaConfig(**shape.text, attn_implementation="sdpa")
        with init_empty_weights(include_buffers=False):  # buffers are tables in no checkpoint
            self.dino, self.siglip = DinoTower(shape.dino), SiglipTower(shape.siglip)
            self.projector = Projector(shape.dino.width + shape.siglip.width, text.hidden_size)
            self.language_model = LlamaForCausalLM(text)
        self.proprio_projector = ProprioProjector(spec, text.hidden_size)
        self._shape, self._chunk = (spec.chunk, spec.action_dim), spec.chunk * spec.action_dim
        self._first_token = shape.action_tokens - BINS
        self.begin, self._end = text.bos_token_id, text.eos_token_id

    def forward(self, dino: Tensor, siglip: Tensor, proprio: Tensor, prompt: Tensor, real: Tensor) -> Tensor:
        """Logits (B, C, A, 256), ascending with the action.

        dino, siglip: (B, V, 3, S, S). proprio: (B, P). prompt: (B, L) ids without the begin token, left-padded where
        `real` (B, L) is False.
        """
        batch = len(prompt)
        context = [self._embed(self.begin, batch), self._see(dino, siglip), self._feel(proprio)]
        before = sum(part.shape[1] for part in context)
        words = self.language_model.model.embed_tokens(prompt)
        slots = words.new_zeros(batch, self._chunk, words.shape[-1])  # the action tokens, not known yet
        sequence = torch.cat((*context, words, slots, self._embed(self._end, batch)), dim=1)
        kept = torch.cat((real.new_ones(batch, before), real, real.new_ones(batch, self._chunk + 1)), dim=1)
        hidden = self.language_model.model(
            inputs_embeds=sequence,
            attention_mask=attend(kept),
            position_ids=positions(kept),
            use_cache=False,
        ).last_hidden_state
        # As in training on text, the place before a token predicts it: the last word the first action token.
        first = before + prompt.shape[1] - 1
        weight = self.language_model.lm_head.weight[self._first_token : self._first_token + BINS]
        logits = F.linear(hidden[:, first : first + self._chunk], weight)
        return logits.flip(-1).view(batch, *self._shape, BINS)  # the highest action has the lowest id

    def _see(self, dino: Tensor, siglip: Tensor) -> Tensor:
        """(B, V * P, D): each view alone through the towers, its patches behind those of the view before."""
        patches = torch.cat((self.dino(dino.flatten(0, 1)), self.siglip(siglip.flatten(0, 1))), dim=-1)
        projected: Tensor = self.projector(patches)
        return self._like_words(projected.view(len(dino), -1, projected.shape[-1]))

    def _feel(self, proprio: Tensor) -> Tensor:
        return self._like_words(self.proprio_projector(proprio))

    def _embed(self, token: int, batch: int) -> Tensor:
        embedding = self.language_model.model.embed_tokens.weight
        return embedding[token].expand(batch, 1, -1)  # type: ignore[no-any-return]

    def _like_words(self, tokens: Tensor) -> Tensor:
        return tokens.to(self.language_model.model.embed_tokens.weight.dtype)


def attend(kept: Tensor) -> Tensor:
    """Who sees whom, (B, 1, S, S) bool: everyone everything, words and action slots alike, except padding.

    OFT trains without a causal mask, so that a slot sees the whole chunk.
    """
    return kept[:, None, None, :].expand(-1, 1, kept.shape[1], -1)


def positions(kept: Tensor) -> Tensor:
    """Places (B, S) as if there were no padding."""
    return (kept.long().cumsum(dim=1) - 1).clamp(min=0)
