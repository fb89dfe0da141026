"""The gate: what the evidence says, why it is closed, and within how many anchors each injected fault closes it."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from calibration_cases import FAULTS, KEY, SWAPPED, anchors_to_closure, episode, reversed_ranks

from reward_model.calibration.anchors import AnchorKind
from reward_model.calibration.calibrator import CalibrationConfig, CalibrationMode, Calibrator
from reward_model.calibration.drift import DriftConfig, PageHinkley, Surge
from reward_model.calibration.gates import Closure, Gate, GateConfig


@pytest.fixture(scope="module", params=[0, 1, 2])
def trained(request: pytest.FixtureRequest) -> tuple[dict[str, object], np.random.Generator]:
    """A calibrator after 75 honest episodes, its gate open, as a state to start from."""
    rng = np.random.default_rng(request.param)
    calibrator = Calibrator(CalibrationConfig())
    opened = None
    for index in range(75):
        calibrator.observe(KEY, episode(rng, index))
        if opened is None and index % 5 == 4 and calibrator.gate(KEY).value > 0.0:
            opened = index
    assert opened == 69  # 200 pairs are 50 episodes, and then 20 of evidence
    assert calibrator.gate(KEY).value == 1.0 and calibrator.gate(KEY).closures == ()
    return calibrator.state_dict(), rng


def continued(trained: tuple[dict[str, object], np.random.Generator]) -> Calibrator:
    calibrator = Calibrator(CalibrationConfig())
    calibrator.load_state_dict(trained[0])
    return calibrator


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_closes_the_gate_within_the_documented_number_of_anchors(
    name: str, trained: tuple[dict[str, object], np.random.Generator]
) -> None:
    calibrator, (fault, limit) = continued(trained), FAULTS[name]
    assert anchors_to_closure(calibrator, trained[1], fault, limit) is not None
    reading, metrics = calibrator.gate(KEY), calibrator.metrics(KEY)
    assert reading.value == metrics["calibration/gate"] == 0.0 and reading.closures
    assert set(reading.closures) == {c for c in Closure if metrics[f"calibration/closed_{c.value}"]}


@pytest.mark.parametrize("name", ["hallucinating_judge", "reversed_ranks"])
def test_a_surge_alone_is_the_first_sign_of_a_real_fault(
    name: str, trained: tuple[dict[str, object], np.random.Generator]
) -> None:
    """So what was imagined under one is not to be trusted, though it may be a passing alarm."""
    calibrator, (fault, limit) = continued(trained), FAULTS[name]
    assert anchors_to_closure(calibrator, trained[1], fault, limit) is not None
    assert calibrator.gate(KEY).closures == (Closure.SURGE,)


def test_an_honest_judge_keeps_the_gate_open(trained: tuple[dict[str, object], np.random.Generator]) -> None:
    calibrator, rng = continued(trained), trained[1]
    for index in range(100, 160):
        calibrator.observe(KEY, episode(rng, index))
        if index % 10 == 0:
            assert calibrator.gate(KEY).value > 0.9


def test_a_version_swap_closes_at_once_and_opens_again_after_20_episodes_of_the_new_one(
    trained: tuple[dict[str, object], np.random.Generator],
) -> None:
    calibrator, rng = continued(trained), trained[1]
    assert calibrator.gate(SWAPPED).closures == (Closure.UNCALIBRATED, Closure.NEW_VERSION)
    for index in range(100, 120):
        assert calibrator.gate(SWAPPED).value == 0.0
        assert index == 100 or calibrator.gate(SWAPPED).closures == (Closure.NEW_VERSION,)
        calibrator.observe(SWAPPED, episode(rng, index))
    assert calibrator.gate(SWAPPED).value == 1.0


def test_reversed_from_the_start_it_never_opens() -> None:
    calibrator, rng = Calibrator(CalibrationConfig()), np.random.default_rng(4)
    for index in range(100):
        calibrator.observe(KEY, episode(rng, index, reversed_ranks))
    reading = calibrator.gate(KEY)
    assert reading.value == 0.0 and Closure.RANK_UNPROVEN in reading.closures
    assert reading.evidence.auc < 0.7  # isotonic regression made it flat, not right


def test_a_lasting_shift_is_a_drift_that_forgets_the_map_until_evidence_is_back(
    trained: tuple[dict[str, object], np.random.Generator],
) -> None:
    calibrator, rng = continued(trained), trained[1]
    index = 100
    while calibrator.metrics(KEY)["calibration/drifts"] == 0 and index < 140:
        calibrator.observe(KEY, episode(rng, index, lambda raw, *_: raw + 0.5))
        index += 1
    assert index < 135  # failures look like successes: a mean shift by .45
    reading = calibrator.gate(KEY)
    assert reading.value == 0.0 and {Closure.DRIFT, Closure.UNCALIBRATED} <= set(reading.closures)
    assert calibrator.calibrate(KEY, np.array([0.3])).tolist() == [0.3]  # the identity again
    for later in range(index, index + 70):
        calibrator.observe(KEY, episode(rng, later, lambda raw, *_: raw * 0.5))
    assert calibrator.gate(KEY).value == 1.0


def test_the_published_mode_measures_the_gate_and_keeps_its_map(
    trained: tuple[dict[str, object], np.random.Generator],
) -> None:
    calibrator, rng = Calibrator(CalibrationConfig(mode=CalibrationMode.WMRL)), trained[1]
    for index in range(90):
        calibrator.observe(KEY, episode(rng, index, reversed_ranks if index >= 60 else None))
    assert not calibrator.obeys_gate and calibrator.gate(KEY).value == 0.0
    assert calibrator.metrics(KEY)["calibration/pairs"] == 360


def filled(config: GateConfig | None = None, *, successor: bool = False, episodes: int = 40) -> Gate:
    gate = Gate(config or GateConfig(), successor=successor)
    rng = np.random.default_rng(0)
    for index in range(episodes):
        outcome = float(index % 2)
        gate.observe(
            np.clip(np.full(2, outcome) + 0.02 * rng.standard_normal(2), 0, 1),
            np.full(2, outcome),
            np.full(2, index),
            fitted=True,
        )
    return gate


def test_every_closure_has_its_name() -> None:
    assert Gate(GateConfig(), successor=False).reading.closures == (
        Closure.UNCALIBRATED,
        Closure.TOO_FEW_ANCHORS,
    )
    assert filled().reading.value == 1.0
    assert filled(episodes=19).reading.closures == (Closure.TOO_FEW_ANCHORS,)
    assert filled(episodes=19, successor=True).reading.closures == (Closure.NEW_VERSION,)
    one_outcome = Gate(GateConfig(), successor=False)
    for index in range(30):
        one_outcome.observe(np.array([0.99]), np.array([1.0]), np.array([index]), fitted=True)
    assert one_outcome.reading.closures == (Closure.RANK_UNPROVEN,)


def test_pairs_of_one_episode_are_one_anchor() -> None:
    gate = Gate(GateConfig(), successor=False)
    true = np.tile([0.0, 1.0], 50)
    gate.observe(true, true, np.repeat(np.arange(10), 10), fitted=True)
    assert gate.reading.closures == (Closure.TOO_FEW_ANCHORS,) and gate.reading.evidence.episodes == 10


def test_only_the_newest_episodes_and_of_each_the_newest_pairs_are_looked_at() -> None:
    gate = Gate(GateConfig(window=25, pairs_per_episode=2), successor=False)
    for index in range(60):
        for outcome in (1.0, 1.0, 0.0):  # the first pair of each is forgotten
            reversed_early = 1.0 - outcome if index < 35 else outcome
            gate.observe(np.array([reversed_early]), np.array([outcome]), np.array([index]), fitted=False)
    assert gate.reading.evidence.episodes == 25
    assert gate.reading.evidence.auc == 1.0 and gate.reading.evidence.outcome_variance == 0.25


def test_a_weak_rank_closes_and_a_middling_one_half_opens() -> None:
    def of(auc: float) -> Gate:
        """Half the window of outcome 1; a share of its scores is above all others, the rest below, so AUC = share."""
        gate = Gate(GateConfig(max_ece=1.0, window=400), successor=False)
        true = np.tile([0.0, 1.0], 200)
        above = np.arange(400) < 400 * auc
        predicted = np.where(true == 0.0, 0.5, np.where(above, 0.6, 0.4))
        gate.observe(predicted, true, np.arange(400), fitted=False)
        gate._fitted = True
        return gate

    assert of(0.58).reading.closures == (Closure.RANK_WEAK,)
    assert of(0.725).reading.value == pytest.approx(0.5)
    assert of(0.9).reading.value == 1.0


def test_miscalibrated_although_the_ranks_are_right() -> None:
    gate = Gate(GateConfig(drift=DriftConfig(threshold=1e9)), successor=False)
    true = np.tile([0.0, 1.0], 50)
    gate.observe(0.3 + 0.4 * true, true, np.arange(100), fitted=True)
    assert gate.reading.closures == (Closure.MISCALIBRATED,)
    assert gate.reading.evidence.ece == pytest.approx(0.3)


@pytest.mark.parametrize("broken", [np.inf, -np.inf])
def test_one_broken_score_closes_until_64_sound_ones_have_come(broken: float) -> None:
    gate = filled()
    gate.note(np.array([0.5, broken]))
    assert gate.reading.closures == (Closure.NON_FINITE,)
    gate.note(np.full(63, 0.5))
    assert gate.reading.value == 0.0
    gate.note(np.array([0.5]))
    assert gate.reading.value == 1.0


def test_unknown_scores_close_only_where_they_are_many() -> None:
    gate = filled()
    gate.note(np.where(np.arange(64) < 16, np.nan, 0.5))
    assert gate.reading.value == 1.0
    gate.note(np.array([np.nan, np.nan, *[np.nan] * 16]))
    assert gate.reading.closures == (Closure.UNKNOWN_SCORES,)


def test_rehearsals_count_half_in_the_gate_as_in_the_map() -> None:
    """40 rehearsed episodes that rank rightly beside 20 seen for the first time that rank wrongly."""
    rehearsed, fresh = np.tile([0.0, 1.0], 20), np.tile([0.0, 1.0], 10)
    readings = []
    for mode in CalibrationMode:
        calibrator = Calibrator(CalibrationConfig(mode=mode))
        gate = calibrator._new_gate(KEY)
        gate.observe(rehearsed, rehearsed, np.arange(40), [AnchorKind.REPLAY] * 40, fitted=True)
        gate.observe(1.0 - fresh, fresh, np.arange(40, 60), fitted=True)
        readings.append(gate.reading.evidence.auc)
    published, hardened = readings
    assert published == pytest.approx((20**2 + 20 * 10) / 30**2), "400 comparisons won, 400 tied, of 900"
    assert hardened == pytest.approx(0.5)


EXECUTED = AnchorKind.COUNTERFACTUAL


def with_executed(predicted: Callable[[float], float], episodes: int, first: int = 1000) -> Gate:
    """An open gate, and then executed counterfactuals, every other one a success."""
    gate = filled(GateConfig(drift=DriftConfig(threshold=1e9, surge_floor=1e9)), episodes=90)
    for index in range(episodes):
        outcome = float(index % 2)
        gate.observe(
            np.array([predicted(outcome)]),
            np.array([outcome]),
            np.array([first + index]),
            [EXECUTED],
            fitted=True,
        )
    return gate


def test_executed_counterfactuals_are_weighed_alone_as_soon_as_there_are_enough() -> None:
    blind = with_executed(lambda outcome: 0.5, 9)
    assert blind.reading.value == 1.0 and blind.reading.executed.episodes == 9
    reading = with_executed(lambda outcome: 0.5, 10).reading
    assert reading.closures == (Closure.EXECUTED_WRONG,) and reading.evidence.auc > 0.9
    assert reading.metrics()["calibration/executed_auc"] == 0.5
    assert reading.metrics()["calibration/closed_executed_wrong"] == 1.0
    assert reading.metrics()["calibration/executed_episodes"] == 10
    assert with_executed(lambda outcome: outcome, 10).reading.value == 1.0
    ranked = with_executed(lambda outcome: 0.3 + 0.1 * outcome, 30).reading
    assert ranked.executed.auc == 1.0 and ranked.executed.ece > 0.1
    assert ranked.closures == (Closure.EXECUTED_WRONG,), "right ranks, and off by .3 and .6"


def test_executed_counterfactuals_of_one_outcome_or_one_episode_say_nothing_alone() -> None:
    successes = filled(episodes=90)
    successes.observe(np.full(20, 0.95), np.ones(20), np.arange(100, 120), [EXECUTED] * 20, fitted=True)
    assert successes.reading.value == 1.0 and np.isnan(successes.reading.executed.auc)
    one = filled(episodes=90)
    true = np.tile([0.0, 1.0], 8)
    one.observe(1.0 - true, true, np.full(16, 100), [EXECUTED] * 16, fitted=True)
    assert one.reading.executed.episodes == 1 and Closure.EXECUTED_WRONG not in one.reading.closures


def test_replays_do_not_crowd_executed_counterfactuals_out_and_both_are_saved() -> None:
    gate = with_executed(lambda outcome: 0.5, 10)
    for index in range(200):  # of other episodes and of the same ones
        outcome = float(index % 2)
        numbers = np.array([2000 + index, 1000 + index % 10])
        gate.observe(np.full(2, outcome), np.full(2, outcome), numbers, [AnchorKind.REPLAY] * 2, fitted=True)
    assert gate.reading.closures == (Closure.EXECUTED_WRONG,)
    again = Gate(GateConfig(drift=DriftConfig(threshold=1e9, surge_floor=1e9)), successor=False)
    again.load_state_dict(json.loads(json.dumps(gate.state_dict())))
    assert again.reading == gate.reading


def test_page_hinkley_by_hand() -> None:
    """Tolerance .1, threshold 1: after ten zeros, ones add 1 - 1/11 - .1, 1 - 2/12 - .1 ...: the second is too much."""
    test = PageHinkley(0.1, 1.0)
    assert not any(test.update(0.0) for _ in range(10))
    assert [test.update(1.0), test.update(1.0)] == [False, True]
    fall = PageHinkley(0.1, 1.0)
    assert [fall.update(-value) for value in [0.0] * 10 + [1.0, 1.0]] == [False] * 11 + [True]


def test_no_drift_alarm_from_noise_alone() -> None:
    rng = np.random.default_rng(0)
    test = PageHinkley(0.1, 4.0)
    predicted = rng.beta(0.6, 0.6, size=2000)
    assert sum(test.update(p - float(rng.random() < p)) for p in predicted) == 0


def test_a_surge_is_two_misses_in_eight_and_passes() -> None:
    surge = Surge(DriftConfig())
    for _ in range(8):
        surge.update(0.01)
    for value, active in [
        *[(0.01, False)] * 6,
        (1.0, False),
        (1.0, True),
        *[(0.01, True)] * 6,
        (0.01, False),
    ]:
        surge.update(value)
        assert surge.active is active


@pytest.mark.parametrize("before", [0.0, 0.03, 0.06])
def test_easy_recordings_among_the_episodes_before_raise_no_surge_of_their_own(before: float) -> None:
    """Below a third of the floor it does not matter how well those before were predicted: two misses in eight do."""
    surge = Surge(DriftConfig())
    for _ in range(64):
        surge.update(before)
    active = []
    for miss in (0.0, 1.0, 0.0, 0.0, 1.0):
        surge.update(max(before, miss))
        active.append(surge.active)
    assert active == [False, False, False, False, True]


@pytest.mark.parametrize("misses_first", [True, False])
def test_the_newest_episodes_are_those_that_came_last_whatever_their_numbers(misses_first: bool) -> None:
    """A batch of replays holds episodes of several stores; high numbers are late episodes of one, not late replays."""
    gate = filled(GateConfig(drift=DriftConfig(threshold=1e9)), episodes=90)
    true = np.tile([0.0, 1.0], 8)
    missed = np.arange(16) < 8 if misses_first else np.arange(16) >= 8
    numbers = np.where(missed, 5000, 1000) + np.arange(16)  # the misses are those of high numbers
    gate.observe(np.where(missed, 1.0 - true, true), true, numbers, fitted=True)
    assert (Closure.SURGE in gate.reading.closures) is not misses_first
