"""Batch: the arrays one learner update consumes, as they leave the mixer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SYNTHETIC = "synthetic"  # the share of imagined transitions; it lies last in a batch


@dataclass(frozen=True)
class Batch:
    """B transitions. images and next_images: view -> (B, H, W, 3) uint8; proprio (B, P); action (B, A).

    steps: (B,) uint8, control steps from an observation to its next one, 1 unless returns look further ahead; reward
    and gripper_changed are then discounted sums over them, terminated and truncated those of the last one.
    reward, gripper_changed, weight: (B,) float32. terminated, truncated, intervened: (B,) bool. source: (B,) uint8.
    goal_proprio (B, P): proprio, measured by the robot, at the next change of the gripper in the transition's episode,
    or at its success behind the last one; goal_known (B,) bool: False, and goal_proprio 0, where the episode is open,
    failed or imagined.
    shares: transitions of each share, in the order in which they lie in the batch, e.g. {"demo": 32, "online": 32}.
    """

    images: Mapping[str, NDArray[np.uint8]]
    next_images: Mapping[str, NDArray[np.uint8]]
    proprio: NDArray[np.float32]
    next_proprio: NDArray[np.float32]
    action: NDArray[np.float32]
    steps: NDArray[np.uint8]
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    intervened: NDArray[np.bool_]
    gripper_changed: NDArray[np.float32]
    source: NDArray[np.uint8]
    weight: NDArray[np.float32]
    goal_proprio: NDArray[np.float32]
    goal_known: NDArray[np.bool_]
    shares: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def num_real(self) -> int:
        """Transitions that really happened: those before the synthetic share."""
        return len(self) - self.shares.get(SYNTHETIC, 0)

    def check(self) -> None:
        """Raise ValueError where lengths differ or the shares do not add up to the batch."""
        n = len(self)
        if sum(self.shares.values()) != n:
            raise ValueError(f"batch shares {dict(self.shares)} do not add up to its {n} transitions")
        for name in (
            "proprio",
            "next_proprio",
            "action",
            "steps",
            "terminated",
            "truncated",
            "gripper_changed",
            "weight",
            "goal_proprio",
            "goal_known",
        ):
            if len(getattr(self, name)) != n:
                raise ValueError(f"batch.{name}: expected {n} rows, got {len(getattr(self, name))}")
        for view, image in [*self.images.items(), *self.next_images.items()]:
            if len(image) != n:
                raise ValueError(f"batch images[{view}]: expected {n} rows, got {len(image)}")
