"""Actions as tokens: OpenVLA's 256 bins on [-1, 1], and what a data set's actions mean in units of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl.vla.openvla.config import OpenVLAConfig
from rl.vla.policy import PolicyError

BINS = 256  # edges, and tokens; the last two tokens mean the same, since 256 edges have 255 intervals
POSITION, GRIPPER = slice(0, 3), -1


@dataclass(frozen=True)
class ActionRange:
    """What the normalised -1 and 1 of each entry are in our units: low, high (A,) float32; the gripper's are unused."""

    low: Tensor
    high: Tensor

    @classmethod
    def make(cls, config: OpenVLAConfig, norm_stats: Mapping[str, Any], action_dim: int) -> ActionRange:
        """As `config.statistics` says; raises PolicyError for an unknown data set or another number of entries."""
        if config.statistics is None:
            return cls(-torch.ones(action_dim), torch.ones(action_dim))
        if config.statistics not in norm_stats:
            known = ", ".join(sorted(norm_stats)) or "none"
            raise PolicyError(
                f"openvla.statistics={config.statistics}: not in the checkpoint, which has: {known}"
            )
        stats = norm_stats[config.statistics]["action"]
        low, high = (np.asarray(stats[name], np.float64) for name in ("q01", "q99"))
        mask = np.asarray(stats.get("mask", [True] * len(low)), bool)
        if not len(low) == len(high) == len(mask) == action_dim:
            raise PolicyError(
                f"openvla.statistics={config.statistics}: expected {action_dim} action entries, got {len(low)}; that "
                "data set is of another kind of robot"
            )
        low, high = (
            np.where(mask, low, -1.0),
            np.where(mask, high, 1.0),
        )  # unmasked entries are stored as they are
        if not (low < high)[:-1].all():
            raise PolicyError(
                f"openvla.statistics={config.statistics}: expected q01 < q99, got {low}, {high}"
            )
        assert config.position_scale is not None and config.rotation_scale is not None
        scale = np.full(action_dim, config.rotation_scale)
        scale[POSITION] = config.position_scale
        return cls(
            torch.tensor(low / scale, dtype=torch.float32), torch.tensor(high / scale, dtype=torch.float32)
        )


class ActionTokens:
    """Between our actions (..., A) in [-1, 1] and bins (..., A) int64 in 0 .. 255, ascending with the action.

    The gripper is 0 (closed) or 1 (open) in OpenVLA's data, -1 or +1 here; only the bins of these two are `allowed`.
    """

    def __init__(self, span: ActionRange, device: torch.device) -> None:
        self._low, self._high = span.low.to(device), span.high.to(device)
        self._edges = torch.linspace(-1.0, 1.0, BINS, dtype=torch.float64, device=device)
        centres = (self._edges[:-1] + self._edges[1:]) / 2.0
        self._centres = torch.cat((centres, centres[-1:])).float()
        self.closed, self.opened = self._bin(torch.tensor([0.0, 1.0], device=device)).tolist()
        self.allowed = torch.ones(len(span.low), BINS, dtype=torch.bool, device=device)
        self.allowed[GRIPPER] = False
        self.allowed[GRIPPER, [self.closed, self.opened]] = True

    def encode(self, actions: Tensor) -> Tensor:
        """The bin that holds each entry; what the range cannot say goes to its end. A gripper > 0 opens."""
        normalised = 2.0 * (actions - self._low) / (self._high - self._low) - 1.0
        bins = self._bin(normalised)
        bins[..., GRIPPER] = torch.where(actions[..., GRIPPER] > 0.0, self.opened, self.closed)
        return bins

    def decode(self, bins: Tensor) -> Tensor:
        """The middle of each bin, in our units, at most 1 in size; the gripper as -1 or +1."""
        actions = self._low + (self._centres[bins] + 1.0) / 2.0 * (self._high - self._low)
        actions = actions.clamp(-1.0, 1.0)
        actions[..., GRIPPER] = torch.where(bins[..., GRIPPER] == self.opened, 1.0, -1.0)
        return actions

    def _bin(self, normalised: Tensor) -> Tensor:
        # Edges belong to the bin above them, as in np.digitize, which the released model was trained with.
        return torch.bucketize(normalised.double().clamp(-1.0, 1.0), self._edges, right=True) - 1
