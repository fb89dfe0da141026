"""AgentSpec: what an agent sees and controls. Fixed for a run; actor, learner and checkpoints agree on it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from rl.batch import Batch
from robot.types import ACTION_DIM, Observation, ProprioSpec

GRIPPER_INDEX = ACTION_DIM - 1


class GripperControl(Enum):
    """How the gripper entry of the action is chosen."""

    FIXED = "fixed"  # not controlled: always 0
    CONTINUOUS = "continuous"  # one more dimension of the Gaussian policy
    DISCRETE = "discrete"  # close, keep or open, by a critic of its own


class GoalUnit(Enum):
    """What a goal offset is measured in."""

    METRE = "m"
    RADIAN = "rad"


@dataclass(frozen=True)
class GoalOffset:
    """A tool-pose entry of the proprio, `index`, whose distance from its value at the next goal decides over success.

    A goal is the pose at the next change of the gripper, or at success behind the last one.

    coarse: range of the offsets. fine: scale of the saturating feature, about the tolerance; both in `unit`.
    """

    index: int
    unit: GoalUnit
    coarse: float
    fine: float

    def __post_init__(self) -> None:
        if not (self.index >= 0 and self.coarse > 0.0 and self.fine > 0.0):
            raise ValueError(f"GoalOffset: expected index >= 0, coarse > 0 and fine > 0, got {self}")


@dataclass(frozen=True)
class AgentSpec:
    """Inputs and outputs of an agent.

    views: view -> (H, W) in pixels; may be empty (proprio only). active: entries of the action's six motion
    dimensions that the policy controls; the others stay 0. goal: the offsets that a hindsight head learns.
    """

    views: Mapping[str, tuple[int, int]]
    proprio: ProprioSpec
    gripper: GripperControl = GripperControl.FIXED
    active: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    goal: tuple[GoalOffset, ...] = ()

    def __post_init__(self) -> None:
        if not self.active or list(self.active) != sorted(set(self.active) & set(range(GRIPPER_INDEX))):
            raise ValueError(
                f"AgentSpec.active: expected ascending, distinct indices in 0..{GRIPPER_INDEX - 1}, got "
                f"{self.active}; the gripper is chosen by `gripper`"
            )
        indices = [entry.index for entry in self.goal]
        if len(set(indices)) != len(indices) or any(index >= self.proprio.dim for index in indices):
            raise ValueError(
                f"AgentSpec.goal: expected distinct indices below {self.proprio.dim}, got {indices}"
            )

    @property
    def policy_indices(self) -> tuple[int, ...]:
        """Entries of the action that the Gaussian policy fills, in its order."""
        gripper = (GRIPPER_INDEX,) if self.gripper is GripperControl.CONTINUOUS else ()
        return tuple(self.active) + gripper

    @property
    def policy_dim(self) -> int:
        return len(self.policy_indices)

    def view_groups(self) -> tuple[tuple[str, ...], ...]:
        """Views of equal size together: one group is one stacked pass through the trunk."""
        groups: dict[tuple[int, int], list[str]] = {}
        for view, size in self.views.items():
            groups.setdefault((size[0], size[1]), []).append(view)
        return tuple(tuple(group) for group in groups.values())

    def check_observation(self, observation: Observation) -> None:
        """Raise ValueError where views, sizes, dtype or proprio length differ from this spec."""
        _check_images("observation.images", observation.images, self.views)
        if observation.proprio.shape != (self.proprio.dim,):
            raise ValueError(
                f"observation.proprio: expected ({self.proprio.dim},), got {observation.proprio.shape}"
            )

    def check_batch(self, batch: Batch) -> None:
        """Raise ValueError where the batch's views, sizes, proprio or actions differ from this spec."""
        _check_images("batch.images", batch.images, self.views, len(batch))
        _check_images("batch.next_images", batch.next_images, self.views, len(batch))
        for name, value, width in (
            ("proprio", batch.proprio, self.proprio.dim),
            ("next_proprio", batch.next_proprio, self.proprio.dim),
            ("goal_proprio", batch.goal_proprio, self.proprio.dim),
            ("action", batch.action, ACTION_DIM),
        ):
            if value.shape != (len(batch), width):
                raise ValueError(f"batch.{name}: expected ({len(batch)}, {width}), got {value.shape}")

    def to_json(self) -> dict[str, Any]:
        """A JSON-able description; `from_json` restores it exactly."""
        proprio = self.proprio
        return {
            "views": {view: list(size) for view, size in self.views.items()},
            "proprio": {
                "names": list(proprio.names),
                "offset": proprio.offset.tolist(),
                "scale": proprio.scale.tolist(),
                "fine": proprio.fine.tolist(),
            },
            "gripper": self.gripper.value,
            "active": list(self.active),
            "goal": [[entry.index, entry.unit.value, entry.coarse, entry.fine] for entry in self.goal],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AgentSpec:
        """The spec that `to_json` described; raises ValueError on anything else, naming a missing key."""
        try:
            return cls._from_json(value)
        except KeyError as error:
            raise ValueError(
                f"AgentSpec: expected the form of to_json, the key {error} is missing"
            ) from error
        except (AttributeError, IndexError, TypeError) as error:
            raise ValueError(f"AgentSpec: expected the form of to_json, got {value} ({error})") from error

    @classmethod
    def _from_json(cls, value: Mapping[str, Any]) -> AgentSpec:
        proprio = value["proprio"]
        return cls(
            views={view: (int(size[0]), int(size[1])) for view, size in value["views"].items()},
            proprio=ProprioSpec(
                names=list(proprio["names"]),
                offset=np.asarray(proprio["offset"], np.float32),
                scale=np.asarray(proprio["scale"], np.float32),
                fine=np.asarray(proprio["fine"], np.float32),
            ),
            gripper=GripperControl(value["gripper"]),
            active=tuple(value["active"]),
            goal=tuple(
                GoalOffset(int(index), GoalUnit(unit), float(coarse), float(fine))
                for index, unit, coarse, fine in value["goal"]
            ),
        )

    def fingerprint(self) -> int:
        """CRC-32 of the JSON form; it travels with published weights, to be compared by who loads them."""
        return zlib.crc32(json.dumps(self.to_json()).encode())


def _check_images(
    name: str,
    images: Mapping[str, Any],
    views: Mapping[str, tuple[int, int]],
    rows: int | None = None,
) -> None:
    if set(images) != set(views):
        raise ValueError(f"{name}: expected views {sorted(views)}, got {sorted(images)}")
    leading = () if rows is None else (rows,)
    for view, (height, width) in views.items():
        image = images[view]
        if image.shape != (*leading, height, width, 3) or image.dtype != np.uint8:
            expected = (*leading, height, width, 3)
            raise ValueError(f"{name}[{view}]: expected {expected} uint8, got {image.shape} {image.dtype}")
