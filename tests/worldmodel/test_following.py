"""A model that ignores its actions is caught, however good its frames look."""

from __future__ import annotations

import math
from dataclasses import replace

import moving_world
import numpy as np
import pytest
from moving_world import SPEC, ShiftModel

from robot.types import Clip, Float32
from worldmodel.baselines import CopyLastFrame
from worldmodel.following import FollowingConfig, MotionProbe, action_following
from worldmodel.interface import Context, Imagined, WorldModelError


@pytest.fixture(scope="module")
def train() -> Clip:
    return moving_world.clips(60, 5, seed=1)


@pytest.fixture(scope="module")
def held_out() -> Clip:
    return moving_world.clips(48, 5, seed=2)


class Zeroed(ShiftModel):
    def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
        return super().rollout(context, np.zeros_like(actions), seed)


class Shuffled(ShiftModel):
    def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
        return super().rollout(context, np.random.default_rng(seed).permutation(actions), seed)


def test_a_model_that_follows_scores_near_one(train: Clip, held_out: Clip) -> None:
    following = action_following(ShiftModel(), train, held_out, np.random.default_rng(0))
    assert following.entries == (0, 1)
    assert following.real_correlation > 0.8
    assert following.score > 0.9
    assert following.gain_db > 3.0


@pytest.mark.parametrize(
    "model",
    [ShiftModel(blind=True), Zeroed(), Shuffled(), CopyLastFrame(SPEC)],
    ids=lambda m: type(m).__name__,
)
def test_a_model_that_ignores_its_actions_scores_near_zero(
    model: ShiftModel, train: Clip, held_out: Clip
) -> None:
    following = action_following(model, train, held_out, np.random.default_rng(0))
    assert following.score < 0.3
    assert abs(following.gain_db) < 1.0


def test_the_score_repeats(train: Clip, held_out: Clip) -> None:
    first, second = (
        action_following(ShiftModel(), train, held_out, np.random.default_rng(5)) for _ in range(2)
    )
    assert first == second


def test_where_nothing_is_visible_the_score_is_unknown_and_not_zero(train: Clip, held_out: Clip) -> None:
    plain = {view: np.full_like(frames, 128) for view, frames in held_out.images.items()}
    following = action_following(
        ShiftModel(), train, replace(held_out, images=plain), np.random.default_rng(0)
    )
    assert following.entries == ()
    assert math.isnan(following.score) and math.isnan(following.correlation)


def test_the_probe_reads_motion_from_both_views_together() -> None:
    fit, test = moving_world.clips(40, 5, seed=3), moving_world.clips(20, 5, seed=4)

    def pairs(clip: Clip, views: list[str]) -> dict[str, np.ndarray]:
        return {
            view: np.stack([clip.images[view][:, :-1], clip.images[view][:, 1:]], 2).reshape(-1, 2, 32, 32, 3)
            for view in views
        }

    for views in (["wrist"], ["side"], ["wrist", "side"]):
        probe = MotionProbe(pairs(fit, views), fit.action.reshape(-1, 7), ridge=0.1)
        seen, action = probe.read(pairs(test, views)), test.action.reshape(-1, 7)
        for entry in (0, 1):
            assert np.corrcoef(seen[:, entry], action[:, entry])[0, 1] > 0.7


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (FollowingConfig(steps=6), "at least 2 clips of 6 steps, got 48 of 5"),
        (FollowingConfig(min_pairs=1000), "at least 1000 real frame pairs"),
    ],
)
def test_too_little_data_is_an_error(
    config: FollowingConfig, message: str, train: Clip, held_out: Clip
) -> None:
    with pytest.raises(WorldModelError, match=message):
        action_following(ShiftModel(), train, held_out, np.random.default_rng(0), config)
