"""ActingPolicy: the part of an agent that acts; the learner holds one, every actor runs the same class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from rl.agent import gripper
from rl.agent.encoders import EncoderConfig, ObservationEncoder
from rl.agent.hindsight import HindsightConfig
from rl.agent.networks import EnsembleMLP, GaussianPolicy
from rl.agent.spec import GRIPPER_INDEX, AgentSpec, GripperControl
from rl.agent.weights import WeightsError, check_weights, copied
from robot.types import ACTION_DIM, Float32, Observation

_FINGERPRINT = "fingerprint"
MODE: Float32 = np.zeros(ACTION_DIM, np.float32)  # noise of the most probable action


@dataclass(frozen=True)
class ActingConfig:
    """Networks that acting needs. hidden: width of every hidden layer.

    std_init: of the policy before the tanh, at the start; log_std_min, log_std_max: its bounds later.
    """

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    hindsight: HindsightConfig = field(default_factory=HindsightConfig)
    hidden: int = 128
    std_init: float = 1.0
    log_std_min: float = -5.0
    log_std_max: float = 1.0

    def __post_init__(self) -> None:
        if self.hidden < 1:
            raise ValueError(f"hidden: expected >= 1 unit, got {self.hidden}")
        if not self.log_std_min < self.log_std_max:
            raise ValueError(
                f"log_std_min: expected less than log_std_max, got {self.log_std_min} and {self.log_std_max}"
            )
        if not math.exp(self.log_std_min) <= self.std_init <= math.exp(self.log_std_max):
            raise ValueError(
                f"std_init: expected within exp(log_std_min) .. exp(log_std_max), got {self.std_init}"
            )


class ActingPolicy(nn.Module):
    """Encoder, Gaussian policy and, where the gripper's control is discrete, the policy of its commands.

    seed: initial weights, and the noise of stochastic actions. Raises ValueError where `config.hindsight` asks
    for a head that `spec` cannot feed.
    """

    gripper: EnsembleMLP | None

    def __init__(self, config: ActingConfig, spec: AgentSpec, *, device: torch.device, seed: int) -> None:
        super().__init__()
        self.spec = spec
        self.device = device
        with torch.random.fork_rng(
            devices=[]
        ):  # torch initialises from its global generator; leave that as it was
            torch.default_generator.manual_seed(seed)
            self.encoder = ObservationEncoder(config.encoder, spec, config.hindsight)
            width = self.encoder.out_dim
            log_std_range = (config.log_std_min, config.log_std_max)
            self.policy = GaussianPolicy(
                width, config.hidden, spec.policy_dim, log_std_range, config.std_init
            )
            self.gripper = None
            if spec.gripper is GripperControl.DISCRETE:
                self.gripper = EnsembleMLP(1, width, config.hidden, len(gripper.COMMANDS))
        self.to(device)
        self.generator = torch.Generator(device).manual_seed(seed)
        self._groups = spec.view_groups()
        self._indices = list(spec.policy_indices)

    def act(self, observation: Observation, *, noise: Float32 | None = None) -> Float32:
        """The action (7,) float32 in [-1, 1] for one observation; entries the agent does not control are 0.

        noise: (7,), by how many of the policy's standard deviations each entry differs from the mode before the
        tanh; MODE is none at all, None is a sample as in training. Raises ValueError on an observation of another
        shape, FloatingPointError where the result is not finite.
        """
        action: Float32 = self.act_batch([observation], noise=noise)[0]
        return action

    @torch.inference_mode()
    def act_batch(self, observations: Sequence[Observation], *, noise: Float32 | None = None) -> Float32:
        """The actions (B, 7) for B >= 1 observations, as `act` gives them, in one pass. Raises as `act` does.

        noise: (7,) for all of them, or (B, 7).
        """
        for observation in observations:
            self.spec.check_observation(observation)
        stacks = [
            torch.from_numpy(np.stack([seen.images[view] for view in group for seen in observations])).to(
                self.device
            )
            for group in self._groups
        ]
        readings = np.stack([observation.proprio for observation in observations])
        proprio = torch.tensor(readings, dtype=torch.float32, device=self.device)
        features = self.encoder(stacks, proprio)
        distribution = self.policy(features)
        chosen, _ = distribution.sample(self._noise(noise, len(observations)))
        actions = np.zeros((len(observations), ACTION_DIM), np.float32)
        actions[:, self._indices] = chosen.cpu().numpy()
        if self.gripper is not None:
            actions[:, GRIPPER_INDEX] = np.asarray(gripper.COMMANDS)[self.commands(features).cpu().numpy()]
        broken = np.flatnonzero(~np.isfinite(actions).all(axis=1))
        if len(broken):
            raise FloatingPointError(
                f"policy: expected a finite action, got {actions[broken[0]]} for proprio "
                f"{observations[broken[0]].proprio}; check the sensors, then the weights"
            )
        return actions

    def _noise(self, noise: Float32 | None, rows: int) -> Tensor:
        """(rows, policy_dim) of `noise`, or drawn from the policy's own generator."""
        shape = (rows, self.spec.policy_dim)
        if noise is None:
            return torch.randn(shape, generator=self.generator, device=self.device)
        wanted = np.broadcast_to(noise, (rows, ACTION_DIM))[:, self._indices]
        return torch.tensor(wanted, dtype=torch.float32, device=self.device)

    @property
    def critic_dim(self) -> int:
        """Entries of `critic_input`."""
        return self.encoder.out_dim + self.spec.policy_dim + int(self.gripper is not None)

    def critic_input(self, features: Tensor, action: Tensor, command: Tensor) -> Tensor:
        """What a critic sees (B, critic_dim): features, the policy's entries of the action, and the entry of the
        command `command` (B,) where the gripper's control is discrete.
        """
        parts = (features, action)
        return torch.cat(parts if self.gripper is None else (*parts, gripper.entry(command)), -1)

    def commands(self, features: Tensor) -> Tensor:
        """Index (B,) of the gripper command that the policy gives; 0, without a meaning, if it gives none."""
        if self.gripper is None:
            return torch.zeros(len(features), dtype=torch.int64, device=self.device)
        index: Tensor = self.gripper(features)[0].argmax(dim=-1)
        return index

    def tensors(self) -> dict[str, Tensor]:
        """A copy on the CPU of exactly what acting needs; a frozen trunk is named by its checksum only."""
        return copied(self.learned()) | {_FINGERPRINT: self._fingerprint()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over weights from `tensors()` of the same spec and config.

        Everything is checked first: on WeightsError nothing has changed.
        """
        self.check_tensors(tensors)
        with torch.no_grad():
            for name, tensor in self.learned().items():
                tensor.copy_(tensors[name])

    def check_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise WeightsError where `load_tensors` would."""
        fingerprint = self._fingerprint()
        check_weights(tensors, {**self.learned(), _FINGERPRINT: fingerprint})
        if not torch.equal(tensors[_FINGERPRINT].cpu(), fingerprint):
            raise WeightsError(
                "weights: they belong to other inputs (views, proprio, gripper, goal or active dimensions) or to "
                "another frozen backbone; start the actor with the learner's configuration"
            )

    def learned(self) -> dict[str, Tensor]:
        """The tensors that learning changes, themselves."""
        frozen = "encoder.trunk." if self.encoder.checksum else None
        return {
            name: tensor
            for name, tensor in self.state_dict().items()
            if frozen is None or not name.startswith(frozen)
        }

    def _fingerprint(self) -> Tensor:
        return torch.tensor([self.spec.fingerprint(), self.encoder.checksum], dtype=torch.int64)
