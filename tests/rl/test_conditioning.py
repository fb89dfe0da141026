"""What a world model is told: the command, or what the readings say that the tool has moved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from video_cell import Cell, Still, recorded

from rl.world_models.data import make_spec
from robot.types import Float32, ProprioSpec
from worldmodel.audit import audit
from worldmodel.baselines import CopyLastFrame
from worldmodel.clips import MOTION_UNIT, split, told
from worldmodel.counterfactual import Branches
from worldmodel.factory import load_world_model
from worldmodel.interface import Conditioning, Context, Imagined, WorldModelError, WorldModelSpec

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    with recorded(tmp_path_factory.mktemp("stores")) as made:
        yield made


@pytest.fixture
def measured(cell: Cell) -> WorldModelSpec:
    return replace(cell.model.spec, conditioning=Conditioning.MEASURED)


class Listening(CopyLastFrame):
    """Keeps what it was told."""

    def __init__(self, spec: WorldModelSpec) -> None:
        super().__init__(spec)
        self.heard: list[Float32] = []

    def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
        self.heard.append(actions[:, 0])
        return super().rollout(context, actions, seed)


def test_motion_is_the_change_of_the_pose_and_the_gripper_stays_as_commanded(
    cell: Cell, measured: WorldModelSpec
) -> None:
    rng = np.random.default_rng(0)
    clip = cell.pool.clip(cell.pool.draw(1, rng)[0], 4, 2)
    context, future = split(clip, measured)
    moved = np.diff(clip.proprio[..., :6], axis=1) / MOTION_UNIT
    np.testing.assert_allclose(
        np.concatenate([context.past_action, future.action], 1)[..., :6], moved, atol=1e-4
    )
    np.testing.assert_array_equal(future.action[..., 6], clip.action[:, 2:, 6])
    commanded, _ = split(clip, cell.model.spec)
    np.testing.assert_array_equal(commanded.past_action, clip.action[:, :2])


@pytest.mark.parametrize("axis", [(0.0, 0.0, 1.0), (0.6, 0.0, -0.8), (-0.48, 0.6, 0.64)])
def test_a_turn_across_the_seam_of_the_rotation_vector_is_a_small_one(
    measured: WorldModelSpec, axis: tuple[float, float, float]
) -> None:
    proprio = np.zeros((2, 6), np.float32)
    proprio[:, 3:] = np.outer([np.pi - 0.01, -np.pi + 0.01], axis)
    turned = told(measured, np.zeros((1, 7), np.float32), proprio)[0, 3:6]
    np.testing.assert_allclose(turned, 0.02 / 0.05 * np.array(axis), atol=1e-4)


def test_a_pose_that_is_no_number_is_refused(measured: WorldModelSpec) -> None:
    proprio = np.full((2, 6), np.nan, np.float32)
    with pytest.raises(WorldModelError, match="finite poses"):
        told(measured, np.zeros((1, 7), np.float32), proprio)


def test_imagination_tells_the_model_how_far_the_imagined_arm_moves(
    cell: Cell, measured: WorldModelSpec
) -> None:
    """The policy pushes upwards all the time; once the arm is at the ceiling, the model hears of no motion."""
    listening = Listening(measured)
    clip = cell.imagination(listening, clip_length=30, parallel=1, replay_share=0.0).imagine(Still())[0]
    heard = np.concatenate(listening.heard)[: len(clip)]
    poses = np.stack([observation.proprio[:6] for observation in clip.observations])
    np.testing.assert_allclose(heard[:, :6], np.diff(poses, axis=0) / MOTION_UNIT, atol=1e-3)
    assert heard[:5, 2].mean() > 0.5 and abs(heard[-5:, 2].mean()) < 0.2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"proprio": ProprioSpec(("joint_0",), *np.ones((3, 1), np.float32))}, "readings first"),
        ({"metadata": {"proprio_frame": "reset"}}, "proprio_frame of base, the store has reset"),
        ({"action_dim": 4}, "the gripper, 7, the store has 4"),
    ],
)
def test_a_store_that_does_not_say_how_the_tool_has_moved_is_refused(
    cell: Cell, change: dict[str, object], message: str
) -> None:
    schema = replace(cell.pool.schema, **change)  # type: ignore[arg-type]
    assert make_spec(schema, 3, 8).conditioning is Conditioning.COMMANDED
    with pytest.raises(WorldModelError, match=message):
        make_spec(schema, 3, 8, conditioning=Conditioning.MEASURED)


def test_a_file_says_what_its_model_is_told(tmp_path: Path, measured: WorldModelSpec) -> None:
    path = tmp_path / "000001.safetensors"
    CopyLastFrame(measured).save(path)
    assert load_world_model(path, device=CPU).spec.conditioning is Conditioning.MEASURED
    with pytest.raises(
        WorldModelError, match="conditioning: expected commanded, the checkpoint has measured"
    ):
        load_world_model(path, device=CPU, spec=replace(measured, conditioning=Conditioning.COMMANDED))


def test_files_from_before_there_was_a_choice_are_of_commanded_models(tmp_path: Path, cell: Cell) -> None:
    path = tmp_path / "000001.safetensors"
    CopyLastFrame(cell.model.spec).save(path)
    with safe_open(path, framework="np") as file:
        ((key, text),) = file.metadata().items()
    meta = json.loads(text)
    del meta["conditioning"]
    save_file(load_file(path), path, metadata={key: json.dumps(meta)})
    assert load_world_model(path, device=CPU).spec.conditioning is Conditioning.COMMANDED


def test_no_audit_of_actions_whose_motion_nobody_has_measured(cell: Cell, measured: WorldModelSpec) -> None:
    clip = cell.pool.clip(cell.pool.draw(1, np.random.default_rng(0))[0], 4, 2)
    branches = Branches.__new__(Branches)
    with pytest.raises(WorldModelError, match="train one with"):
        audit(CopyLastFrame(measured), clip, branches, cell=None)  # type: ignore[arg-type]
