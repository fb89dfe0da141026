"""The report on held-out clips: what is averaged over what, what stays unknown, and that it repeats."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import moving_world
import numpy as np
import pytest
from moving_world import ShiftModel

from robot.types import Clip
from worldmodel.baselines import CopyLastFrame
from worldmodel.evaluate import evaluate
from worldmodel.interface import WorldModelError
from worldmodel.intervals import clustered_mean
from worldmodel.metrics import Convention, psnr, ssim

STEPS = 5


@pytest.fixture(scope="module")
def clip() -> Clip:
    clip = moving_world.clips(20, STEPS, seed=2)
    return replace(clip, episode=np.arange(20) // 2)


def test_a_model_that_knows_the_world_beats_the_copied_frame_at_every_step(clip: Clip) -> None:
    report = evaluate(ShiftModel(), clip)
    for view in moving_world.SPEC.views:
        model, copied = report.curve(view, "psnr"), report.curve(view, "psnr", copied=True)
        assert (model > copied + 2).all()
        assert (np.diff(copied) < 0).all()
        gain = report.gain(view, 3, np.random.default_rng(0))
        assert gain.mean == pytest.approx(model[2] - copied[2])
        assert 0 < gain.low < gain.mean < gain.high


def test_the_copied_frame_as_a_model_gains_nothing(clip: Clip) -> None:
    report = evaluate(CopyLastFrame(moving_world.SPEC), clip)
    for view in moving_world.SPEC.views:
        np.testing.assert_array_equal(report.curve(view, "ssim"), report.curve(view, "ssim", copied=True))
        assert report.gain(view, STEPS, np.random.default_rng(0)).mean == 0.0


def test_scores_are_those_of_the_frame_at_the_horizon_and_means_up_to_it(clip: Clip) -> None:
    report = evaluate(ShiftModel(), clip)
    row = next(r for r in report.rows("toy", "shift", hz=4.0, horizons=[1.0]) if r["view"] == "side")
    actual = clip.images["side"][:, 2:]
    frames = report.imagined["side"]
    assert row["step"] == 4
    assert row["psnr"] == pytest.approx(psnr(frames[:, 3], actual[:, 3]).mean(), abs=1e-4)
    assert row["mean_psnr"] == pytest.approx(psnr(frames[:, :4], actual[:, :4]).mean(), abs=1e-4)
    last = clip.images["side"][:, 1:2].repeat(4, axis=1)
    assert row["mean_copy_ssim"] == pytest.approx(ssim(last, actual[:, :4]).mean(), abs=1e-4)
    assert (row["clips"], row["episodes"], row["px"]) == (20, 10, 32)


def test_what_is_unknown_is_null_in_the_rows_and_never_zero(clip: Clip) -> None:
    one = replace(clip, episode=np.zeros(20, np.int64))
    row = evaluate(ShiftModel(), one).rows("toy", "shift", hz=10.0, horizons=[0.5])[0]
    assert row["lpips"] is None and row["copy_lpips"] is None and row["mean_lpips"] is None
    assert row["psnr_low"] is None and row["psnr"] > 20
    json.dumps(row, allow_nan=False)


def test_padding_counts_nowhere(clip: Clip) -> None:
    valid = clip.valid.copy()
    valid[:5, 4:] = False  # five clips end after three imagined steps
    images = {view: frames.copy() for view, frames in clip.images.items()}
    for frames in images.values():
        frames[:5, 5:] = 255
    report = evaluate(ShiftModel(), replace(clip, valid=valid, images=images))
    whole = evaluate(ShiftModel(), clip)
    assert report.curve("wrist", "psnr")[2] == whole.curve("wrist", "psnr")[2]
    expected = whole.views["wrist"].model.psnr[5:, 4].mean()
    assert report.curve("wrist", "psnr")[4] == pytest.approx(expected)
    assert {r["clips"] for r in report.rows("toy", "shift", hz=1.0, horizons=[5])} == {15}


def test_the_same_clips_give_the_same_report_in_bounded_batches(clip: Clip) -> None:
    model = ShiftModel()
    first, second = evaluate(model, clip), evaluate(model, clip)
    assert first.rows("a", "b", 1.0, [1, 5]) == second.rows("a", "b", 1.0, [1, 5])
    assert max(model.rollouts) <= 16 and sum(model.rollouts) == 40


def test_the_irasim_convention_is_named_in_the_rows(clip: Clip) -> None:
    row = evaluate(ShiftModel(), clip, convention=Convention.IRASIM).rows("a", "b", 1.0, [2])[0]
    plain = evaluate(ShiftModel(), clip).rows("a", "b", 1.0, [2])[0]
    assert (row["convention"], plain["convention"]) == ("irasim", "rgb")
    assert row["ssim"] != plain["ssim"]


def test_risk_is_judged_within_a_step_and_unknown_where_it_is_constant(clip: Clip) -> None:
    report = evaluate(ShiftModel(), clip)  # its risk is the step: it says nothing within one
    assert math.isnan(report.risk_correlation())
    error = -report.views["wrist"].model.psnr - report.views["side"].model.psnr
    assert replace(report, risk=error.astype(np.float32)).risk_correlation() > 0.5
    assert replace(report, risk=-error.astype(np.float32)).risk_correlation() < -0.5


@pytest.mark.parametrize(
    ("horizon", "message"), [(0.1, r"got 0"), (9.0, r"expected 1 to 5 steps at 1 Hz, got 9")]
)
def test_a_horizon_that_was_not_imagined_is_refused(clip: Clip, horizon: float, message: str) -> None:
    with pytest.raises(WorldModelError, match=message):
        evaluate(ShiftModel(), clip).rows("a", "b", 1.0, [horizon])


def test_no_clips_is_an_error() -> None:
    empty = moving_world.clips(1, STEPS, seed=0)
    none = replace(
        empty,
        images={view: frames[:0] for view, frames in empty.images.items()},
        **{name: getattr(empty, name)[:0] for name in ("action", "valid", "episode", "step")},
    )
    with pytest.raises(WorldModelError, match="hold out at least one episode"):
        evaluate(ShiftModel(), none)


def test_intervals_widen_where_clips_of_one_episode_agree() -> None:
    rng = np.random.default_rng(0)
    episode = np.repeat(np.arange(12), 10)
    shared = rng.normal(size=12)[episode]
    alike = clustered_mean(shared, episode, np.random.default_rng(1))
    apart = clustered_mean(rng.normal(size=120), np.arange(120), np.random.default_rng(1))
    assert alike.high - alike.low > 2 * (apart.high - apart.low)
    naive = 1.96 * shared.std() / np.sqrt(12)
    assert (alike.high - alike.low) / 2 == pytest.approx(naive, rel=0.2)


def test_intervals_leave_unknown_values_out() -> None:
    values = np.array([1.0, np.nan, 3.0, np.nan])
    assert clustered_mean(values, np.arange(4), np.random.default_rng(0)).mean == 2.0
    assert math.isnan(clustered_mean(np.full(3, np.nan), np.arange(3), np.random.default_rng(0)).mean)
    single = clustered_mean(values, np.zeros(4, np.int64), np.random.default_rng(0))
    assert single.mean == 2.0 and math.isnan(single.low) and math.isnan(single.high)
