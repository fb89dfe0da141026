"""Pacing and gates: the ratio follows certainty, never exceeds the cap, rises slowly, falls at once, fails closed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.agent.distribution import Certainty
from rl.selection.pacing import RATIO_CAP, EntropyPacer, EntropyPacingConfig, PacingRule
from rl.selection.ratio import EffectiveRatio, Gates

OPEN = Gates(world_model=1.0, selection=1.0, calibration=1.0, alive=True)


def certainty(entropy: float, saturated: float = 0.0, std: float = 0.5) -> Certainty:
    return Certainty(entropy, saturated, std)


def paced(entropy: float, **config: object) -> float:
    pacer = EntropyPacer(EntropyPacingConfig(**config), action_dim=6)  # type: ignore[arg-type]
    pacer.observe(certainty(entropy), updates=1)
    return pacer.ratio(env_steps=0)


def test_linear_rule_runs_from_zero_for_the_uniform_policy_to_the_cap_at_the_target_entropy() -> None:
    assert paced(6 * math.log(2.0)) == pytest.approx(0.0)
    assert paced(-3.0) == pytest.approx(0.30)
    middle = 6 * (math.log(2.0) - 0.5) / 2
    assert paced(middle) == pytest.approx(0.15)
    assert paced(-50.0) == pytest.approx(0.30), "a very negative entropy must not blow the rule up"


def test_hyperbolic_rule_is_eq_8_in_the_normalised_entropy() -> None:
    middle = 6 * (math.log(2.0) - 0.5) / 2  # u = 1/2
    assert paced(middle, rule=PacingRule.HYPERBOLIC, kappa=4.0, power=2.0) == pytest.approx(0.30 / 2.0)
    assert paced(-3.0, rule=PacingRule.HYPERBOLIC) == pytest.approx(0.30)


def test_a_saturated_policy_is_not_taken_for_a_certain_one() -> None:
    pacer = EntropyPacer(EntropyPacingConfig(), action_dim=6)
    pacer.observe(certainty(-22.0, saturated=0.9, std=5.0), updates=1)
    assert pacer.ratio(0) == 0.0
    pacer.observe(certainty(-22.0, saturated=0.0, std=5.0), updates=2)
    assert pacer.ratio(0) == 0.0, "a wide Gaussian alone is enough"


def test_nothing_before_the_first_measurement_and_before_the_warm_up_is_over() -> None:
    assert EntropyPacer(EntropyPacingConfig(), 6).ratio(10**6) == 0.0
    pacer = EntropyPacer(EntropyPacingConfig(warm_env_steps=100), 6)
    pacer.observe(certainty(-3.0), updates=1)
    assert pacer.ratio(99) == 0.0 and pacer.ratio(100) == pytest.approx(0.30)


def test_the_average_forgets_half_in_a_half_life_of_updates() -> None:
    pacer = EntropyPacer(EntropyPacingConfig(half_life=100.0), 6)
    pacer.observe(certainty(0.0), updates=0)
    pacer.observe(certainty(-2.0), updates=100)
    assert pacer.metrics()["selection/entropy"] == pytest.approx(-1.0)
    resumed = EntropyPacer(EntropyPacingConfig(half_life=100.0), 6)
    resumed.load_state(pacer.state())
    assert resumed.ratio(0) == pacer.ratio(0)


def test_an_entropy_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(ValueError, match="entropy"):
        EntropyPacer(EntropyPacingConfig(), 6).observe(certainty(float("nan")), 1)


@pytest.mark.parametrize("bad", [{"ratio_max": 0.31}, {"kappa": 0.0}, {"power": 0.5}, {"entropy_low": 1.0}])
def test_a_wrong_schedule_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        EntropyPacingConfig(**bad)  # type: ignore[arg-type]


@given(
    entropy=st.floats(-100, 10),
    saturated=st.floats(0, 1),
    std=st.floats(0.01, 10),
    rule=st.sampled_from(PacingRule),
    gate=st.floats(0, 1),
)
def test_no_input_lifts_the_ratio_above_the_cap(
    entropy: float, saturated: float, std: float, rule: PacingRule, gate: float
) -> None:
    pacer = EntropyPacer(EntropyPacingConfig(rule=rule), 6)
    pacer.observe(certainty(entropy, saturated, std), 1)
    gates = Gates(world_model=1.0, selection=gate, calibration=1.0, alive=True)
    ratio = EffectiveRatio(rise_per_100=100.0)
    ratio.update(pacer.ratio(0), gates, updates=0)
    value = ratio.update(pacer.ratio(0), gates, updates=100)
    assert 0.0 <= value <= RATIO_CAP * gate + 1e-12


def test_the_ratio_rises_slowly_and_falls_at_once() -> None:
    ratio = EffectiveRatio(rise_per_100=0.01)
    assert ratio.update(0.30, OPEN, 0) == 0.0
    assert ratio.update(0.30, OPEN, 100) == pytest.approx(0.01)
    assert ratio.update(0.30, OPEN, 1100) == pytest.approx(0.11)
    assert (
        ratio.update(0.30, Gates(world_model=1.0, selection=1.0, calibration=1.0, alive=False), 1101) == 0.0
    )
    assert ratio.update(0.30, OPEN, 1201) == pytest.approx(0.01), "it is trusted again step by step"


@pytest.mark.parametrize("closed", ["world_model", "selection", "calibration"])
def test_every_gate_closes_alone_and_is_closed_by_default(closed: str) -> None:
    values = {"world_model": 1.0, "selection": 1.0, "calibration": 1.0} | {closed: 0.0}
    ratio = EffectiveRatio(100.0)
    ratio.update(0.3, OPEN, 0)
    assert ratio.update(0.3, Gates(**values, alive=True), 1000) == 0.0  # type: ignore[arg-type]
    del values[closed]
    assert ratio.update(0.3, Gates(**values, alive=True), 2000) == 0.0  # type: ignore[arg-type]


def test_updates_before_the_first_question_earn_no_trust() -> None:
    ratio = EffectiveRatio(rise_per_100=0.01)
    assert ratio.update(0.30, OPEN, 2000) == 0.0, "two thousand updates of cloning are no evidence"
    resumed = EffectiveRatio(rise_per_100=0.01)
    resumed.load_state(ratio.state())
    assert resumed.update(0.30, OPEN, 2100) == pytest.approx(0.01)


def test_a_gate_that_is_not_a_share_is_refused() -> None:
    with pytest.raises(ValueError, match="gate selection"):
        Gates(selection=float("nan"))
