"""Metrics against independent implementations, and the conventions that figures depend on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from worldmodel.metrics import Convention, psnr, score_frames, sharpness, ssim


def frames(seed: int, *shape: int) -> np.ndarray:
    """Smooth random images with noise on top, so that structure and error are both there."""
    rng = np.random.default_rng(seed)
    smooth = ndimage.gaussian_filter(rng.normal(size=(*shape, 24, 32, 3)), (*[0] * len(shape), 3, 3, 0))
    return np.clip(128 + 400 * smooth + rng.normal(0, 12, smooth.shape), 0, 255).astype(np.uint8)


def reference_ssim(x: np.ndarray, y: np.ndarray, *, uniform: bool) -> float:
    """One channel, by SciPy's filters, cropped to where the window fits."""

    def mean(values: np.ndarray) -> np.ndarray:
        if uniform:
            return ndimage.uniform_filter(values, 7)
        return ndimage.gaussian_filter(values, 1.5, radius=5)

    pad, unbiased = (3, 49 / 48) if uniform else (5, 1.0)
    x, y = x / 255.0, y / 255.0
    mx, my = mean(x), mean(y)
    vx, vy = unbiased * (mean(x * x) - mx**2), unbiased * (mean(y * y) - my**2)
    cov = unbiased * (mean(x * y) - mx * my)
    top = (2 * mx * my + 1e-4) * (2 * cov + 9e-4)
    return float((top / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4)))[pad:-pad, pad:-pad].mean())


def test_psnr_is_taken_per_frame_and_not_of_pooled_errors() -> None:
    actual = np.full((2, 8, 8, 3), 100, np.uint8)
    predicted = actual.copy()
    predicted[0] += 51  # a fifth of the range: MSE .04
    predicted[1] += 5
    expected = [10 * np.log10(1 / 0.04), 20 * np.log10(51)]
    np.testing.assert_allclose(psnr(predicted, actual), expected, rtol=1e-6)


def test_psnr_does_not_wrap_around_in_uint8() -> None:
    dark, bright = np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 255, np.uint8)
    assert psnr(dark, bright) == psnr(bright, dark) == pytest.approx(0.0, abs=1e-6)


def test_equal_frames_have_the_psnr_of_rounding_to_uint8() -> None:
    image = frames(0)
    assert psnr(image, image) == pytest.approx(58.92, abs=0.01)
    assert ssim(image, image) == pytest.approx(1.0)


def test_ssim_agrees_with_scipy_filters() -> None:
    first, second = frames(0, 2), frames(1, 2)
    for index, value in enumerate(ssim(first, second)):
        channels = [
            reference_ssim(first[index, ..., c], second[index, ..., c], uniform=False) for c in range(3)
        ]
        assert value == pytest.approx(np.mean(channels), abs=1e-6)


def test_irasim_convention_is_gray_with_a_uniform_window() -> None:
    first, second = frames(0), frames(1)
    gray = [np.rint(image @ np.array([0.299, 0.587, 0.114])) for image in (first, second)]
    expected = reference_ssim(gray[0], gray[1], uniform=True)
    assert ssim(first, second, Convention.IRASIM) == pytest.approx(expected, abs=1e-3)
    mse = np.mean((gray[0] - gray[1]) ** 2) / 255**2
    assert psnr(first, second, Convention.IRASIM) == pytest.approx(-10 * np.log10(mse), abs=0.02)
    assert ssim(first, second) != pytest.approx(expected, abs=1e-3)


def test_ssim_is_not_lowered_to_bfloat16_by_autocast() -> None:
    first, second = frames(0), frames(1)
    plain = ssim(first, second)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ssim(first, second) == plain


def test_sharpness_tells_blurred_from_noisy() -> None:
    actual = frames(0)
    blurred = ndimage.gaussian_filter(actual, (2, 2, 0))
    noise = np.random.default_rng(1).normal(0, 20, actual.shape)
    noisy = np.clip(actual + noise, 0, 255).astype(np.uint8)
    assert sharpness(actual, actual) == 1.0
    assert sharpness(blurred, actual) < 0.6 < 1.4 < sharpness(noisy, actual)
    assert np.isnan(sharpness(actual, np.zeros_like(actual)))


def test_scores_keep_batch_and_time_and_leave_out_what_is_missing() -> None:
    scores = score_frames(frames(0, 2, 3), frames(1, 2, 3))
    assert {name: values.shape for name, values in scores.named().items()} == dict.fromkeys(
        ("psnr", "ssim", "sharpness"), (2, 3)
    )


@pytest.mark.parametrize(
    ("predicted", "message"),
    [
        (np.zeros((8, 9, 3), np.uint8), "of one shape"),
        (np.zeros((8, 8, 3), np.float32), "uint8 frames"),
    ],
)
def test_wrong_frames_are_refused(predicted: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        psnr(predicted, np.zeros((8, 8, 3), np.uint8))


def test_frames_smaller_than_the_window_are_refused() -> None:
    small = np.zeros((8, 8, 3), np.uint8)
    with pytest.raises(ValueError, match="at least 11 px, got 8x8"):
        ssim(small, small)
