"""Random shift against a slow reference, and its use of the generator."""

from __future__ import annotations

import numpy as np
import pytest
from agent_cases import CPU, make_batch, make_spec

from rl.agent.augment import random_shift
from rl.agent.staging import Staging


@pytest.mark.parametrize("shape", [(40, 8, 11, 3), (3, 5, 5, 1)])
def test_shift_equals_padding_by_the_edge_and_cropping(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    out = np.zeros_like(images)
    random_shift(images, 3, np.random.default_rng(7), out)
    shifts = np.random.default_rng(7).integers(-3, 4, (shape[0], 2))
    rows, columns = np.arange(shape[1]), np.arange(shape[2])
    for source, result, (dy, dx) in zip(images, out, shifts, strict=True):
        y, x = (rows - dy).clip(0, shape[1] - 1), (columns - dx).clip(0, shape[2] - 1)
        np.testing.assert_array_equal(result, source[y][:, x])


def test_every_shift_occurs() -> None:
    images = np.zeros((500, 9, 9, 1), np.uint8)
    images[:, 4, 4] = 255
    out = np.empty_like(images)
    random_shift(images, 2, np.random.default_rng(0), out)
    seen = {tuple(np.argwhere(image[..., 0])[0] - 4) for image in out}
    assert seen == {(dy, dx) for dy in range(-2, 3) for dx in range(-2, 3)}


def test_no_padding_is_the_identity() -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 6, 6, 3), np.uint8)
    out = np.empty_like(images)
    random_shift(images, 0, np.random.default_rng(0), out)
    np.testing.assert_array_equal(out, images)


def test_bad_padding_and_output_are_named() -> None:
    images = np.zeros((1, 6, 6, 3), np.uint8)
    with pytest.raises(ValueError, match="pad < 6"):
        random_shift(images, 6, np.random.default_rng(0), images.copy())
    with pytest.raises(ValueError, match="out of shape"):
        random_shift(images, 1, np.random.default_rng(0), np.zeros((1, 5, 6, 3), np.uint8))


def test_views_and_next_views_are_shifted_independently() -> None:
    spec = make_spec()
    dot = np.zeros((64, 24, 24, 3), np.uint8)
    dot[:, 12, 12] = 255
    images = {"front": dot, "wrist": dot}
    batch = make_batch(spec, rows=64, images=images, next_images=images)
    staging, rng = Staging(spec, 4, CPU), np.random.default_rng(0)
    now, following = staging.observation(batch, rng), staging.next_observation(batch, rng)
    front, wrist = now.stacks[0].chunk(2)
    next_front = following.stacks[0].chunk(2)[0]
    for one, other in ((front, wrist), (front, next_front)):
        assert (one != other).flatten(1).any(1).float().mean() > 0.8
    assert bool((front.flatten(1).amax(1) == 255).all())
