"""The published debiaser and weighter, rule for rule, on cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_model.calibration.anchors import ScorerKey
from reward_model.calibration.debias import DebiasConfig, OnlineDebiaser, centred_error
from reward_model.calibration.monotone import equal_width_edges, fit_monotone
from reward_model.calibration.weight import InverseVarianceWeighter, Law, Scale, WeightConfig
from robot.types import Array

KEY = ScorerKey("press", "wm1-rm1")
SMALL = DebiasConfig(min_pairs=4, refit_every=2, bins=10)


def push(debiaser: OnlineDebiaser, raw: list[float], true: list[float]) -> None:
    debiaser.push(KEY, np.array(raw), np.array(true), np.ones(len(raw)))


def apply(debiaser: OnlineDebiaser, *raw: float) -> list[float]:
    return [round(value, 6) for value in debiaser.apply(KEY, np.array(raw)).tolist()]


def test_identity_until_pair_200_and_then_a_refit_every_64() -> None:
    debiaser = OnlineDebiaser(DebiasConfig())
    rng = np.random.default_rng(0)
    fits_at = []
    for pair in range(1, 400):
        before = debiaser.fits
        push(debiaser, [rng.random()], [rng.random()])
        if debiaser.fits > before:
            fits_at.append(pair)
        if pair < 200:
            assert apply(debiaser, 0.3) == [0.3] and not debiaser.fitted(KEY)
    assert fits_at == [200, 264, 328, 392]


def test_pairs_that_arrive_together_are_fitted_as_if_one_by_one() -> None:
    together, single = OnlineDebiaser(SMALL), OnlineDebiaser(SMALL)
    raw, true = [0.05, 0.95, 0.15, 0.85, 0.5], [0.0, 1.0, 0.2, 0.9, 0.4]
    push(together, raw, true)
    for x, y in zip(raw, true, strict=True):
        push(single, [x], [y])
    assert together.fits == single.fits == 1  # at pair 4; pair 5 waits for the next refit
    assert together.state_dict() == single.state_dict()
    assert apply(together, 0.5) == [pytest.approx(0.2 + (0.9 - 0.2) * (0.5 - 0.15) / 0.7)]


def test_ten_equal_bins_hold_their_means() -> None:
    """Bins [0, .1), [.1, .2), ...: 0.05 and 0.09 share one, 0.1 opens the next, 1.0 belongs to the last."""
    x, y = np.array([0.05, 0.09, 0.10, 0.95, 1.0]), np.array([0.0, 0.2, 0.3, 0.8, 1.0])
    fitted = fit_monotone(x, y, equal_width_edges(10))
    assert fitted is not None
    assert fitted.x.tolist() == pytest.approx([0.07, 0.10, 0.975])
    assert fitted.y.tolist() == pytest.approx([0.1, 0.3, 0.9])


def test_violators_are_pooled_by_their_counts() -> None:
    """Bin means .1, .8 (1 pair), .2 (3 pairs), .3: .8 and .2 pool to (.8 + 3 * .2) / 4 = .35, then .3 joins: .34."""
    x = np.array([0.05, 0.15, 0.25, 0.25, 0.25, 0.35])
    y = np.array([0.1, 0.8, 0.2, 0.2, 0.2, 0.3])
    fitted = fit_monotone(x, y, equal_width_edges(10))
    assert fitted is not None
    assert fitted.y.tolist() == pytest.approx([0.1, 0.34, 0.34, 0.34])


def test_between_bin_means_linear_and_outside_constant() -> None:
    debiaser = OnlineDebiaser(SMALL)
    push(debiaser, [0.2, 0.2, 0.6, 0.6], [0.1, 0.3, 0.5, 0.7])
    assert apply(debiaser, 0.2, 0.6) == [0.2, 0.6]
    assert apply(debiaser, 0.3) == [0.3]
    assert apply(debiaser, 0.0, 0.1999, 0.6001, 1.0, -3.0, 7.0) == [0.2, 0.2, 0.6, 0.6, 0.2, 0.6]


def test_one_populated_bin_stays_the_identity_and_every_pair_tries_again() -> None:
    debiaser = OnlineDebiaser(DebiasConfig(min_pairs=4, refit_every=3))
    push(debiaser, [0.51] * 6, [0.0] * 6)
    assert debiaser.fits == 0 and apply(debiaser, 0.9) == [0.9]
    push(
        debiaser, [0.85], [1.0]
    )  # the count since the last fit was never reset: no need to wait for three more
    assert debiaser.fits == 1 and apply(debiaser, 0.9) == [1.0]


def test_only_the_newest_pairs_count() -> None:
    debiaser = OnlineDebiaser(DebiasConfig(min_pairs=4, refit_every=2, capacity=4))
    push(debiaser, [0.1, 0.1, 0.9, 0.9], [0.0, 0.0, 1.0, 1.0])
    push(debiaser, [0.1, 0.1, 0.9, 0.9], [0.4, 0.4, 0.5, 0.5])
    assert apply(debiaser, 0.1, 0.9) == [0.4, 0.5]
    assert debiaser.metrics(KEY)["calibration/pairs"] == 4


def test_the_diagnostic_is_blind_to_an_offset() -> None:
    x = np.array([0.1, 0.5, 0.9])
    assert centred_error(x + 0.7, x) == pytest.approx(0.0)
    assert centred_error(np.array([0.0, 1.0]), np.array([0.0, 0.0])) == pytest.approx(0.25)


def test_weights_and_keys_mean_nothing_to_the_published_map() -> None:
    plain, weighted = OnlineDebiaser(SMALL), OnlineDebiaser(SMALL)
    raw, true = np.array([0.1, 0.1, 0.9, 0.9]), np.array([0.0, 0.4, 0.6, 1.0])
    plain.push(KEY, raw, true, np.ones(4))
    weighted.push(ScorerKey("sort", "wm9"), raw, true, np.array([1.0, 9.0, 9.0, 1.0]))
    assert apply(plain, 0.1, 0.5) == apply(weighted, 0.1, 0.5) == [0.2, 0.5]


finite = st.floats(0.0, 1.0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(finite, finite), min_size=4, max_size=60), st.lists(finite, min_size=2, max_size=20)
)
def test_the_map_is_monotone_and_stays_among_the_outcomes(
    pairs: list[tuple[float, float]], scores: list[float]
) -> None:
    debiaser = OnlineDebiaser(SMALL)
    push(debiaser, [x for x, _ in pairs], [y for _, y in pairs])
    mapped = debiaser.apply(KEY, np.sort(scores))
    assert (np.diff(mapped) >= -1e-12).all()
    if debiaser.fitted(KEY):
        outcomes = [y for _, y in pairs]
        assert min(outcomes) - 1e-9 <= mapped.min() and mapped.max() <= max(outcomes) + 1e-9


def published(**changes: float) -> InverseVarianceWeighter:
    return InverseVarianceWeighter(WeightConfig(**changes), Law.LINEAR, Scale.FROZEN)  # type: ignore[arg-type]


TRUE = np.array([0.0, 1.0])  # variance .25


def with_disagreement(s2: float) -> Array:
    """Scores whose centred residual against TRUE has mean square s2 / 4."""
    return TRUE + np.sqrt(s2) * np.array([-0.5, 0.5])


def test_the_weight_is_one_until_32_informative_groups_and_two_at_the_32nd() -> None:
    weighter = published()
    for _ in range(31):
        weighter.observe(with_disagreement(0.6), TRUE)
        weighter.observe(np.array([0.2, 0.9]), np.array([1.0, 1.0]))  # degenerate: ignored, not a zero
        assert weighter.weight == 1.0
    weighter.observe(with_disagreement(0.6), TRUE)
    assert weighter.disagreement == pytest.approx(0.6)
    assert weighter.weight == pytest.approx(2.0)
    assert weighter.metrics()["calibration/degenerate_groups"] == 31


def test_the_constant_is_frozen_and_the_weight_follows_the_average_within_its_bounds() -> None:
    weighter = published(half_life=1.0, warmup=1)
    weighter.observe(with_disagreement(0.5), TRUE)
    assert weighter.weight == pytest.approx(2.0)  # c = 1 / .5 = 2
    weighter.observe(with_disagreement(1.0), TRUE)  # half-life 1: average (.5 + 1) / 2 = .75
    assert weighter.disagreement == pytest.approx(0.75)
    assert weighter.weight == pytest.approx(1.0 + 2.0 * 0.75)
    weighter.observe(with_disagreement(9.0), TRUE)
    assert weighter.weight == 4.0
    for _ in range(40):
        weighter.observe(TRUE, TRUE)
    assert weighter.weight == pytest.approx(1.0, abs=1e-6)


def test_half_life_of_64_groups() -> None:
    weighter = published()
    weighter.observe(with_disagreement(1.0), TRUE)
    for _ in range(64):
        weighter.observe(TRUE, TRUE)
    assert weighter.disagreement == pytest.approx(0.5)


def test_an_average_of_zero_fixes_no_constant() -> None:
    weighter = published(warmup=2)
    for _ in range(5):
        weighter.observe(TRUE, TRUE)
    assert weighter.weight == 1.0
    weighter.observe(with_disagreement(1.0), TRUE)
    assert weighter.weight == pytest.approx(2.0)


@pytest.mark.parametrize(
    "config",
    [
        {"min_pairs": 1},
        {"min_pairs": 300, "capacity": 200},
        {"refit_every": 0},
        {"bins": 1},
    ],
)
def test_configs_out_of_range_are_refused(config: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="debias: expected"):
        DebiasConfig(**config)
