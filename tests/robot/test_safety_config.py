"""The governor's configuration: no workspace by default, and nothing that contradicts itself."""

import numpy as np
import pytest

from robot.safety import ActionScale, FeedbackLimits, SafetyConfig
from tests.robot.safety_rig import config


def test_workspace_has_no_default() -> None:
    with pytest.raises(TypeError, match="workspace"):
        SafetyConfig()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workspace_lower": np.array([0.4, -0.2, 0.0])}, "workspace_lower < workspace_upper"),
        ({"workspace_lower": np.array([np.nan, -0.2, 0.0])}, "workspace_lower"),
        ({"reference_rotation": np.ones((3, 3))}, "rotation matrix"),
        ({"rotation_limit": np.array([2.0, 2.0, 0.1])}, "rotation_limit"),
        ({"max_joint_speed": 0.0}, "max_joint_speed"),
        ({"silence_fault": 0.1}, "silence_fault"),
        ({"control_period": 0.3}, "silence_hold > control_period.*raise robot.control_hz"),
        ({"leash_joint": 0.3}, "leash_joint"),
    ],
)
def test_bad_configuration_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**changes)


def test_bad_scale_and_feedback_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="ActionScale"):
        ActionScale(position=5.0, rotation=0.0)
    with pytest.raises(ValueError, match="max_age"):
        FeedbackLimits(max_age=0.05)
    with pytest.raises(ValueError, match="effort_limits"):
        FeedbackLimits(effort_limits=(1.0, 2.0))
