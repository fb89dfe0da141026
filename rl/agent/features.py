"""ProprioFeatures: shows a learner the same measurement at a coarse and at a saturating, fine scale."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from robot.types import ProprioSpec

COARSE_LIMIT = 10.0  # a sensor far outside its range must not swamp the other inputs


class ProprioFeatures(nn.Module):
    """(B, P) proprio, SI units -> (B, P + fine entries): (x - offset) / scale, tanh((x - offset) / fine).

    The fine part is what lets a critic represent a value that drops within a millimetre.
    """

    offset: Tensor
    scale: Tensor
    fine: Tensor
    fine_index: Tensor

    def __init__(self, spec: ProprioSpec) -> None:
        super().__init__()
        index = np.flatnonzero(spec.fine > 0)
        for name, value in (("offset", spec.offset), ("scale", spec.scale), ("fine", spec.fine[index])):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32), persistent=False)
        self.register_buffer("fine_index", torch.from_numpy(index), persistent=False)
        self.out_dim = spec.dim + len(index)

    def forward(self, proprio: Tensor) -> Tensor:
        centred = proprio - self.offset
        coarse = (centred / self.scale).clamp(-COARSE_LIMIT, COARSE_LIMIT)
        fine = torch.tanh(centred[:, self.fine_index] / self.fine)
        return torch.cat((coarse, fine), dim=-1)
