"""WeightAverage: a running average of weights, which acts more evenly than the newest ones."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class WeightAverage:
    """theta_average <- theta_average + share (theta - theta_average), in place, for each theta in `live`.

    A policy that is learned from a critic changes from update to update by more than its success can bear; the average
    of the last 1 / share updates does not. `average` has the names of `live` and begins with its values.
    share in (0, 1].
    """

    def __init__(self, average: Mapping[str, Tensor], live: Mapping[str, Tensor], share: float) -> None:
        self._average = list(average.values())
        self._live = [live[name] for name in average]
        self._share = share
        self.restart()

    @torch.no_grad()
    def restart(self) -> None:
        """Take over the weights as they are: what was before says nothing, as during a warm start."""
        torch._foreach_copy_(self._average, self._live)

    @torch.no_grad()
    def follow(self) -> None:
        """One step of the average, after one of the weights."""
        torch._foreach_lerp_(self._average, self._live, self._share)
