"""ValueModel: the learner's target critics on the policy's encoder, for whoever ranks actions outside the learner."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl.agent.acting import ActingPolicy
from rl.agent.networks import EnsembleMLP
from rl.agent.sac import SACConfig
from rl.agent.staging import Staging
from rl.agent.weights import check_weights
from rl.batch import Batch


class ValueModel:
    """Q(s, a) = min over the whole ensemble of target critics; the encoder is that of `policy`, at its weights."""

    def __init__(self, config: SACConfig, policy: ActingPolicy) -> None:
        self._policy = policy
        with torch.random.fork_rng(devices=[]):
            self._critic = EnsembleMLP(config.num_critics, policy.critic_dim, config.hidden, 1).to(
                policy.device
            )
        self._staging = Staging(policy.spec, 0, policy.device)

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over `SACAgent.value_tensors()`; on WeightsError nothing has changed."""
        own = self._critic.state_dict()
        check_weights(tensors, own)
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(tensors[name])

    @torch.inference_mode()
    def q(self, batch: Batch) -> NDArray[np.float32]:
        """(B,) values of the batch's actions, images unshifted."""
        now = self._staging.observation(batch, None)
        features = self._policy.encoder(now.stacks, now.proprio)
        step = self._staging.step(batch)
        values = self._critic(self._policy.critic_input(features, step.action, step.gripper))
        result: NDArray[np.float32] = values.squeeze(-1).amin(dim=0).cpu().numpy()
        return result
