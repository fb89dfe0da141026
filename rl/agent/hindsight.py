"""HindsightHead: reads off the images how far the tool is from where it will next grasp, let go, or have succeeded.

Labels are differences of poses that the robot measured in episodes which succeeded: the pose now, and that at the next
change of the gripper, or at success behind the last one. So nobody measures a goal, an object or a grasp. Policy and
critics get the prediction at a coarse and at a saturating scale: a value that falls within a millimetre needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rl.agent.spec import AgentSpec, GoalOffset, GoalUnit

_METRICS = {GoalUnit.METRE: ("hindsight_error_mm", 1e3), GoalUnit.RADIAN: ("hindsight_error_rad", 1.0)}


@dataclass(frozen=True)
class HindsightConfig:
    """The head and its loss. It needs camera images, and a task that names the offsets which matter.

    weight: of its loss beside the critic's. hidden: units. beta: error below which the loss is quadratic, in units of
    an offset's coarse scale. Random shifts move a whole image: what they must not spoil, tool and goal, is seen in one.
    """

    enabled: bool = False
    weight: float = 1.0
    hidden: int = 128
    beta: float = 0.1

    def __post_init__(self) -> None:
        if not (self.weight > 0.0 and self.beta > 0.0 and self.hidden >= 1):
            raise ValueError(f"HindsightConfig: expected weight > 0, beta > 0 and hidden >= 1, got {self}")

    def check(self, spec: AgentSpec) -> None:
        """Raise ValueError where the head is enabled for an agent that cannot have one."""
        if self.enabled and not spec.views:
            raise ValueError(
                "agent.hindsight.enabled: expected camera images, got none; observe pixels, or set it to false: "
                "a state observation holds the offsets already"
            )
        if self.enabled and not spec.goal:
            raise ValueError(
                "agent.hindsight.enabled: expected goal offsets of the task, got none; name them in TaskSpec.goal, "
                "or set it to false"
            )


class HindsightHead(nn.Module):
    """(B, N) flattened convolutional maps -> (B, K) goal offsets, each in units of its coarse scale."""

    index: Tensor
    coarse: Tensor
    fine: Tensor

    def __init__(self, config: HindsightConfig, goal: Sequence[GoalOffset], inputs: int) -> None:
        super().__init__()
        self._beta = config.beta
        columns = {
            unit: [column for column, entry in enumerate(goal) if entry.unit is unit] for unit in GoalUnit
        }
        self._columns = {unit: listed for unit, listed in columns.items() if listed}
        self.out_dim = 2 * len(goal)
        self.register_buffer("index", torch.tensor([entry.index for entry in goal]), persistent=False)
        for name in ("coarse", "fine"):
            scales = torch.tensor([getattr(entry, name) for entry in goal], dtype=torch.float32)
            self.register_buffer(name, scales, persistent=False)
        self.layers = nn.Sequential(
            nn.Linear(inputs, config.hidden),
            nn.LayerNorm(config.hidden),
            nn.ReLU(),
            nn.Linear(config.hidden, len(goal)),
        )

    def forward(self, flat_maps: Tensor) -> Tensor:
        predicted: Tensor = self.layers(flat_maps)
        return predicted

    def features(self, predicted: Tensor) -> Tensor:
        """(B, 2 K): the prediction as it is, and tanh(offset / fine); detached, only its own loss trains it."""
        coarse = predicted.detach()
        return torch.cat((coarse, torch.tanh(coarse * (self.coarse / self.fine))), dim=-1)

    def offset(self, proprio: Tensor, goal_proprio: Tensor) -> Tensor:
        """What to predict: current minus goal pose entries, (B, P) both, in units of the coarse scales (B, K)."""
        return (proprio - goal_proprio)[:, self.index] / self.coarse

    def loss(self, predicted: Tensor, offset: Tensor, known: Tensor) -> Tensor:
        """Smooth L1, summed over the offsets, mean over the rows where `known` (B,) is true; 0 without any."""
        error = F.smooth_l1_loss(predicted, offset, reduction="none", beta=self._beta).sum(-1)
        return torch.where(known, error, 0.0).sum() / known.sum().clamp(min=1)

    def errors(self, predicted: Tensor, offset: Tensor, known: Tensor) -> dict[str, Tensor]:
        """Median absolute error over the rows where `known` is true: `..._mm` of positions, `..._rad` of angles."""
        error = torch.where(known[:, None], (predicted.detach() - offset).abs(), torch.nan) * self.coarse
        return {
            _METRICS[unit][0]: error[:, columns].nanmedian() * _METRICS[unit][1]
            for unit, columns in self._columns.items()
        }
