"""ProprioFeatures: shows a learner the same measurement at a coarse and at a saturating, fine scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from robot.types import ProprioSpec

COARSE_LIMIT = 10.0  # a sensor far outside its range must not swamp the other inputs


class ProprioFeatures(nn.Module):
    """(B, P) proprio, SI units -> (B, out_dim): (x - offset) / scale, and tanh((x - offset) / fine) where `fine` > 0.

    The fine part is what lets a critic represent a value that drops within a millimetre. unseen: names of readings that
    are left out; with little data a learner generalises better without those that the task does not need. Raises
    ValueError for a name that the spec does not have, or if nothing is left.
    """

    seen: Tensor
    offset: Tensor
    scale: Tensor
    fine: Tensor
    fine_index: Tensor

    def __init__(self, spec: ProprioSpec, unseen: Sequence[str] = ()) -> None:
        super().__init__()
        strange = sorted(set(unseen) - set(spec.names))
        if strange:
            raise ValueError(
                f"agent.encoder.unseen: {strange[0]} is no reading of this robot; there are {', '.join(spec.names)}"
            )
        seen = np.flatnonzero([name not in unseen for name in spec.names])
        if not len(seen):
            raise ValueError(
                "agent.encoder.unseen: expected at least one reading that is left, all are named"
            )
        fine = spec.fine[seen]
        index = np.flatnonzero(fine > 0)
        for name, value in (
            ("offset", spec.offset[seen]),
            ("scale", spec.scale[seen]),
            ("fine", fine[index]),
        ):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32), persistent=False)
        self.register_buffer("seen", torch.from_numpy(seen), persistent=False)
        self.register_buffer("fine_index", torch.from_numpy(index), persistent=False)
        self.out_dim = len(seen) + len(index)

    def forward(self, proprio: Tensor) -> Tensor:
        centred = proprio[:, self.seen] - self.offset
        coarse = (centred / self.scale).clamp(-COARSE_LIMIT, COARSE_LIMIT)
        fine = torch.tanh(centred[:, self.fine_index] / self.fine)
        return torch.cat((coarse, fine), dim=-1)
