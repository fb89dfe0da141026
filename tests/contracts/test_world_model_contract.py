"""What every WorldModel must do. A new model joins with a case here."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from robot.types import Float32
from tests.worldmodel import cosmos_cases
from tests.worldmodel.world_model_cases import TINY, SquareWorld, held_out, spec
from worldmodel.baselines import CopyLastFrame, TrainMean
from worldmodel.cosmos.model import CosmosWorldModel
from worldmodel.edm import EdmConfig, EdmModel
from worldmodel.factory import load_world_model
from worldmodel.interface import Context, Stepwise, WorldModel, WorldModelError, WorldModelSpec, begin
from worldmodel.warp_model import FlowWarpModel

CPU = torch.device("cpu")
TINY_EDM = EdmConfig(pixels=16, unshuffle=2, channels=[16, 32], batch=4, bfloat16=False)
VIEWS = {"top": (16, 16), "wide": (12, 20)}
MAKE: dict[str, Callable[[WorldModelSpec], WorldModel]] = {
    "edm": lambda wanted: EdmModel(wanted, TINY_EDM, CPU),
    "flow_warp": lambda wanted: FlowWarpModel(wanted, TINY, CPU),
    "copy_last": CopyLastFrame,
    "train_mean": TrainMean,
    "cosmos": cosmos_cases.model_of,
}


@pytest.fixture(params=[pytest.param(make, id=name) for name, make in MAKE.items()])
def model(request: pytest.FixtureRequest) -> WorldModel:
    """A model of two views of different sizes that has seen some clips."""
    made: WorldModel = request.param(spec(VIEWS))
    made.adapt(SquareWorld(VIEWS), 2, np.random.default_rng(0))
    return made


@pytest.fixture
def start(model: WorldModel) -> tuple[Context, Float32]:
    context, actions, _ = held_out(model.spec, n=3)
    return context, actions


def test_a_rollout_has_a_frame_and_a_risk_for_every_action(
    model: WorldModel, start: tuple[Context, Float32]
) -> None:
    context, actions = start
    imagined = model.rollout(context, actions)
    assert list(imagined.images) == list(model.spec.views)
    for view, size in VIEWS.items():
        assert imagined.images[view].shape == (3, 4, *size, 3) and imagined.images[view].dtype == np.uint8
    assert imagined.risk.shape == (3, 4) and imagined.risk.dtype == np.float32
    assert np.isfinite(imagined.risk).all() and (imagined.risk >= 0).all()
    assert imagined.version == model.version


def test_a_seed_repeats_and_two_seeds_differ_only_where_the_model_says_so(
    model: WorldModel, start: tuple[Context, Float32]
) -> None:
    first, again, other = (model.rollout(*start, seed=seed).images["top"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.array_equal(first, other) is not model.stochastic


def test_clips_of_a_batch_do_not_touch_each_other(model: WorldModel, start: tuple[Context, Float32]) -> None:
    if model.stochastic:
        pytest.skip("noise is drawn for the whole batch")
    context, actions = start
    alone = Context({v: f[1:2] for v, f in context.images.items()}, context.past_action[1:2])
    batch, single = model.rollout(context, actions), model.rollout(alone, actions[1:2])
    for view in VIEWS:
        difference = batch.images[view][1:2].astype(int) - single.images[view]
        assert np.abs(difference).max() <= 1  # kernels may sum in another order for another batch size


def test_the_future_does_not_reach_back(model: WorldModel, start: tuple[Context, Float32]) -> None:
    if isinstance(model, CosmosWorldModel):
        pytest.skip("the frames of a chunk are imagined together")
    context, actions = start
    changed = actions.copy()
    changed[:, 3:] = 0.9
    before, after = model.rollout(context, actions).images, model.rollout(context, changed).images
    for view in VIEWS:
        np.testing.assert_array_equal(before[view][:, :3], after[view][:, :3])


def test_saved_and_loaded_it_imagines_the_same_and_goes_on_the_same(
    model: WorldModel, start: tuple[Context, Float32], tmp_path: Path
) -> None:
    model.version = 7
    model.save(tmp_path / "a.safetensors", {"psnr": 21.5})
    loaded = load_world_model(tmp_path / "a.safetensors", device=CPU, spec=model.spec)
    assert loaded.version == 7 and loaded.spec.views == model.spec.views
    for _ in range(2):
        ours, theirs = model.rollout(*start), loaded.rollout(*start)
        for view in VIEWS:
            np.testing.assert_array_equal(ours.images[view], theirs.images[view])
        np.testing.assert_array_equal(ours.risk, theirs.risk)
        for one in (model, loaded):
            one.adapt(SquareWorld(VIEWS), 2, np.random.default_rng(5))


def test_adapt_keeps_the_version_and_returns_finite_numbers(model: WorldModel) -> None:
    before = model.version
    metrics = model.adapt(SquareWorld(VIEWS), 1, np.random.default_rng(1))
    assert model.version == before and all(np.isfinite(list(metrics.values())))


def test_wrong_inputs_of_a_rollout_are_named(model: WorldModel, start: tuple[Context, Float32]) -> None:
    context, actions = start

    def refused(pattern: str, images: dict[str, np.ndarray] | None = None, act: Float32 = actions) -> None:
        wrong = context if images is None else dataclasses.replace(context, images=images)
        with pytest.raises(WorldModelError, match=pattern):
            model.rollout(wrong, act)

    images = dict(context.images)
    refused("views: expected", {"top": images["top"]})
    refused("context.images\\[top\\]", images | {"top": images["wide"]})
    refused("context.images\\[wide\\]", images | {"wide": images["wide"][:, :1]})
    refused("expected \\(3, n, 2\\)", act=actions[..., :1])
    refused("expected 1..6 steps", act=np.repeat(actions, 2, axis=1))
    refused("expected finite", act=np.full_like(actions, np.nan))


def test_a_torn_or_foreign_file_is_named(model: WorldModel, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    model.save(path)
    whole = path.read_bytes()
    for content in (b"", whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(content)
        with pytest.raises(WorldModelError, match=r"a\.safetensors"):
            load_world_model(path, device=CPU)
    with pytest.raises(WorldModelError, match="missing"):
        load_world_model(tmp_path / "missing.safetensors", device=CPU)


def test_a_file_of_a_model_told_the_measured_motion_is_refused_and_of_one_told_the_command_loads(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.safetensors"
    CopyLastFrame(spec(VIEWS)).save(path)
    with safe_open(path, framework="np") as file:
        ((key, text),) = file.metadata().items()
    tensors = load_file(path)

    def say(conditioning: str) -> None:
        save_file(tensors, path, {key: json.dumps({**json.loads(text), "conditioning": conditioning})})

    say("commanded")
    load_world_model(path, device=CPU, spec=spec(VIEWS))
    say("measured")
    with pytest.raises(WorldModelError, match=r"a\.safetensors: expected .* commanded motion, got measured"):
        load_world_model(path, device=CPU)


def test_a_checkpoint_of_other_views_or_another_normalisation_is_refused(
    model: WorldModel, tmp_path: Path
) -> None:
    path = tmp_path / "a.safetensors"
    model.save(path)
    action = dataclasses.replace(model.spec.action, scale=np.full(2, 0.5, np.float32))
    others = {
        "views": dataclasses.replace(model.spec, views={"top": (16, 16)}),
        "scale": dataclasses.replace(model.spec, action=action),
    }
    for pattern, wanted in others.items():
        with pytest.raises(WorldModelError, match=pattern):
            load_world_model(path, device=CPU, spec=wanted)


def test_step_by_step_it_imagines_frames_of_the_same_kind_and_a_stepwise_model_the_very_same(
    model: WorldModel, start: tuple[Context, Float32]
) -> None:
    context, actions = start
    whole, rollout = model.rollout(context, actions), begin(model, context)
    for k in range(actions.shape[1]):
        step = rollout.step(actions[:, k])
        assert step.risk.shape == (3, 1) and step.version == model.version
        for view, size in VIEWS.items():
            assert step.images[view].shape == (3, 1, *size, 3) and step.images[view].dtype == np.uint8
            if isinstance(model, Stepwise):
                np.testing.assert_array_equal(step.images[view][:, 0], whole.images[view][:, k])
