"""The discrete gripper: commands, the double-DQN target, and the margin loss for demonstrated commands."""

from __future__ import annotations

import torch
from torch import Tensor

COMMANDS = (-1.0, 0.0, 1.0)  # close, keep, open: the gripper entry of the action
MARGIN = 0.1  # how far a demonstrated command must lead; small beside returns of at most 1


def command_index(action: Tensor) -> Tensor:
    """Index (B,) into COMMANDS of executed gripper entries (B,); within half a unit of 0 means keep."""
    return (action > 0.5).long() - (action < -0.5).long() + 1


def td_target(
    reward: Tensor, not_terminated: Tensor, discount: float, online: Tensor, target: Tensor
) -> Tensor:
    """y = r + discount * (1 - terminated) * Q_target(s', argmax_c Q_online(s', c)) (double DQN), all (B,).

    online, target: next-state values (B, 3).
    """
    best = online.argmax(dim=-1, keepdim=True)
    return reward + discount * not_terminated * target.gather(1, best).squeeze(1)


def taken(values: Tensor, index: Tensor) -> Tensor:
    """Values (B,) of the commands `index` (B,) out of (B, 3)."""
    return values.gather(1, index[:, None]).squeeze(1)


def margin_loss(values: Tensor, index: Tensor) -> Tensor:
    """max_c [Q(s, c) + MARGIN * (c != c_demo)] - Q(s, c_demo), (B,): 0 once the demonstrated command leads.

    A margin, unlike a softmax, leaves the values on the scale of returns.
    """
    lead = torch.full_like(values, MARGIN).scatter_(1, index[:, None], 0.0)
    return (values + lead).amax(dim=1) - taken(values, index)
