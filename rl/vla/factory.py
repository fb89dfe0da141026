"""From a policy's directory to the policy, whatever its kind."""

from __future__ import annotations

from pathlib import Path

import torch

from rl.vla import files
from rl.vla.policy import PolicyError, VLAPolicy
from rl.vla.small import SmallPolicy


def load_policy(path: Path, device: torch.device) -> VLAPolicy:
    """The policy that `save` wrote into `path`; raises PolicyError where there is none that this project knows."""
    match files.kind_of(path):
        case SmallPolicy.KIND:
            return SmallPolicy.load(path, device)
        case kind:
            raise PolicyError(f"{path}: a policy of kind {kind!r}; known: {SmallPolicy.KIND}")
