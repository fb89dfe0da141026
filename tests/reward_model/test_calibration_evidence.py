"""What a window of anchors proves, against plain resampling, scikit-learn and pairs that are repeated."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from reward_model.calibration.evidence import calibration_error, concordance, weigh


def test_concordance_is_the_auc_of_scikit_learn_and_counts_ties_half() -> None:
    rng = np.random.default_rng(3)
    true = (rng.random(120) < 0.3).astype(float)
    predicted = np.round(0.3 * true + rng.random(120), 1)
    wins, compared = concordance(predicted, true, rng.integers(15, size=120), 15)
    assert wins.sum() / compared.sum() == pytest.approx(roc_auc_score(true, predicted))


def test_the_bootstrap_draws_whole_episodes() -> None:
    """As plain resampling does; ten times the same windows of an episode are no more evidence."""
    rng = np.random.default_rng(5)
    true = (rng.random(30) < 0.5).astype(float)
    predicted = np.clip(0.3 * true + 0.35 + 0.3 * rng.standard_normal(30), 0, 1)
    place = np.arange(30.0)
    once = weigh(predicted, true, place, 4000, np.random.default_rng(0))
    tenfold = weigh(*(np.repeat(a, 10) for a in (predicted, true, place)), 4000, np.random.default_rng(0))
    assert tenfold.auc_low == pytest.approx(once.auc_low) and tenfold.bias_low == pytest.approx(once.bias_low)
    residual = predicted - true
    means = [residual[rng.integers(30, size=30)].mean() for _ in range(4000)]
    bounds = np.quantile(means, [0.025, 0.975]).tolist()
    assert [once.bias_low, once.bias_high] == pytest.approx(bounds, abs=0.02)


def test_rare_successes_prove_nothing_yet() -> None:
    true = np.zeros(60)
    true[7] = 1.0
    evidence = weigh(true, true, np.arange(60.0), 400, np.random.default_rng(0))
    assert evidence.auc == 1.0 and evidence.auc_low == 0.0  # a third of the resamples holds no success


def test_bias_and_variance_are_apart() -> None:
    true = np.tile([0.0, 1.0], 20)
    shifted = weigh(true + 0.3, true, np.arange(40.0), 200, np.random.default_rng(0))
    assert shifted.bias == pytest.approx(0.3) and shifted.variance == pytest.approx(0.0)
    noisy = weigh(
        true + np.tile([0.3, 0.3, -0.3, -0.3], 10), true, np.arange(40.0), 200, np.random.default_rng(0)
    )
    assert noisy.bias == pytest.approx(0.0) and noisy.variance == pytest.approx(0.09)
    assert noisy.bias_low < 0.0 < noisy.bias_high


def test_the_calibration_error_of_a_calibrated_judge_is_small_with_few_anchors() -> None:
    errors = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        predicted = rng.random(60)
        errors.append(
            calibration_error(
                predicted, (rng.random(60) < predicted).astype(float), np.arange(60), np.ones(60)
            )
        )
    assert np.mean(errors) < 0.06 and np.mean(np.array(errors) > 0.1) < 0.15


def noisy(num: int = 120) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictions, outcomes and the episodes behind them, three each."""
    rng = np.random.default_rng(8)
    true = (rng.random(num) < 0.4).astype(float)
    return (
        np.clip(0.4 * true + 0.3 + 0.3 * rng.standard_normal(num), 0, 1),
        true,
        np.repeat(np.arange(num / 3), 3),
    )


@pytest.mark.parametrize("weight", [0.3, 1.0, 3.0])
def test_equal_weights_are_none(weight: float) -> None:
    predicted, true, episode = noisy()
    plain = weigh(predicted, true, episode, 300, np.random.default_rng(0))
    alike = weigh(predicted, true, episode, 300, np.random.default_rng(0), np.full(len(true), weight))
    assert dataclasses.asdict(alike) == pytest.approx(dataclasses.asdict(plain), rel=1e-12)
    if weight == 1.0:
        assert alike == plain


def test_a_weight_of_two_is_the_pair_twice() -> None:
    predicted, true, episode = noisy()
    weight = np.where(np.arange(len(true)) % 3 == 0, 2.0, 1.0)
    twice = weight.astype(int)
    weighted = weigh(predicted, true, episode, 300, np.random.default_rng(0), weight)
    repeated = weigh(
        *(np.repeat(a, twice) for a in (predicted, true, episode)), 300, np.random.default_rng(0)
    )
    one, other = dataclasses.asdict(weighted), dataclasses.asdict(repeated)
    del one["ece"], other["ece"]  # its bins hold equally many pairs
    assert one == pytest.approx(other)


def test_pairs_of_little_weight_move_the_calibration_error_little() -> None:
    """Half of the pairs are right, and the others, all failures, are predicted .5."""
    right = np.arange(100) < 50
    true = np.where(right, np.tile([0.0, 1.0], 50), 0.0)
    predicted = np.where(right, true, 0.5)
    for weight, expected in ((np.where(right, 1.0, 0.01), 0.0), (np.ones(100), 0.25)):
        error = calibration_error(predicted, true, np.arange(100), weight)
        assert error == pytest.approx(expected, abs=0.06)
