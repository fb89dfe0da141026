"""From a policy's directory, or from settings, to the policy, whatever its kind."""

from __future__ import annotations

from pathlib import Path

import torch

from rl.vla import files
from rl.vla.openvla.config import OpenVLAConfig
from rl.vla.openvla.policy import OpenVLAPolicy
from rl.vla.policy import PolicyError, PolicySpec, VLAPolicy
from rl.vla.small import SmallConfig, SmallPolicy


def load_policy(path: Path, device: torch.device) -> VLAPolicy:
    """The policy that `save` wrote into `path`; raises PolicyError where there is none that this project knows."""
    match files.kind_of(path):
        case SmallPolicy.KIND:
            return SmallPolicy.load(path, device)
        case OpenVLAPolicy.KIND:
            return OpenVLAPolicy.load(path, device)
        case kind:
            known = f"{SmallPolicy.KIND}, {OpenVLAPolicy.KIND}"
            raise PolicyError(f"{path}: a policy of kind {kind!r}; known: {known}")


def new_policy(
    small: SmallConfig, openvla: OpenVLAConfig, spec: PolicySpec, device: torch.device, seed: int
) -> VLAPolicy:
    """A policy that has not been trained here: OpenVLA where it has a checkpoint, a small one otherwise."""
    if openvla.checkpoint is not None:
        return OpenVLAPolicy(openvla, spec, device=device, seed=seed)
    return SmallPolicy(small, spec, device=device, seed=seed)
