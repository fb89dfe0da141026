"""Success must hold, unknown is never failure, and the thresholds keep the bounds that they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from reward_model.interface import RewardModelError
from reward_model.labels import (
    LabelConfig,
    Thresholds,
    agreed,
    choose_thresholds,
    false_success_bias,
    held_probability,
    label_clips,
    stricter,
    success_hazard,
)
from reward_model.statistics import clopper_pearson, clopper_pearson_upper, clustered_auc
from robot.types import Label

NAN = float("nan")
probabilities = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=12)


def row(*values: float) -> np.ndarray:
    return np.array([values], np.float32)


def test_success_must_hold() -> None:
    np.testing.assert_array_equal(held_probability(row(0.9, 0.2, 0.8, 0.7), 2), row(0, 0.2, 0.2, 0.7))
    np.testing.assert_array_equal(held_probability(row(0.9, 0.2), 1), row(0.9, 0.2))
    np.testing.assert_array_equal(held_probability(row(0.9, 0.9), 3), row(0, 0))


def test_unknown_frames_make_unknown_windows() -> None:
    held = held_probability(row(0.9, NAN, 0.9, 0.8), 2)
    assert np.isnan(held[0, 1:3]).all()
    assert held[0, 3] == np.float32(0.8)


@given(probabilities)
def test_the_hazards_add_up_to_the_largest_probability(values: list[float]) -> None:
    """1 - prod(1 - h_t) = max_t p_t: the soft label says in all what the largest probability says."""
    p = np.minimum(row(*values), np.float32(0.999))
    hazard = success_hazard(p)
    assert (hazard >= 0).all() and (hazard <= 1).all()
    assert 1 - np.prod(1 - hazard.astype(np.float64)) == pytest.approx(float(p.max()), abs=1e-3)


def test_the_hazard_is_the_hard_label_where_nothing_is_in_doubt() -> None:
    np.testing.assert_allclose(success_hazard(row(0, 0, 1, 1, 0)), row(0, 0, 1, 0, 0), atol=1e-5)


def test_the_hazard_is_unknown_from_the_first_unknown_frame_on() -> None:
    hazard = success_hazard(row(0.1, NAN, 0.9))
    assert hazard[0, 0] > 0 and np.isnan(hazard[0, 1:]).all()


def test_a_false_success_in_two_hundred_steps_already_biases_by_a_twentieth() -> None:
    assert false_success_bias(0.0053, 0.97, 0.3) == pytest.approx(0.05, abs=0.001)
    assert false_success_bias(0.05, 0.97, 0.3) == pytest.approx(0.337, abs=0.001)
    assert false_success_bias(0.0, 0.97, 0.3) == 0.0


def test_three_labels() -> None:
    thresholds = Thresholds(success=0.8, failure=0.2)
    labels = label_clips(
        np.array(
            [
                [0.1, 0.9, 0.9, 0.1],  # held: success at frame 2
                [0.1, 0.9, 0.1, 0.9],  # never two in a row: failure
                [0.1, 0.5, 0.5, 0.1],  # between the thresholds
                [0.1, NAN, 0.1, 0.1],  # unknown frame: it may have been a success
                [NAN, 0.1, 0.9, 0.9],  # the success is known
                [NAN, NAN, NAN, NAN],
            ],
            np.float32,
        ),
        thresholds,
    )
    expected = [Label.SUCCESS, Label.FAILURE, Label.UNKNOWN, Label.UNKNOWN, Label.SUCCESS, Label.UNKNOWN]
    assert labels.label.tolist() == expected
    assert labels.step.tolist() == [2, -1, -1, -1, 3, -1]
    assert np.isnan(labels.score[5]) and labels.score[0] == np.float32(0.9)


def test_without_evidence_nothing_is_labelled() -> None:
    labels = label_clips(row(0.999, 0.999, 0.999), Thresholds(None, None))
    assert labels.label.tolist() == [Label.UNKNOWN]
    too_short = label_clips(row(0.0), Thresholds(0.8, 0.2))
    assert too_short.label.tolist() == [Label.UNKNOWN]


@given(probabilities, st.sampled_from([0.3, 0.5, 0.9]))
def test_labels_are_those_of_the_calibrated_scale_under_any_monotone_map(
    values: list[float], threshold: float
) -> None:
    """A strictly monotone calibration commutes with labelling, as long as the thresholds go through it as well."""
    p = row(*values)
    raw = label_clips(p, Thresholds(threshold, threshold / 2)).label
    bent = label_clips(
        np.sqrt(p), Thresholds(float(np.sqrt(np.float32(threshold))), float(np.sqrt(threshold / 2)))
    )
    assert (raw == bent.label).all() or np.isclose(np.abs(p - threshold).min(), 0, atol=1e-5)


def test_fifty_nine_failures_are_the_least_evidence() -> None:
    """0 errors of 59 bound the rate by 4.95%; of 58 by 5.03%."""
    assert clopper_pearson_upper(0, 59) < 0.05 < clopper_pearson_upper(0, 58)
    config, succeeded = LabelConfig(), np.zeros(58, np.bool_)
    assert choose_thresholds(np.linspace(0, 0.6, 58), succeeded, config).success is None
    chosen = choose_thresholds(np.linspace(0, 0.6, 59), np.zeros(59, np.bool_), config)
    assert chosen.success is not None and 0.6 < chosen.success < 0.6001
    assert (chosen.failure, chosen.negatives, chosen.positives) == (None, 59, 0)


def test_thresholds_are_the_smallest_that_keep_the_bound() -> None:
    """124 failures allow two errors: the third largest score may just not pass."""
    failures = np.concatenate([np.linspace(0, 0.4, 121), [0.7, 0.8, 0.9]])
    successes = np.concatenate([[0.1, 0.2], np.linspace(0.55, 1, 98)])
    scores = np.concatenate([failures, successes])
    succeeded = np.arange(len(scores)) >= len(failures)
    chosen = choose_thresholds(scores, succeeded, LabelConfig())
    assert chosen.success is not None and chosen.failure is not None
    false_positives = int((failures >= chosen.success).sum())
    assert false_positives == 2 and chosen.success == pytest.approx(0.7, abs=1e-6)
    assert clopper_pearson_upper(false_positives, 124) <= 0.05 < clopper_pearson_upper(3, 124)
    assert clopper_pearson_upper(int((successes <= chosen.failure).sum()), 100) <= 0.10


def test_what_no_held_out_episode_showed_is_unknown() -> None:
    scores = np.concatenate([np.full(60, 0.1), np.full(60, 0.9)])
    chosen = choose_thresholds(scores, np.arange(120) >= 60, LabelConfig())
    assert chosen.success == pytest.approx(0.9) and chosen.failure == pytest.approx(0.1)
    middle = label_clips(row(0.5, 0.5), chosen)
    assert middle.label.tolist() == [Label.UNKNOWN]


def test_failures_that_look_like_certain_successes_leave_no_threshold() -> None:
    chosen = choose_thresholds(np.ones(60), np.zeros(60, np.bool_), LabelConfig())
    assert chosen.success is None


def test_unknown_scores_are_no_evidence() -> None:
    scores = np.concatenate([np.full(58, 0.1), [NAN]])
    assert choose_thresholds(scores, np.zeros(59, np.bool_), LabelConfig()).success is None


def test_the_bound_holds_for_new_failures_in_19_of_20_choices() -> None:
    """The true false-positive rate of a chosen threshold, over many held-out sets of the same distribution."""
    rng = np.random.default_rng(0)
    config = LabelConfig(floor=0.01)
    rates = []
    for _ in range(600):
        chosen = choose_thresholds(rng.uniform(size=100), np.zeros(100, np.bool_), config)
        assert chosen.success is not None
        rates.append(1.0 - chosen.success)  # of uniform scores
    beyond = np.mean(np.array(rates) > config.max_false_positive)
    assert 0.01 < beyond < 0.065  # 0.037: one error of 100 is allowed, two would break the bound


def test_the_stricter_thresholds_keep_both_bounds() -> None:
    both = stricter([Thresholds(0.7, 0.3, negatives=60), Thresholds(0.9, 0.1, negatives=80)])
    assert (both.success, both.failure, both.negatives) == (0.9, 0.1, 60)
    assert stricter([Thresholds(0.7, 0.3), Thresholds(None, 0.1)]).success is None
    with pytest.raises(RewardModelError, match="one hold_frames"):
        stricter([Thresholds(0.7, 0.3), Thresholds(0.7, 0.3, hold_frames=3)])


def test_seeds_must_agree() -> None:
    first = np.array([1, 0, 1, -1], np.int8)
    assert agreed([first, np.array([1, 0, 0, -1], np.int8)]).tolist() == [1, 0, -1, -1]
    assert agreed([first]).tolist() == first.tolist()
    with pytest.raises(RewardModelError):
        agreed([])


def test_thresholds_that_overlap_are_refused() -> None:
    with pytest.raises(RewardModelError, match="failure < success"):
        Thresholds(0.2, 0.8)


def test_intervals_of_whole_episodes_are_wider_than_those_of_frames() -> None:
    """Ten trials of one episode tell one thing, not ten."""
    rng = np.random.default_rng(1)
    truth = np.repeat(rng.random(12) < 0.5, 10)
    score = truth + np.repeat(rng.normal(0, 1.5, 12), 10)
    of_episodes = clustered_auc(score, truth, [f"e{index // 10}" for index in range(120)], rng)
    of_frames = clustered_auc(score, truth, [f"f{index}" for index in range(120)], rng)
    assert of_episodes[0] == of_frames[0] == pytest.approx(roc_auc_score(truth, score))
    assert np.diff(of_episodes[1]) > 2 * np.diff(of_frames[1])
    assert np.isnan(clustered_auc(score, np.ones(120, np.bool_), ["e"] * 120, rng)[0])


def test_exact_intervals() -> None:
    low, high = clopper_pearson(0, 20)
    assert low == 0.0 and high == pytest.approx(0.1684, abs=1e-4)
    assert clopper_pearson(0, 0) == (0.0, 1.0) and clopper_pearson_upper(0, 0) == 1.0
