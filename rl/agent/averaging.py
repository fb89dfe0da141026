"""WeightAverage: a running average of weights, which acts more evenly than the newest ones."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class WeightAverage:
    """theta_average <- theta_average + share (theta - theta_average), of the tensors in `live`, followed in place.

    A policy that is learned from a critic changes from update to update by more than its success can bear; the average
    of the last 1 / share updates does not. share in (0, 1].
    """

    def __init__(self, live: Mapping[str, Tensor], share: float) -> None:
        self._live = list(live.values())
        self._share = share
        self.tensors = {name: tensor.detach().clone() for name, tensor in live.items()}

    @torch.no_grad()
    def restart(self) -> None:
        """Take over the weights as they are: what was before says nothing, as during a warm start."""
        torch._foreach_copy_(list(self.tensors.values()), self._live)

    @torch.no_grad()
    def follow(self) -> None:
        """One step of the average, after one of the weights."""
        torch._foreach_lerp_(list(self.tensors.values()), self._live, self._share)
