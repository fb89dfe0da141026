"""The Cosmos world model on a tiny random configuration: it learns, imagines, and survives a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.worldmodel.cosmos_cases import (
    CPU,
    VIEWS,
    FixedClips,
    frames,
    tiny_autoencoder,
    tiny_config,
    tiny_model,
    tiny_spec,
)
from worldmodel.cosmos import views
from worldmodel.cosmos.adaptation import Adapt, Precision, trained
from worldmodel.cosmos.flow import flow_loss, make_scheduler, noise_levels, sample
from worldmodel.cosmos.model import CosmosWorldModel
from worldmodel.factory import load_world_model
from worldmodel.interface import Context, WorldModelError


def context(seed: int = 6, batch: int = 2) -> Context:
    rng = np.random.default_rng(seed)
    return Context(frames(rng, batch, 2), rng.uniform(-1, 1, (batch, 1, 7)).astype(np.float32))


def actions(steps: int, seed: int = 7, batch: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (batch, steps, 7)).astype(np.float32)


def snapshot(model: CosmosWorldModel) -> dict[str, Tensor]:
    return {name: weight.clone() for name, weight in model.network.state_dict().items()}


def changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


def test_training_lowers_the_loss_and_moves_the_action_embedding() -> None:
    model = tiny_model()
    before = snapshot(model)
    rng = np.random.default_rng(0)
    first = model.adapt(FixedClips(), 3, rng)
    for _ in range(3):
        last = model.adapt(FixedClips(), 6, rng)
    moved = changed(before, snapshot(model))
    for part in ("to_time.fc1", "to_time.fc2", "to_adaln.fc1", "to_adaln.fc2", "patch_embed.proj"):
        assert f"backbone.time_embed.{part}.weight" in moved or f"backbone.{part}.weight" in moved
    assert last["world_model/loss"] < 0.8 * first["world_model/loss"]
    assert first["world_model/gradient_norm"] > 0


def test_lora_trains_its_own_weights_and_the_action_embedding_only() -> None:
    model = tiny_model(tiny_config(adapt=Adapt.LORA))
    before = snapshot(model)
    model.adapt(FixedClips(), 2, np.random.default_rng(0))
    moved = changed(before, snapshot(model))
    assert moved
    assert all("lora_" in name or ".to_time." in name or ".to_adaln." in name for name in moved)
    assert moved == {name for name, _ in trained(model.network)}
    assert sum("lora_" in name for name in moved) == 2 * 2 * (4 + 4 + 2)  # A and B, layers, projections


def test_new_lora_weights_change_nothing() -> None:
    full = tiny_model()
    lora = tiny_model(tiny_config(adapt=Adapt.LORA))
    first, second = (m.rollout(context(), actions(4), seed=1).images for m in (full, lora))
    for view in VIEWS:
        np.testing.assert_array_equal(first[view], second[view])


def test_bfloat16_keeps_what_learns_in_float32() -> None:
    model = tiny_model(tiny_config(adapt=Adapt.LORA, precision=Precision.BFLOAT16))
    frozen = model.network.state_dict()["backbone.transformer_blocks.0.attn1.to_q.base_layer.weight"]
    assert frozen.dtype is torch.bfloat16
    assert {weight.dtype for _, weight in trained(model.network)} == {torch.float32}
    assert np.isfinite(model.adapt(FixedClips(), 1, np.random.default_rng(0))["world_model/loss"])
    assert model.rollout(context(), actions(2)).images["side"].shape == (2, 2, 16, 24, 3)


def test_rollouts_have_the_right_shape_and_follow_their_seed() -> None:
    model, steps = tiny_model(), 14  # two chunks, the second not full
    imagined = model.rollout(context(), actions(steps), seed=3)
    for view, size in VIEWS.items():
        assert imagined.images[view].shape == (2, steps, *size, 3)
        assert imagined.images[view].dtype == np.uint8
    assert imagined.risk.shape == (2, steps) and imagined.risk.dtype == np.float32
    assert np.isfinite(imagined.risk).all() and (imagined.risk > 0).all()
    again = model.rollout(context(), actions(steps), seed=3)
    other = model.rollout(context(), actions(steps), seed=4)
    np.testing.assert_array_equal(imagined.images["wrist"], again.images["wrist"])
    np.testing.assert_array_equal(imagined.risk, again.risk)
    assert (imagined.images["wrist"] != other.images["wrist"]).mean() > 0.5


def test_a_rollout_does_not_depend_on_how_it_is_batched() -> None:
    whole = tiny_model().rollout(context(), actions(4), seed=1)
    single = tiny_model(tiny_config(rollout_batch=1)).rollout(context(), actions(4), seed=1)
    difference = whole.images["side"].astype(int) - single.images["side"].astype(int)
    assert np.abs(difference).max() <= 1  # rounding of the last bit
    np.testing.assert_allclose(whole.risk, single.risk, atol=1e-3)


def test_imagined_frames_depend_on_the_actions_and_on_the_newest_frame_only() -> None:
    model, start = tiny_model(), context()
    images = model.rollout(start, actions(4)).images["side"]
    assert (images != model.rollout(start, -actions(4)).images["side"]).any()
    older = {view: np.concatenate((255 - f[:, :1], f[:, 1:]), axis=1) for view, f in start.images.items()}
    np.testing.assert_array_equal(
        images, model.rollout(replace(start, images=older), actions(4)).images["side"]
    )
    newer = {view: np.concatenate((f[:, :1], 255 - f[:, 1:]), axis=1) for view, f in start.images.items()}
    assert (images != model.rollout(replace(start, images=newer), actions(4)).images["side"]).any()


def test_the_sampler_keeps_the_given_frame_and_solves_a_known_flow() -> None:
    generator = torch.Generator().manual_seed(0)
    noise, target = torch.randn(2, 2, 16, 4, 4, 6, generator=generator)
    seen: list[Tensor] = []

    def velocity(noisy: Tensor, level: Tensor) -> Tensor:
        seen.append(noisy[:, :, :1])
        return (noisy - target) / level.view(-1, 1, 1, 1, 1)  # the straight line from the noise to the target

    drawn = sample(velocity, target[:, :, :1], noise, steps=4, shift=5.0)
    assert torch.equal(drawn[:, :, :1], target[:, :, :1])
    assert all(torch.equal(frame, target[:, :, :1]) for frame in seen) and len(seen) == 4
    torch.testing.assert_close(drawn, target, atol=1e-3, rtol=1e-3)


def test_the_noise_schedule_is_the_released_one() -> None:
    scheduler = make_scheduler(35, 5.0, CPU)
    uniform = torch.linspace(0.999, 0, 36)[:-1]
    shifted = 5 * uniform / (1 + 4 * uniform)
    torch.testing.assert_close(scheduler.sigmas[:-1], shifted, atol=1e-6, rtol=0)
    assert scheduler.timesteps[:3].tolist() == [999, 993, 987] and scheduler.sigmas[-1] == 0
    levels = noise_levels(torch.tensor([-1e9, 0.0, 1e9]), 5.0)
    torch.testing.assert_close(levels, torch.tensor([0.0, 5 / 6, 1.0]))


def test_the_loss_is_zero_for_the_true_velocity_and_skips_padding() -> None:
    generator = torch.Generator().manual_seed(0)
    latents, noise = torch.randn(2, 1, 16, 4, 2, 2, generator=generator)
    weight = torch.tensor([[1.0, 1, 1, 0]])

    def truth(noisy: Tensor, level: Tensor) -> Tensor:
        assert torch.equal(noisy[:, :, 0], latents[:, :, 0])  # the given frame enters clean
        return noise - latents

    def wrong_at(frame: int) -> Tensor:
        error = torch.zeros_like(latents)
        error[:, :, frame] = 1.0
        return flow_loss(lambda x, t: truth(x, t) + error, latents, noise, torch.tensor([0.4]), weight)

    assert wrong_at(0) == 0  # its velocity is known
    assert wrong_at(3) == 0  # padding
    torch.testing.assert_close(wrong_at(1), torch.tensor(1 / 3))


def test_views_are_stacked_as_latents_and_come_back() -> None:
    autoencoder = tiny_autoencoder()
    images = frames(np.random.default_rng(0), 2, 5)
    video = views.to_video(images, list(VIEWS), (16, 32), CPU)
    assert video.shape == (2, 2, 3, 5, 16, 32) and video.abs().max() <= 1
    with torch.no_grad():
        latents = views.encode(autoencoder, video)
        below = views.encode(autoencoder, video[:, 1:])
        first = views.encode(autoencoder, video[:, :, :, :1])
        decoded = views.decode(autoencoder, latents, 2)
    assert latents.shape == (2, 16, 2, 4, 4)
    torch.testing.assert_close(latents[:, :, :, 2:], below)
    torch.testing.assert_close(latents[:, :, :1], first, atol=1e-5, rtol=1e-4)  # the autoencoder is causal
    assert decoded.shape == video.shape
    exact = views.to_images(views.to_video(images, ["side"], (16, 24), CPU), ["side"], VIEWS)
    np.testing.assert_array_equal(exact["side"], images["side"])


@pytest.mark.parametrize("adapt", list(Adapt))
def test_a_saved_model_is_the_same_model(tmp_path: Path, adapt: Adapt) -> None:
    config = tiny_config(adapt=adapt, precision=Precision.BFLOAT16)
    model = tiny_model(config)
    model.version = 7
    model.adapt(FixedClips(), 1, np.random.default_rng(0))
    model.save(tmp_path / "model.safetensors", {"psnr": 20.0})
    copy = load_world_model(tmp_path / "model.safetensors", device=CPU, spec=tiny_spec())
    assert isinstance(copy, CosmosWorldModel)
    assert (copy.version, copy.updates, copy.config) == (7, 1, config)
    assert copy.network.config == model.network.config
    assert [name for name, _ in trained(copy.network)] == [name for name, _ in trained(model.network)]
    assert not changed(snapshot(model), snapshot(copy))
    first, second = (m.rollout(context(), actions(3), seed=2) for m in (model, copy))
    np.testing.assert_array_equal(first.images["side"], second.images["side"])
    results = [m.adapt(FixedClips(), 1, np.random.default_rng(1)) for m in (model, copy)]
    assert results[0] == results[1]
    assert not changed(snapshot(model), snapshot(copy))  # the optimiser went on where it was


def test_wrong_inputs_are_refused() -> None:
    model = tiny_model()
    bad = actions(4)
    bad[0, 0, 0] = np.nan
    with pytest.raises(WorldModelError, match="finite"):
        model.rollout(context(), bad)
    with pytest.raises(WorldModelError, match=r"1\.\.24 steps"):
        model.rollout(context(), actions(25))
    with pytest.raises(WorldModelError, match="views"):
        model.rollout(replace(context(), images={"side": context().images["side"]}), actions(4))
    with torch.no_grad():
        next(iter(model.network.parameters())).fill_(float("nan"))
    with pytest.raises(WorldModelError, match="the loss became nan"):
        model.adapt(FixedClips(), 1, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"height": 60}, "multiples of 16"),
        ({"num_samples": 1}, "num_samples"),
        ({"num_denoising_steps": 3}, r"4\.\.35"),
        ({"learning_rate": 0.0}, "learning rates"),
    ],
)
def test_wrong_settings_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(WorldModelError, match=message):
        tiny_config(**change)
