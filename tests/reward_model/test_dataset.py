"""What is known of each frame, whole-episode hold-outs, balanced batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reward_model.dataset import FrameSampler, KnownClip, Origin, hold_out, label_frames
from reward_model.interface import RewardModelError
from robot.types import Label
from tests.reward_model.frames import clip, clips

S, F, U = int(Label.SUCCESS), int(Label.FAILURE), int(Label.UNKNOWN)


def test_frames_within_the_hold_show_success_and_those_before_do_not() -> None:
    assert label_frames(Label.SUCCESS, 6, 3).tolist() == [F, F, F, S, S, S]
    assert label_frames(Label.SUCCESS, 6, 2, margin=2).tolist() == [F, F, U, U, S, S]
    assert label_frames(Label.SUCCESS, 2, 3).tolist() == [S, S]


def test_a_success_may_have_begun_in_the_last_frames_of_a_failure() -> None:
    """With a hold of 3, success at the last two frames has not been declared: nobody knows them to be failures."""
    assert label_frames(Label.FAILURE, 5, 3).tolist() == [F, F, F, U, U]
    assert label_frames(Label.FAILURE, 5, 1).tolist() == [F] * 5


def test_an_unknown_outcome_says_nothing() -> None:
    assert label_frames(Label.UNKNOWN, 4, 2).tolist() == [U] * 4


def test_unknown_frames_are_never_drawn() -> None:
    known = clip(0, Label.SUCCESS, length=6)
    marked = {view: frames.copy() for view, frames in known.images.items()}
    label = known.label.copy()
    label[2] = Label.UNKNOWN
    marked["side"][2] = 255
    sampler = FrameSampler([KnownClip(marked, label, "press", "e")], 0.0)
    images, _, target = sampler.draw(400, np.random.default_rng(0))
    assert images["side"].max() < 255
    assert target.sum() == 200 and (target[:200] == 1).all()


def test_half_of_each_half_is_generated() -> None:
    real, made = clips(4), clips(4, Origin.GENERATED)
    for item in made:
        item.images["side"][...] = 200
    images, _, target = FrameSampler(real + made, 0.5).draw(64, np.random.default_rng(0))
    generated = images["side"][:, 0, 0, 0] == 200
    assert generated[target == 1].mean() == generated[target == 0].mean() == 0.5


def test_without_generated_clips_all_is_real_and_the_other_way_round() -> None:
    for kind in Origin:
        images, _, _ = FrameSampler(clips(4, kind), 0.5).draw(10, np.random.default_rng(0))
        assert len(images["wrist"]) == 10


def test_a_missing_label_is_an_error_that_says_what_to_record() -> None:
    with pytest.raises(RewardModelError, match="no frame of success"):
        FrameSampler([clip(1, Label.FAILURE)], 0.0)


def test_an_episode_is_held_out_with_all_that_was_made_of_it() -> None:
    real = clips(200)
    made = [replace(item, origin=Origin.GENERATED) for item in real]
    learned, held = hold_out(real + made, 4)
    sides = [{item.episode for item in side} for side in (learned, held)]
    assert not sides[0] & sides[1]
    assert len(learned) + len(held) == 400
    assert 0.15 < len(held) / 400 < 0.35


def test_an_episode_keeps_its_side_as_more_are_recorded() -> None:
    before, after = hold_out(clips(20), 3)[1], hold_out(clips(60), 3)[1]
    assert {item.episode for item in before} <= {item.episode for item in after}


def test_clips_whose_parts_differ_in_length_are_refused() -> None:
    item = clip(0, Label.SUCCESS)
    with pytest.raises(RewardModelError, match="one length"):
        replace(item, label=item.label[:-1])
