"""A1X kinematics against MuJoCo, finite differences, and round trips."""

import mujoco
import numpy as np
import pytest

from robot.geometry import DeltaFrame, Pose, apply_delta, matrix_to_rotvec, rotvec_to_matrix
from robot.kinematics import (
    GRIPPER_OFFSET,
    JOINT_LIMITS,
    JOINTS,
    TOOL_OFFSET,
    ArmGeometry,
    IKConfig,
    Kinematics,
    a1x_geometry,
)
from robot.types import Array

HOME = np.array([0.0, 1.75, -1.45, 1.27, 0.0, 0.0])


def random_joints(count: int, margin: float = 0.1) -> Array:
    rng = np.random.default_rng(3)
    return rng.uniform(JOINT_LIMITS[:, 0] + margin, JOINT_LIMITS[:, 1] - margin, (count, 6))


def mujoco_arm() -> tuple[mujoco.MjModel, mujoco.MjData]:
    inside = f'<site name="tcp" pos="{GRIPPER_OFFSET + TOOL_OFFSET} 0 0"/>'
    for joint in reversed(JOINTS):
        offset, axis = (" ".join(map(str, v)) for v in (joint.offset, joint.axis))
        inside = (
            f'<body pos="{offset}"><joint axis="{axis}"/><inertial pos="0 0 0" mass="{joint.link_mass}" '
            f'diaginertia=".01 .01 .01"/>{inside}</body>'
        )
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><compiler angle="radian"/><worldbody>{inside}</worldbody></mujoco>'
    )
    return model, mujoco.MjData(model)


def test_forward_and_jacobian_agree_with_mujoco() -> None:
    model, data = mujoco_arm()
    kinematics = Kinematics()
    linear, angular = np.zeros((3, 6)), np.zeros((3, 6))
    for joints in random_joints(50):
        data.qpos[:] = joints
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_jacSite(model, data, linear, angular, 0)
        pose = kinematics.forward(joints)
        np.testing.assert_allclose(pose.position, data.site_xpos[0], atol=1e-9)
        np.testing.assert_allclose(pose.rotation.ravel(), data.site_xmat[0], atol=1e-9)
        np.testing.assert_allclose(kinematics.jacobian(joints), np.vstack((linear, angular)), atol=1e-9)


def test_home_points_the_tool_down() -> None:
    pose = Kinematics().forward(HOME)
    np.testing.assert_allclose(pose.rotation[:, 0], [0, 0, -1], atol=1e-3)
    np.testing.assert_allclose(pose.position, [0.2429, 0.0, 0.2000], atol=1e-4)


def test_tool_offset_is_along_the_tool_axis() -> None:
    near, far = (Kinematics(a1x_geometry(x)).forward(HOME) for x in (0.0, 0.1))
    np.testing.assert_allclose(far.position - near.position, 0.1 * near.rotation[:, 0], atol=1e-12)


def test_jacobian_is_the_derivative_of_forward() -> None:
    kinematics = Kinematics()
    step = 1e-6
    for joints in random_joints(20):
        jacobian = kinematics.jacobian(joints)
        for i in range(6):
            ahead, behind = (kinematics.forward(joints + sign * step * np.eye(6)[i]) for sign in (1.0, -1.0))
            velocity = (ahead.position - behind.position) / (2 * step)
            spin = matrix_to_rotvec(ahead.rotation @ behind.rotation.T) / (2 * step)
            np.testing.assert_allclose(jacobian[:, i], np.concatenate((velocity, spin)), atol=1e-8)


def test_inverse_returns_near_the_seed_from_random_reachable_poses() -> None:
    kinematics = Kinematics()
    rng = np.random.default_rng(1)
    steps = []
    for goal in random_joints(200):
        seed = np.clip(goal + rng.uniform(-0.1, 0.1, 6), JOINT_LIMITS[:, 0] + 0.03, JOINT_LIMITS[:, 1] - 0.03)
        target = kinematics.forward(goal)
        result = kinematics.inverse(target, seed)
        assert result.converged
        reached = kinematics.forward(result.joint_positions)
        assert np.linalg.norm(reached.position - target.position) <= 1e-4
        assert np.linalg.norm(matrix_to_rotvec(target.rotation @ reached.rotation.T)) <= 1e-3
        steps.append(np.abs(result.joint_positions - seed).max())
    # Near a singular wrist a longer way is legitimate, a jump to another branch (pi) never is.
    assert np.percentile(steps, 90) < 0.2 and max(steps) < 1.5


def test_inverse_of_a_small_step_needs_few_iterations() -> None:
    kinematics = Kinematics()
    target = apply_delta(
        kinematics.forward(HOME), np.array([0.006, -0.006, 0.005, 0, 0, 0.05]), DeltaFrame.BASE
    )
    result = kinematics.inverse(target, HOME)
    assert result.converged and result.iterations <= 3
    assert np.abs(result.joint_positions - HOME).max() < 0.1


@pytest.mark.parametrize("position", [(0.9, 0.0, 0.2), (0.0, 0.0, -0.6)])
def test_unreachable_target_is_reported(position: tuple[float, float, float]) -> None:
    kinematics = Kinematics()
    target = Pose(np.array(position), rotvec_to_matrix(np.array([0.0, 1.5, 0.0])))
    result = kinematics.inverse(target, HOME)
    assert not result.converged and result.position_error > 0.05
    reached = kinematics.forward(result.joint_positions)
    assert np.linalg.norm(reached.position - target.position) == pytest.approx(result.position_error)


def test_inverse_moves_by_capped_steps() -> None:
    kinematics = Kinematics()
    target = Pose(np.array([0.0, 0.5, 0.3]), np.eye(3))
    result = kinematics.inverse(target, HOME, IKConfig(max_iterations=1, max_step=0.05))
    assert np.abs(result.joint_positions - HOME).max() == pytest.approx(0.05)


def test_inverse_keeps_the_joint_margin() -> None:
    kinematics = Kinematics()
    config = IKConfig(joint_margin=0.05)
    for joints in random_joints(50, margin=0.0):
        found = kinematics.inverse(kinematics.forward(joints), joints, config).joint_positions
        assert (found >= JOINT_LIMITS[:, 0] + 0.05 - 1e-12).all()
        assert (found <= JOINT_LIMITS[:, 1] - 0.05 + 1e-12).all()


def test_bad_configuration_is_refused() -> None:
    with pytest.raises(ValueError, match="damping"):
        IKConfig(damping=0.0)
    with pytest.raises(ValueError, match="max_iterations"):
        IKConfig(max_iterations=0)
    with pytest.raises(ValueError, match="expected six"):
        ArmGeometry(JOINTS[:5], a1x_geometry().tool)
