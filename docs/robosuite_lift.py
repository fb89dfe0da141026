"""robosuite's UR5e Lift for Groundhog: copy this file and change it for a simulator of your own; see foreign.md.

groundhog train robot.kind=foreign robot.foreign=docs.robosuite_lift:make_task robot.task=robosuite_lift ...
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import robosuite
from robosuite.utils import transform_utils as tf
from robosuite.wrappers import GymWrapper

from robot.factory import ObsKind, RobotConfig
from robot.foreign import ForeignTask
from robot.types import Array, Float32, Image, ProprioSpec

CAMERAS = {"wrist": "robot0_eye_in_hand", "side": "agentview"}  # view -> robosuite's camera
TOOL_DOWN = np.array([1.0, 0.0, 0.0, 0.0])  # xyzw
STEP = 0.05  # m that an action entry of 1 moves the target, robosuite's default OSC_POSE controller
TURN = 0.1  # rad; the controller's own 0.5 would make a policy that explores tumble
TABLE = 0.8  # m, height of its top

# name -> offset, scale, fine scale (0 = none); SI units
SEEN = {
    "ee_x": (0.0, 0.2, 0.0),
    "ee_y": (0.0, 0.2, 0.0),
    "ee_z": (0.9, 0.15, 0.01),
    **{f"ee_r{axis}": (0.0, 0.25, 0.0) for axis in "xyz"},
    **{f"joint_velocity_{k}": (0.0, 0.5, 0.0) for k in range(6)},
    "finger": (0.4, 0.4, 0.0),  # rad, 0 open
}
KNOWN = {  # what no camera tells: only with robot.obs=state
    "cube_dx": (0.0, 0.1, 0.01),
    "cube_dy": (0.0, 0.1, 0.01),
    "cube_dz": (0.0, 0.1, 0.01),
    "cube_height": (0.0, 0.05, 0.01),
    "cube_sin_4yaw": (0.0, 1.0, 0.0),
    "cube_cos_4yaw": (0.0, 1.0, 0.0),
}


class SeededLift(gym.Wrapper[Any, Any, Any, Any]):
    """GymWrapper seeds NumPy's global generator, which Lift does not use, and does not tell success."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        lift: Any = self.unwrapped
        if seed is not None:  # in place: the placement of the cube shares this generator
            lift.rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state
        return self.env.reset()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        values, reward, terminated, truncated, info = self.env.step(action)
        lift: Any = self.unwrapped
        return values, reward, terminated, truncated, {**info, "success": bool(lift._check_success())}


class LiftExpert:
    """Above the cube, down, close, up. noise: shake, pauses, and how far from the cube's middle it aims."""

    def __init__(self, lift: Any, rng: np.random.Generator, noise: float) -> None:
        self._lift, self._rng, self._noise = lift, rng, noise
        self._aim = np.zeros(3)
        self._closing = self._pause = 0

    def reset(self) -> None:
        self._closing = self._pause = 0
        self._aim = self._noise * self._rng.uniform(-0.02, 0.02, 3)

    def act(self) -> Float32:
        action = np.zeros(7)
        if self._pause == 0 and self._rng.random() < 0.1 * self._noise:
            self._pause = int(self._rng.integers(1, 5))
        if self._pause > 0:
            self._pause -= 1
            return action.astype(np.float32)
        seen = self._lift._get_observations()
        way = seen["cube_pos"] + self._aim - seen["robot0_eef_pos"]
        action[6] = 1.0
        if self._closing > 4:
            way, action[6] = np.array([0.0, 0.0, 0.1]), -1.0
        elif self._closing or np.abs(way).max() < 0.01:
            self._closing += 1
            way, action[6] = np.zeros(3), -1.0
        elif np.abs(way[:2]).max() > 0.015:
            way[2] += 0.08
        action[:3] = np.clip(way / STEP, -0.6, 0.6) + self._rng.normal(0.0, 0.6 * self._noise, 3)
        action[3:6] = np.clip(
            -_tilt(seen["robot0_eef_quat"]) / TURN, -0.5, 0.5
        )  # upright, whatever went before
        action[3:6] += self._rng.normal(0.0, 0.3 * self._noise, 3)
        return np.clip(action, -1.0, 1.0).astype(np.float32)


def make_task(config: RobotConfig) -> ForeignTask:
    """Lift at the image size, control rate and with the views of `config`; from state, or from pixels."""
    pixels = config.obs is ObsKind.PIXELS
    unknown = sorted(set(config.views) - set(CAMERAS))
    if unknown:
        raise ValueError(f"robot.views: {unknown[0]} is no view; known: {', '.join(CAMERAS)}")
    views = dict.fromkeys(config.views, (config.image_px, config.image_px)) if pixels else {}
    scales = SEEN if pixels else {**SEEN, **KNOWN}
    lift = robosuite.make(
        "Lift",
        robots="UR5e",
        control_freq=config.control_hz,
        use_camera_obs=pixels,
        camera_names=[CAMERAS[view] for view in config.views],
        camera_heights=config.image_px,
        camera_widths=config.image_px,
        has_renderer=False,
        has_offscreen_renderer=pixels,
        hard_reset=False,
        ignore_done=True,  # its time limit would come as `terminated`
    )
    keys = [
        "robot0_eef_pos",
        "robot0_eef_quat",
        "robot0_joint_vel",
        "robot0_gripper_qpos",
        "cube_pos",
        "cube_quat",
    ]
    keys += [f"{CAMERAS[view]}_image" for view in views]
    env = SeededLift(GymWrapper(lift, keys=keys, flatten_obs=False))

    def observe(values: dict[str, Array]) -> tuple[dict[str, Image], Array]:
        images = {view: values[f"{CAMERAS[view]}_image"][::-1] for view in views}  # OpenGL's rows go up
        return images, _proprio(values, privileged=not pixels)

    return ForeignTask(
        env=env,
        name="robosuite_lift",
        instruction="lift the red cube",
        max_steps=60,
        hold_steps=3,
        views=views,
        proprio=ProprioSpec(
            tuple(scales), *(np.array(column, np.float32) for column in zip(*scales.values(), strict=True))
        ),
        observe=observe,
        act=lambda action: np.array([1.0] * 3 + [TURN / 0.5] * 3 + [-1.0]) * action,  # robosuite closes at +1
        metadata={
            "robot": "UR5e",
            "controller": "OSC_POSE",
            "action_scale_m": STEP,
            "action_scale_rad": TURN,
        },
        expert=lambda rng, noise: LiftExpert(lift, rng, noise),
    )


def _proprio(values: dict[str, Array], *, privileged: bool) -> Array:
    tool, cube = values["robot0_eef_pos"], values["cube_pos"]
    seen = [tool, _tilt(values["robot0_eef_quat"]), values["robot0_joint_vel"]]
    seen.append(values["robot0_gripper_qpos"][:1])
    if privileged:
        yaw = 4.0 * tf.mat2euler(tf.quat2mat(values["cube_quat"]))[2]  # a cube looks alike every quarter turn
        seen += [cube - tool, [cube[2] - TABLE, np.sin(yaw), np.cos(yaw)]]
    return np.concatenate(seen)


def _tilt(quaternion: Array) -> Array:
    """Rotation vector (3,) [rad] from the tool pointing down to `quaternion`, about base axes."""
    turn = tf.quat_multiply(quaternion, tf.quat_inverse(TOOL_DOWN))
    return np.asarray(tf.quat2axisangle(turn * np.sign(turn[3])))
