"""From stored actions to what the action embedding sees: as they are, or in the released model's own convention."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from robot.geometry import DeltaFrame, quat_to_matrix, rotvec_to_matrix
from robot.types import ACTION_DIM, Array, Float32
from worldmodel.interface import ActionNormalisation, WorldModelError

RELEASED_SCALE = 20.0  # of metres and radians, in the released model's training data


class ActionConvention(Enum):
    """What the action embedding is fed.

    LEARNED: stored actions after the checkpoint's normalisation; the embedding is learned anew from our clips.
    RELEASED: converted to what the released embedding was trained on, which is then kept.
    """

    LEARNED = "learned"
    RELEASED = "released"


@dataclass(frozen=True)
class ActionConfig:
    """How stored actions become network inputs. All but `convention` matter for RELEASED only.

    frame: axes of the stored actions. The released model moves in the gripper's axes; base-axis actions would need
    the gripper's orientation at every imagined step, which nobody knows, so they are refused.
    position_scale [m], rotation_scale [rad]: what a stored entry of 1 stands for.
    gripper_from_tool: quaternion xyzw, turns coordinates of our tool frame into those of the released model's gripper.
    initially_closed: of the gripper, 0 open to 1 closed, until the first command.
    """

    convention: ActionConvention = ActionConvention.LEARNED
    frame: DeltaFrame = DeltaFrame.BASE
    position_scale: float = 0.0
    rotation_scale: float = 0.0
    gripper_from_tool: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0, 1.0])
    initially_closed: float = 0.0

    def __post_init__(self) -> None:
        if self.convention is ActionConvention.LEARNED:
            return
        if self.frame is not DeltaFrame.TOOL:
            raise WorldModelError(
                "actions.frame=base: the released action embedding needs actions in the gripper's axes; record with "
                "robot.action_frame=tool, or use actions.convention=learned"
            )
        if not (self.position_scale > 0 and self.rotation_scale > 0):
            raise WorldModelError(
                "actions: expected position_scale [m] and rotation_scale [rad] > 0, the task's action scale, got "
                f"{self.position_scale} and {self.rotation_scale}"
            )
        quaternion = self.gripper_from_tool
        if len(quaternion) != 4 or not math.isclose(math.hypot(*quaternion), 1.0, abs_tol=1e-3):
            raise WorldModelError(
                f"actions.gripper_from_tool: expected a unit quaternion xyzw, got {quaternion}"
            )
        if not 0 <= self.initially_closed <= 1:
            raise WorldModelError(f"actions.initially_closed: expected 0..1, got {self.initially_closed}")


def network_actions(actions: Float32, config: ActionConfig, normalisation: ActionNormalisation) -> Float32:
    """(B, n, A) stored actions, in order from the earliest known one, to (B, n, A) network inputs."""
    match config.convention:
        case ActionConvention.LEARNED:
            return normalisation.apply(actions)
        case ActionConvention.RELEASED:
            return _released(actions, config)


def _released(actions: Float32, config: ActionConfig) -> Float32:
    """20 (translation [m], roll pitch yaw [rad]) in the previous gripper axes, and closedness in [0, 1].

    The stored translation t and rotation vector r are in tool axes, so with G = gripper_from_tool the previous
    gripper axes see G t and G R(r) G^T. Stored actions are commands, where the released data held the difference of
    two measured poses: a lagging arm looks slower there. A stored gripper entry of 0 keeps the last command.
    """
    if actions.shape[-1] != ACTION_DIM:
        raise WorldModelError(
            f"the released action embedding: expected {ACTION_DIM}-dimensional actions, got {actions.shape[-1]}; use "
            "actions.convention=learned"
        )
    turn = quat_to_matrix(np.asarray(config.gripper_from_tool))
    converted = np.empty(actions.shape, np.float32)
    converted[..., :3] = RELEASED_SCALE * config.position_scale * (actions[..., :3] @ turn.T)
    for place in np.ndindex(actions.shape[:-1]):
        rotvec = config.rotation_scale * actions[place][3:6].astype(np.float64)
        angles = roll_pitch_yaw(turn @ rotvec_to_matrix(rotvec) @ turn.T)
        converted[place][3:6] = RELEASED_SCALE * angles
    converted[..., 6] = _closedness(actions[..., 6], config.initially_closed)
    return converted


def roll_pitch_yaw(rotation: Array) -> Array:
    """Angles (3,) [rad] with rotation = Rz(yaw) Ry(pitch) Rx(roll), for pitch within (-pi/2, pi/2)."""
    level = math.hypot(rotation[0, 0], rotation[1, 0])
    return np.array(
        [
            math.atan2(rotation[2, 1], rotation[2, 2]),
            math.atan2(-rotation[2, 0], level),
            math.atan2(rotation[1, 0], rotation[0, 0]),
        ]
    )


def _closedness(commands: NDArray[np.float32], initially: float) -> NDArray[np.float32]:
    """(B, n) commands, > 0 open, < 0 closed, 0 keep, to the held state (B, n), 0 open to 1 closed."""
    held = np.full(len(commands), initially, np.float32)
    states = np.empty(commands.shape, np.float32)
    for step in range(commands.shape[1]):
        command = commands[:, step]
        held = np.where(command == 0, held, np.where(command < 0, np.float32(1), np.float32(0)))
        states[:, step] = held
    return states
