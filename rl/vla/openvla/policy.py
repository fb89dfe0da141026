"""OpenVLAPolicy: a public vision-language-action model behind the interface that post-training knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rl.agent.weights import copied
from rl.vla import files
from rl.vla.discrete import check_spec, check_tensors, chosen, draw
from rl.vla.openvla.adaptation import add_lora, save_memory, trained
from rl.vla.openvla.checkpoint import load_base, locate, open_checkpoint
from rl.vla.openvla.config import OpenVLAConfig
from rl.vla.openvla.network import OpenVLANetwork, need_extra
from rl.vla.openvla.preprocessing import PromptReader, pixels
from rl.vla.openvla.tokens import ActionRange, ActionTokens
from rl.vla.policy import Decisions, PolicyError, PolicyInputs, PolicySpec


@dataclass(frozen=True)
class SavedConfig(OpenVLAConfig):
    """As it stands in policy.json. fingerprint: of the checkpoint that the saved weights add to."""

    fingerprint: str = ""

    def settings(self) -> OpenVLAConfig:
        """What the user said."""
        names = [field.name for field in dataclasses.fields(OpenVLAConfig)]
        return OpenVLAConfig(**{name: getattr(self, name) for name in names})


class OpenVLAPolicy:
    """One token per action entry, independent given the inputs, all of a chunk from one pass.

    The same pass samples and tells the probability, so both agree. Frozen weights and arithmetic are bfloat16 on a
    GPU and float32 elsewhere; weights that learn are float32.
    """

    KIND = "openvla"

    def __init__(self, config: OpenVLAConfig, spec: PolicySpec, *, device: torch.device, seed: int) -> None:
        """seed: of the new weights. Raises PolicyError for a spec or checkpoint that does not fit."""
        need_extra()
        _check_spec(config, spec)
        assert config.checkpoint is not None
        checkpoint = open_checkpoint(locate(config.checkpoint))
        self.config, self._spec, self._device = config, spec, device
        self._half = device.type == "cuda"
        self._image_size = checkpoint.shape.dino.image_size
        span = ActionRange.make(config, checkpoint.norm_stats, spec.action_dim)
        self._actions = ActionTokens(span, device)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.network = OpenVLANetwork(checkpoint.shape, spec)
        dtype = torch.bfloat16 if self._half else torch.float32
        self.fingerprint = load_base(self.network, checkpoint, device, dtype)
        self.network.to(device)
        add_lora(self.network, config.lora_rank, config.lora_alpha, torch.Generator().manual_seed(seed))
        save_memory(self.network)
        self._prompts = PromptReader(checkpoint.path, self.network.begin)

    @staticmethod
    def check(config: OpenVLAConfig) -> None:
        """Raise PolicyError for missing libraries, or where the checkpoint is missing or foreign; fetches it."""
        need_extra()
        assert config.checkpoint is not None
        open_checkpoint(locate(config.checkpoint))

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    @property
    def device(self) -> torch.device:
        return self._device

    @torch.no_grad()
    def sample(self, inputs: PolicyInputs, generator: torch.Generator, temperature: float = 1.0) -> Decisions:
        """See VLAPolicy."""
        log_probs = self.distribution(inputs, temperature)
        tokens = draw(log_probs, generator)
        return Decisions(self._actions.decode(tokens), tokens, chosen(log_probs, tokens))

    @torch.no_grad()
    def mode(self, inputs: PolicyInputs) -> Tensor:
        """The most probable bin of each entry."""
        return self._actions.decode(self.distribution(inputs).argmax(dim=-1))

    def log_prob(self, inputs: PolicyInputs, tokens: Tensor, temperature: float = 1.0) -> Tensor:
        """See VLAPolicy."""
        return chosen(self.distribution(inputs, temperature), tokens)

    def imitation_loss(self, inputs: PolicyInputs, actions: Tensor, valid: Tensor) -> Tensor:
        """Cross-entropy of the bins, mean over all entries of valid actions."""
        tokens = self._actions.encode(actions.to(self._device))
        return -self.log_prob(inputs, tokens)[valid.to(self._device)].mean()

    def trainable_parameters(self) -> list[nn.Parameter]:
        """The low-rank additions and the projector of readings."""
        return list(trained(self.network).values())

    def reference(self) -> FrozenOpenVLA:
        """A copy of what learns; the base is shared."""
        weights = {name: weight.detach().clone() for name, weight in trained(self.network).items()}
        return FrozenOpenVLA(self, weights)

    def tensors(self) -> dict[str, Tensor]:
        """See VLAPolicy."""
        return copied(trained(self.network))

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """See VLAPolicy."""
        mine = trained(self.network)
        check_tensors(tensors, mine)
        with torch.no_grad():
            for name, weight in mine.items():
                weight.copy_(tensors[name])

    def save(self, path: Path) -> None:
        """See VLAPolicy. The checkpoint stays where it is; its name and fingerprint are written."""
        saved = SavedConfig(**dataclasses.asdict(self.config), fingerprint=self.fingerprint)
        files.write(path, self.KIND, self._spec, saved, self.tensors())

    @classmethod
    def load(cls, path: Path, device: torch.device) -> OpenVLAPolicy:
        """Read what `save` wrote, and its checkpoint; raises PolicyError naming what is missing or another one."""
        found = files.read(path, cls.KIND)
        saved = found.config_as(SavedConfig)
        try:
            policy = cls(saved.settings(), found.spec, device=device, seed=0)
        except PolicyError as error:
            raise PolicyError(f"{path}: its checkpoint {saved.checkpoint}: {error}") from error
        if policy.fingerprint != saved.fingerprint:
            raise PolicyError(
                f"{path}: was trained on another checkpoint than the one that is now in {saved.checkpoint}; bring "
                "back the old one, or correct `checkpoint` in policy.json"
            )
        policy.load_tensors(found.tensors)
        return policy

    def distribution(
        self, inputs: PolicyInputs, temperature: float = 1.0, weights: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Log-probabilities (B, C, A, 256) of all bins, -inf where one is not allowed.

        weights: stand in for those that learn. Without a gradient it takes `pass_batch` decisions at a time.
        """
        inputs.check(self._spec)
        size = len(inputs) if torch.is_grad_enabled() else self.config.pass_batch
        parts = torch.split(torch.arange(len(inputs)), size)
        logits = torch.cat([self._logits(inputs.rows(part), weights) for part in parts]) / temperature
        return F.log_softmax(logits.masked_fill(~self._actions.allowed, -torch.inf), dim=-1)

    def _logits(self, inputs: PolicyInputs, weights: Mapping[str, Tensor] | None) -> Tensor:
        seen = inputs.to(self._device)
        batch, views = seen.images.shape[:2]
        towers = pixels(seen.images.flatten(0, 1), self._image_size)
        dino, siglip = (images.view(batch, views, *images.shape[1:]) for images in towers)
        prompt, real = self._prompts.batch(inputs.instruction, self._device)
        arguments = (dino, siglip, seen.proprio, prompt, real)
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._half):
            if weights is None:
                logits: Tensor = self.network(*arguments)
            else:
                logits = torch.func.functional_call(self.network, dict(weights), arguments)
        return logits.float()


class FrozenOpenVLA:
    """A policy as it was. weights: its own; all others are the living policy's, which never change."""

    def __init__(self, policy: OpenVLAPolicy, weights: Mapping[str, Tensor]) -> None:
        self._policy, self._weights = policy, weights

    @torch.no_grad()
    def log_prob(self, inputs: PolicyInputs, tokens: Tensor, temperature: float = 1.0) -> Tensor:
        """See ReferencePolicy."""
        return chosen(self._policy.distribution(inputs, temperature, self._weights), tokens)


def _check_spec(config: OpenVLAConfig, spec: PolicySpec) -> None:
    if config.checkpoint is None:
        raise PolicyError("openvla.checkpoint: expected a directory or a name on the hub, got none")
    if not spec.views:
        raise PolicyError("openvla: it sees, and this robot shows no camera; use robot.obs=pixels")
    check_spec(spec, config.chunk)
