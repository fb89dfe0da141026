"""The discrete gripper: its commands, and the loss of the categorical policy that chooses among them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

COMMANDS = (-1.0, 0.0, 1.0)  # close, keep, open: the gripper entry of the action


def command_index(action: Tensor) -> Tensor:
    """Index (B,) into COMMANDS of executed gripper entries (B,); within half a unit of 0 means keep."""
    return (action > 0.5).long() - (action < -0.5).long() + 1


def entry(index: Tensor) -> Tensor:
    """The gripper entry (B, 1) of the commands `index` (B,)."""
    return (index - 1).to(torch.float32)[:, None]


def cloning_loss(logits: Tensor, index: Tensor) -> Tensor:
    """-log pi(c | s) of the commands `index` (B,): (B, 3) -> (B,)."""
    return F.cross_entropy(logits, index, reduction="none")


def policy_loss(logits: Tensor, values: Tensor, temperature: Tensor) -> Tensor:
    """sum_c pi(c | s) (alpha log pi(c | s) - Q(s, c)), as in discrete SAC. logits, values: (B, 3) -> (B,)."""
    log_prob = logits.log_softmax(dim=-1)
    return (log_prob.exp() * (temperature * log_prob - values)).sum(dim=-1)
