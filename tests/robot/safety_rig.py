"""A governor with its clock and an arm that follows it, for the tests of safety."""

import dataclasses

import numpy as np
import pytest
from hypothesis import settings

from robot.geometry import DeltaFrame
from robot.interfaces import ArmState, RobotFault
from robot.kinematics import Kinematics
from robot.safety import ActionScale, GovernedCommand, GovernorTransition, SafetyConfig, SafetyGovernor
from robot.types import Array

HOME = np.array([0.0, 1.75, -1.45, 1.27, 0.0, 0.0])  # tool down at (0.243, 0, 0.200) m
SCALE = ActionScale(position=0.005, rotation=0.03)
KINEMATICS = Kinematics()
PERIOD = 0.1
UNHURRIED = settings(deadline=None, max_examples=60)


def config(**changes: object) -> SafetyConfig:
    fields: dict[str, object] = {
        "workspace_lower": np.array([0.18, -0.20, 0.02]),
        "workspace_upper": np.array([0.36, 0.20, 0.25]),
    }
    return SafetyConfig(**(fields | changes))  # type: ignore[arg-type]


def measured(joints: Array, time: float, **changes: object) -> ArmState:
    # The efforts tell that the feedback is alive.
    state = ArmState(joints.copy(), np.zeros(6), np.full(6, 1e-6 * time), 1.0, time, commanded=None)
    return dataclasses.replace(state, **changes)  # type: ignore[arg-type]


def action(**entries: float) -> Array:
    names = ("x", "y", "z", "rx", "ry", "rz", "gripper")
    return np.array([entries.get(name, 0.0) for name in names])


class Rig:
    """A governor, its clock, and an arm that reaches a share `follow` of the way to its target per step.

    commanded: where its driver sends it, at first where it is.
    """

    def __init__(self, joints: Array = HOME, follow: float = 1.0, **changes: object) -> None:
        self.config = config(**changes)
        self.seen: list[GovernorTransition] = []
        self.governor = SafetyGovernor(self.config, KINEMATICS, on_transition=self.seen.append)
        self.joints, self.commanded = joints.copy(), joints.copy()
        self.follow = follow
        self.time = 0.0
        self.governor.unlock(measured(self.joints, 0.0), 0.0)

    def step(
        self,
        wish: Array,
        scale: ActionScale = SCALE,
        frame: DeltaFrame = DeltaFrame.BASE,
        dt: float = PERIOD,
        **changes: object,
    ) -> GovernedCommand:
        self.time += dt
        state = self.state(self.time, **changes)
        command = self.governor.command(wish, scale, state, self.time, frame=frame)
        if command.joint_positions is not None:
            self.commanded = command.joint_positions
        self.joints += self.follow * (self.commanded - self.joints)
        return command

    def state(self, time: float, **changes: object) -> ArmState:
        """What the arm's driver reports at `time` [s]."""
        return measured(self.joints, time, **({"commanded": self.commanded} | changes))

    def hold(self) -> None:
        """The driver holds the arm where it is, and the governor is told."""
        self.commanded = self.joints.copy()
        self.governor.hold(self.state(self.time), self.time)

    def fault(self, wish: Array, **changes: object) -> RobotFault:
        with pytest.raises(RobotFault) as caught:
            self.step(wish, **changes)  # type: ignore[arg-type]
        return caught.value
