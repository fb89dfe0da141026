"""Inverse-variance weights against the variance of policy gradients, renormalisation, and the weight of TD terms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reward_model.calibration.weight import (
    InverseVarianceWeighter,
    Law,
    Scale,
    WeightConfig,
    step_scale,
    synthetic_td_weight,
)
from robot.types import Array

ARMS, GROUP = 10, 8


def gradients(rewards: Array, arms: Array, standardise: bool) -> Array:
    """Policy gradients (N, ARMS) of N groups under the uniform policy: mean_i A_i (onehot(a_i) - 1 / ARMS)."""
    advantage = rewards - rewards.mean(axis=1, keepdims=True)
    if standardise:
        advantage = advantage / (rewards.std(axis=1, keepdims=True) + 1e-4)
    return np.stack([(advantage * ((arms == k) - 1.0 / ARMS)).mean(axis=1) for k in range(ARMS)], axis=1)


def bandit(noise: float, standardise: bool) -> tuple[float, float, float]:
    """(V_WM / V_E, signal_WM / signal_E, measured s^2) of a ten-armed bandit whose cheap reward has `noise`."""
    rng = np.random.default_rng(0)
    arms = rng.integers(ARMS, size=(12_000, GROUP))
    real = np.linspace(0.0, 1.0, ARMS)[arms]
    cheap = real + noise * rng.standard_normal(real.shape)
    of_real, of_cheap = gradients(real, arms, standardise), gradients(cheap, arms, standardise)
    variance = of_cheap.var(axis=0).sum() / of_real.var(axis=0).sum()
    truth = of_real.mean(axis=0)
    weighter = InverseVarianceWeighter(WeightConfig(half_life=1e6), Law.LINEAR, Scale.UNIT)
    for x, r in zip(cheap[:3000], real[:3000], strict=True):
        weighter.observe(x, r)
    return float(variance), float(of_cheap.mean(axis=0) @ truth / (truth @ truth)), weighter.disagreement


@pytest.mark.parametrize("noise", [0.14, 0.4, 0.82])
def test_centred_advantages_vary_by_one_plus_s2(noise: float) -> None:
    """c = 1 needs no tuning: 1.2, 2.7 and 8.2 times the variance against 1.2, 2.9 and 8.9 from s^2; same signal."""
    variance, signal, s2 = bandit(noise, standardise=False)
    assert 1.0 + s2 == pytest.approx(variance, rel=0.12)
    assert signal == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("noise", [0.14, 0.4, 0.82])
def test_standardised_advantages_keep_their_variance_and_lose_signal(noise: float) -> None:
    """The square-root law: the deviation divides noise and signal alike, so the signal shrinks by 1 / sqrt(1 + s^2)."""
    variance, signal, s2 = bandit(noise, standardise=True)
    assert variance == pytest.approx(1.0, abs=0.1)
    assert 1.0 / signal == pytest.approx(math.sqrt(1.0 + s2), rel=0.12)


@pytest.mark.parametrize(
    ("law", "s2", "weight"),
    [(Law.LINEAR, 0.5, 1.5), (Law.ROOT, 0.5, math.sqrt(1.5)), (Law.LINEAR, 8.0, 4.0), (Law.ROOT, 8.0, 3.0)]
    + [(Law.ROOT, 99.0, 4.0), (Law.LINEAR, 0.0, 1.0)],
)
def test_both_laws_within_their_bounds(law: Law, s2: float, weight: float) -> None:
    weighter = InverseVarianceWeighter(WeightConfig(), law, Scale.UNIT)
    assert weighter.weight == 1.0
    true = np.array([0.0, 1.0])
    weighter.observe(true + math.sqrt(s2) * np.array([-0.5, 0.5]), true)
    assert weighter.weight == pytest.approx(weight)


def test_the_first_groups_count_alike_without_a_warm_up() -> None:
    weighter = InverseVarianceWeighter(WeightConfig(half_life=1e9), Law.LINEAR, Scale.UNIT)
    true = np.array([0.0, 1.0])
    for s2 in (4.0, 0.0, 0.0, 0.0):
        weighter.observe(true + math.sqrt(s2) * np.array([-0.5, 0.5]), true)
    assert weighter.disagreement == pytest.approx(1.0)


def test_a_consistent_offset_is_bias_and_no_variance() -> None:
    weighter = InverseVarianceWeighter(WeightConfig(), Law.LINEAR, Scale.UNIT)
    true = np.array([0.0, 1.0, 0.0, 1.0])
    weighter.observe(true + 0.4, true)
    assert weighter.disagreement == pytest.approx(0.0) and weighter.weight == pytest.approx(1.0)


def test_groups_of_one_outcome_or_of_nobody_are_ignored() -> None:
    weighter = InverseVarianceWeighter(WeightConfig(), Law.LINEAR, Scale.UNIT)
    weighter.observe(np.array([0.1, 0.8]), np.array([1.0, 1.0]))
    weighter.observe(np.empty(0), np.empty(0))
    assert math.isnan(weighter.disagreement) and weighter.weight == 1.0


def test_renormalised_weights_keep_the_step() -> None:
    assert step_scale(2.0, 1, 9) == pytest.approx(1.1)
    assert step_scale(4.0, 2, 6) == pytest.approx(1.75)
    assert step_scale(3.0, 0, 8) == step_scale(2.0, 0, 0) == 1.0
    assert (3.0 * 2 + 1.0 * 6) / step_scale(3.0, 2, 6) == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("brier", "variance", "weight"),
    [(0.0, 0.2, 1.0), (0.1, 0.2, 1 / 1.5), (0.2, 0.2, 0.5), (9.0, 0.2, 0.25), (0.0, 0.0, 0.25)]
    + [(math.nan, math.nan, 0.25), (0.1, math.nan, 0.25), (math.inf, 0.2, 0.25)],
)
def test_synthetic_td_terms_get_quieter_with_the_brier_score(
    brier: float, variance: float, weight: float
) -> None:
    assert synthetic_td_weight(brier, variance) == pytest.approx(weight)


def test_config_out_of_range_is_refused() -> None:
    for wrong in ({"half_life": 0.5}, {"warmup": 0}, {"target": 1.0}, {"target": 5.0}):
        with pytest.raises(ValueError, match="weight: expected"):
            WeightConfig(**wrong)  # type: ignore[arg-type]


def test_a_weight_that_is_switched_off_is_one() -> None:
    for law, scale in ((Law.LINEAR, Scale.UNIT), (Law.LINEAR, Scale.FROZEN)):
        weighter = InverseVarianceWeighter(WeightConfig(warmup=1, target=1.0, max_weight=1.0), law, scale)
        weighter.observe(np.array([0.9, 0.2, 0.7]), np.array([0.0, 1.0, 0.0]))
        assert weighter.disagreement > 1.0
        assert weighter.weight == 1.0
