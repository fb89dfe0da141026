"""SmallPolicy: a language-conditioned policy that trains on a CPU, for simulated tasks, tests and first experiments."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rl.agent.encoders import EncoderConfig, FlattenHead, ScratchTrunk
from rl.agent.features import ProprioFeatures
from rl.agent.weights import copied
from rl.vla import files
from rl.vla.discrete import check_spec, check_tensors, chosen, draw
from rl.vla.policy import Decisions, PolicyInputs, PolicySpec

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class SmallConfig:
    """Sizes. chunk: actions per decision. bins: values of each motion entry, odd, so that one of them is rest.

    vocabulary: hashed words. words: of an instruction that are read. text_dim, feature_dim, hidden: widths.
    """

    chunk: int = 5
    bins: int = 21
    vocabulary: int = 512
    words: int = 16
    text_dim: int = 32
    feature_dim: int = 64
    hidden: int = 128

    def __post_init__(self) -> None:
        if self.bins < 3 or self.bins % 2 == 0:
            raise ValueError(f"policy.bins: expected an odd number >= 3, got {self.bins}")
        if min(self.chunk, self.words, self.text_dim, self.feature_dim, self.hidden) < 1:
            raise ValueError("policy: expected chunk, words, text_dim, feature_dim and hidden >= 1")
        if self.vocabulary < 2:
            raise ValueError(f"policy.vocabulary: expected >= 2, got {self.vocabulary}")


class TextEncoder(nn.Module):
    """B instructions to (B, D): hashed words through a GRU. Words that hash alike look alike; there are few here."""

    def __init__(self, config: SmallConfig) -> None:
        super().__init__()
        self._vocabulary, self._words = config.vocabulary, config.words
        self.embedding = nn.Embedding(config.vocabulary, config.text_dim)
        self.gru = nn.GRU(config.text_dim, config.text_dim, batch_first=True)

    def forward(self, texts: Sequence[str]) -> Tensor:
        distinct = sorted(set(texts))
        device = self.embedding.weight.device
        last = []
        for text in distinct:  # a handful per run; each at its own length, so that padding cannot matter
            words = _WORD.findall(text.lower())[: self._words] or [""]
            tokens = [zlib.crc32(word.encode()) % self._vocabulary for word in words]
            states, _ = self.gru(self.embedding(torch.tensor([tokens], device=device)))
            last.append(states[0, -1])
        place = {text: index for index, text in enumerate(distinct)}
        return torch.stack(last)[torch.tensor([place[text] for text in texts], device=device)]


class SmallNetwork(nn.Module):
    """Views through one convolutional trunk, proprio at two scales, text as FiLM on both; logits (B, C, A, bins)."""

    def __init__(self, config: SmallConfig, spec: PolicySpec) -> None:
        super().__init__()
        self._shape = (spec.chunk, spec.action_dim, config.bins)
        self.text = TextEncoder(config)
        self.proprio = ProprioFeatures(spec.proprio)
        width = self.proprio.out_dim
        self.trunk: ScratchTrunk | None = None
        if spec.views:
            self.trunk = ScratchTrunk(EncoderConfig())
            with torch.no_grad():
                maps = self.trunk(torch.zeros(1, *spec.image_size, 3, dtype=torch.uint8))
            self.image_head = FlattenHead(len(spec.views) * maps[0].numel(), config.feature_dim)
            width += config.feature_dim
        self.first = nn.Linear(width, config.hidden)
        self.film = nn.Linear(config.text_dim, 2 * config.hidden)
        self.norm = nn.LayerNorm(config.hidden)
        self.second = nn.Sequential(
            nn.Linear(config.hidden, config.hidden), nn.LayerNorm(config.hidden), nn.ReLU()
        )
        self.head = nn.Linear(config.hidden, spec.chunk * spec.action_dim * config.bins)
        nn.init.orthogonal_(self.head.weight, 0.01)  # every bin alike at the start, whatever is seen
        nn.init.zeros_(self.head.bias)

    def forward(self, inputs: PolicyInputs) -> Tensor:
        features = [self.proprio(inputs.proprio)]
        if self.trunk is not None:
            batch, views = inputs.images.shape[:2]
            maps = self.trunk(inputs.images.flatten(0, 1))
            features.append(self.image_head(maps.permute(0, 2, 3, 1).reshape(batch, views, -1).flatten(1)))
        scale, shift = self.film(self.text(inputs.instruction)).chunk(2, dim=-1)
        hidden = F.relu(self.norm(self.first(torch.cat(features, dim=-1))) * (1.0 + scale) + shift)
        logits: Tensor = self.head(self.second(hidden))
        return logits.view(len(inputs), *self._shape)


class SmallPolicy:
    """One token per action entry, independent given the inputs: `bins` motions in [-1, 1]; gripper closed or open."""

    KIND = "small"

    def __init__(
        self, config: SmallConfig, spec: PolicySpec, *, device: torch.device, seed: int | None
    ) -> None:
        """seed: of the initial weights, None where weights are loaded next. Raises PolicyError for another chunk."""
        check_spec(spec, config.chunk)
        self.config, self._spec, self._device = config, spec, device
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0 if seed is None else seed)
            self.network = SmallNetwork(config, spec).to(device)
        centres = torch.linspace(-1.0, 1.0, config.bins).repeat(spec.action_dim, 1)
        allowed = torch.ones(spec.action_dim, config.bins, dtype=torch.bool)
        allowed[-1, 1:-1] = False  # of the gripper's bins only the first and the last: close, open
        self._centres, self._allowed = centres.to(device), allowed.to(device)

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    @property
    def device(self) -> torch.device:
        return self._device

    @torch.no_grad()
    def sample(self, inputs: PolicyInputs, generator: torch.Generator, temperature: float = 1.0) -> Decisions:
        """See VLAPolicy. The gripper's token is drawn like the others: it is held for the whole step."""
        log_probs = self._log_probs(inputs, temperature)
        tokens = draw(log_probs, generator)
        return Decisions(self._actions(tokens), tokens, chosen(log_probs, tokens))

    @torch.no_grad()
    def mode(self, inputs: PolicyInputs) -> Tensor:
        """The most probable token of each entry."""
        return self._actions(self._log_probs(inputs, 1.0).argmax(dim=-1))

    def log_prob(self, inputs: PolicyInputs, tokens: Tensor, temperature: float = 1.0) -> Tensor:
        """See VLAPolicy."""
        return chosen(self._log_probs(inputs, temperature), tokens)

    def imitation_loss(self, inputs: PolicyInputs, actions: Tensor, valid: Tensor) -> Tensor:
        """Cross-entropy of the nearest bins, mean over all entries of valid actions."""
        tokens = ((actions.to(self._device) + 1.0) / 2.0 * (self.config.bins - 1)).round().long()
        opens = actions[..., -1].to(self._device) > 0.0
        tokens[..., -1] = torch.where(opens, self.config.bins - 1, 0)
        loss = -self.log_prob(inputs, tokens)[valid.to(self._device)]
        return loss.mean()

    def trainable_parameters(self) -> list[nn.Parameter]:
        """All."""
        return list(self.network.parameters())

    def reference(self) -> FrozenPolicy:
        """A copy of everything."""
        copy = SmallPolicy(self.config, self._spec, device=self._device, seed=None)
        copy.network.load_state_dict(self.network.state_dict())
        return FrozenPolicy(copy)

    def tensors(self) -> dict[str, Tensor]:
        """All weights."""
        return copied(self.network.state_dict())

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """See VLAPolicy."""
        check_tensors(tensors, self.network.state_dict())
        self.network.load_state_dict(dict(tensors))

    def save(self, path: Path) -> None:
        """See VLAPolicy."""
        files.write(path, self.KIND, self._spec, self.config, self.tensors())

    @classmethod
    def load(cls, path: Path, device: torch.device) -> SmallPolicy:
        """Read what `save` wrote; raises PolicyError naming the file."""
        found = files.read(path, cls.KIND)
        policy = cls(found.config_as(SmallConfig), found.spec, device=device, seed=None)
        policy.load_tensors(found.tensors)
        return policy

    def _log_probs(self, inputs: PolicyInputs, temperature: float) -> Tensor:
        inputs.check(self._spec)
        logits = self.network(inputs.to(self._device)) / temperature
        return F.log_softmax(logits.masked_fill(~self._allowed, -torch.inf), dim=-1)

    def _actions(self, tokens: Tensor) -> Tensor:
        entries = torch.arange(self._spec.action_dim, device=self._device)
        return self._centres[entries, tokens]


class FrozenPolicy:
    """A policy that no longer learns."""

    def __init__(self, policy: SmallPolicy) -> None:
        self._policy = policy

    @torch.no_grad()
    def log_prob(self, inputs: PolicyInputs, tokens: Tensor, temperature: float = 1.0) -> Tensor:
        """See ReferencePolicy."""
        return self._policy.log_prob(inputs, tokens, temperature)
