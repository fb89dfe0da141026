"""How near actions, the policy's or a baseline's, come to the executed ones of recorded episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl.agent.spec import GRIPPER_INDEX, AgentSpec, GripperControl
from robot.types import Float32

AXES = ("x", "y", "z", "rx", "ry", "rz", "gripper")


def agreement(spec: AgentSpec, action: Float32, executed: Float32) -> dict[str, Any]:
    """Mean absolute error of actions (N, 7) in -1..1, N >= 1: over the motion axes that `spec` controls, and of each.

    gripper_accuracy: share of steps with the same command: close, open, or neither within half a unit of 0; None
    where the gripper is not controlled.
    """
    error = np.abs(action - executed).mean(axis=0)
    moved = [index for index in spec.policy_indices if index != GRIPPER_INDEX]
    same = np.round(action[:, GRIPPER_INDEX]) == np.round(executed[:, GRIPPER_INDEX])
    return {
        "steps": len(action),
        "error": float(error[moved].mean()),
        "per_axis": {AXES[index]: float(error[index]) for index in moved},
        "gripper_accuracy": None if spec.gripper is GripperControl.FIXED else float(np.mean(same)),
    }
