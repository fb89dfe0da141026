"""ValueModel: the learner's target critics on their encoder, for whoever ranks actions outside the learner."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl.agent.acting import ActingPolicy
from rl.agent.networks import EnsembleMLP
from rl.agent.sac import SACConfig
from rl.agent.spec import AgentSpec
from rl.agent.staging import Staging
from rl.agent.weights import check_weights
from rl.batch import Batch


class ValueModel:
    """Q(s, a) = min over the whole ensemble of target critics.

    The encoder is the learner's, not that of the policy that a robot runs: that one may be an average, on which no
    critic has learned.
    """

    def __init__(self, config: SACConfig, spec: AgentSpec, *, device: torch.device) -> None:
        self._acting = ActingPolicy(config, spec, device=device, seed=0)  # for its encoder; it never acts
        with torch.random.fork_rng(devices=[]):
            critic = EnsembleMLP(config.num_critics, self._acting.critic_dim, config.hidden, 1).to(device)
        self._nets = nn.ModuleDict({"encoder": self._acting.encoder, "critic": critic})
        self._staging = Staging(spec, 0, device)

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over `SACAgent.value_tensors()`; on WeightsError nothing has changed."""
        own = self._nets.state_dict()
        check_weights(tensors, own)
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(tensors[name])

    @torch.inference_mode()
    def q(self, batch: Batch) -> NDArray[np.float32]:
        """(B,) values of the batch's actions, images unshifted."""
        now = self._staging.observation(batch, None)
        features = self._nets["encoder"](now.stacks, now.proprio)
        step = self._staging.step(batch)
        values = self._nets["critic"](self._acting.critic_input(features, step.action, step.gripper))
        result: NDArray[np.float32] = values.squeeze(-1).amin(dim=0).cpu().numpy()
        return result
