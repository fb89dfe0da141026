"""The flow-warp model: it learns to move what the action moves, ignores padding, and resumes bit by bit."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from robot.types import Clip
from tests.worldmodel.world_model_cases import TINY, SquareWorld, held_out, mean_error, spec
from worldmodel.baselines import CopyLastFrame
from worldmodel.clips import split
from worldmodel.factory import load_world_model
from worldmodel.flow_warp import Layers, NetworkConfig, warp
from worldmodel.interface import WorldModelError
from worldmodel.warp_model import FlowWarpConfig, FlowWarpModel

CPU = torch.device("cpu")
WORLD = SquareWorld({"top": (16, 16)})


def model_of(views: dict[str, tuple[int, int]] | None = None, config: FlowWarpConfig = TINY) -> FlowWarpModel:
    return FlowWarpModel(spec(views), config, CPU)


@pytest.fixture(scope="module")
def learned() -> FlowWarpModel:
    model = model_of()
    model.adapt(WORLD, 75, np.random.default_rng(0))
    return model


def test_it_beats_the_last_frame_on_walks_it_never_saw(learned: FlowWarpModel) -> None:
    context, actions, truth = held_out(learned.spec)
    copied = mean_error(dict(CopyLastFrame(learned.spec).rollout(context, actions).images), truth)
    assert mean_error(dict(learned.rollout(context, actions).images), truth) < 0.5 * copied


def test_other_actions_give_another_and_a_worse_future(learned: FlowWarpModel) -> None:
    context, actions, truth = held_out(learned.spec)
    right = mean_error(dict(learned.rollout(context, actions).images), truth)
    assert mean_error(dict(learned.rollout(context, actions[::-1].copy()).images), truth) > 2 * right


def test_risk_grows_along_a_rollout(learned: FlowWarpModel) -> None:
    context, actions, _ = held_out(learned.spec)
    risk = learned.rollout(context, actions).risk
    assert (risk[:, 2:] > risk[:, :2]).all()  # the second stride lies behind the first


@dataclasses.dataclass
class Padded:
    """Clips whose last step is padding, with pictures there that would teach nonsense."""

    noise: int
    size: int = 100

    def sample(self, n: int, length: int, rng: np.random.Generator, history: int = 0) -> Clip:
        clip = WORLD.sample(n, length, rng, history)
        images = {view: frames.copy() for view, frames in clip.images.items()}
        images["top"][:, -1] = self.noise
        valid = clip.valid.copy()
        valid[:, -1] = False
        return dataclasses.replace(clip, images=images, valid=valid)


def test_padded_steps_carry_no_loss(tmp_path: Path) -> None:
    config = dataclasses.replace(TINY, single_share=0.0)
    bright, dark = model_of(config=config), model_of(config=config)
    losses = [m.adapt(Padded(v), 2, np.random.default_rng(0)) for m, v in ((bright, 255), (dark, 0))]
    assert losses[0] == losses[1]
    context, actions, _ = held_out(bright.spec)
    np.testing.assert_array_equal(
        bright.rollout(context, actions).images["top"], dark.rollout(context, actions).images["top"]
    )


def test_a_resumed_model_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    straight, rng = model_of(), np.random.default_rng(3)
    straight.adapt(WORLD, 4, rng)
    straight.save(tmp_path / "m.safetensors")
    state = rng.bit_generator.state
    resumed, again = load_world_model(tmp_path / "m.safetensors", device=CPU), np.random.default_rng(0)
    again.bit_generator.state = state
    assert straight.adapt(WORLD, 3, rng) == resumed.adapt(WORLD, 3, again)
    straight.save(tmp_path / "a.safetensors")
    resumed.save(tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_any_number_of_views_of_any_size() -> None:
    views = {"a": (16, 16), "b": (24, 40), "c": (9, 7)}
    model = model_of(views)
    model.adapt(SquareWorld(views), 1, np.random.default_rng(0))
    context, actions, _ = held_out(model.spec, n=2)
    imagined = model.rollout(context, actions)
    assert {view: frames.shape for view, frames in imagined.images.items()} == {
        view: (2, 4, *size, 3) for view, size in views.items()
    }


def test_a_large_view_keeps_its_detail_though_motion_is_predicted_at_a_smaller_size() -> None:
    model = model_of({"top": (64, 64)})
    context, actions, _ = held_out(model.spec, n=2)
    context = dataclasses.replace(
        context, images={"top": np.random.default_rng(0).integers(0, 256, (2, 2, 64, 64, 3), dtype=np.uint8)}
    )
    frame = model.rollout(context, actions[:, :1]).images["top"][:, 0].astype(float)
    last = context.images["top"][:, -1].astype(float)
    # Untrained, nothing moves: the frame is the last one but for what is painted.
    assert np.corrcoef(frame.ravel(), last.ravel())[0, 1] > 0.999


def test_motions_compose_as_one_warp_after_the_other() -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(1, 3, 16, 16, generator=generator)
    shifts = [torch.full((1, 1, 2, 16, 16), s) for s in (0.25, -0.125)]  # 2 and -1 pixels
    one, two = (Layers(s, torch.ones(1, 1, 1, 16, 16), torch.zeros(1, 1, 3, 16, 16)) for s in shifts)
    both, changed = one.then(two).render(0, image)
    after = warp(warp(image, shifts[0][:, 0]), shifts[1][:, 0])
    torch.testing.assert_close(both[..., 3:-3, 3:-3], after[..., 3:-3, 3:-3])
    torch.testing.assert_close(both[..., 3:-3, 3:-3], image[..., 4:-2, 4:-2])
    assert changed.item() == 0.0  # nothing was painted


def test_clips_that_do_not_fit_are_named() -> None:
    model, rng = model_of(), np.random.default_rng(0)
    good = WORLD.sample(2, 2, rng, 1)
    wrong = {
        "history=1": WORLD.sample(2, 2, rng, 0),
        "at least 1 after it": dataclasses.replace(good, action=good.action[:, :1]),
        "2 entries": dataclasses.replace(good, action=good.action[..., :1]),
        "finite": dataclasses.replace(good, action=np.full_like(good.action, np.inf)),
        "expected views": dataclasses.replace(good, images={"side": good.images["top"]}),
        "16x16 px": dataclasses.replace(good, images={"top": good.images["top"][:, :, :8]}),
    }
    for pattern, clip in wrong.items():
        with pytest.raises(WorldModelError, match=pattern):
            split(clip, model.spec)
    with pytest.raises(WorldModelError, match="nothing to train on"):
        model.adapt(SquareWorld({"top": (16, 16)}, episodes=0), 1, rng)


def test_a_loss_that_is_not_finite_moves_nothing() -> None:
    model = model_of()
    model.adapt(WORLD, 1, np.random.default_rng(0))
    with torch.no_grad():
        model._trainer.module.place.fill_(float("nan"))
    with pytest.raises(WorldModelError, match="the loss became nan at update 1"):
        model.adapt(WORLD, 1, np.random.default_rng(0))
    assert model.updates == 1


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="multiples of unshuffle"):
        NetworkConfig(pixels=60)
    with pytest.raises(ValueError, match="multiples of 16"):
        NetworkConfig(channels=[20])
    with pytest.raises(ValueError, match="single_share"):
        FlowWarpConfig(single_share=2.0)


def test_a_paint_penalty_makes_it_move_things_and_not_paint_them() -> None:
    risks = []
    for penalty in (0.0, 30.0):
        config = dataclasses.replace(TINY, paint_penalty=penalty)
        model = FlowWarpModel(spec(), config, CPU)
        model.adapt(WORLD, 15, np.random.default_rng(0))
        context, actions, _ = held_out(spec())
        risks.append(float(model.rollout(context, actions).risk.mean()))
    assert risks[1] < 0.5 * risks[0]
