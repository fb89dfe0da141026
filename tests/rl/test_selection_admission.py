"""Admission: the closed form of the composition, the gate, surprises, and what the printed rule does instead."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from rl.selection.admission import Admission, Candidate, Selection, SelectionConfig, SelectionMode
from robot.types import Label

BASE = Candidate(
    label=Label.SUCCESS,
    q=0.5,
    source_q=0.5,
    first_q=0.5,
    label_return=0.6,
    risk=0.1,
    agreed=True,
)


def clip(label: Label, shift: float, source: float = 0.5) -> Candidate:
    return replace(BASE, label=label, q=source + shift, source_q=source)


def filled(mode: SelectionMode, plus: float, minus: float, n: int = 40, spread: float = 0.3) -> Selection:
    """Successes shifted by `plus`, failures by `minus`, from sources whose Q varies by +-`spread`."""
    selection = Selection(SelectionConfig(mode=mode))
    selection.observe_real(success_share=0.4, td_rms=0.08)
    for index in range(n):
        source = 0.5 + spread * (-1) ** (index // 2)
        selection.consider(clip(Label.SUCCESS, plus + 1e-3 * (-1) ** index, source))
        selection.consider(clip(Label.FAILURE, minus - 1e-3 * (-1) ** index, source))
    return selection


def test_the_share_of_successes_is_the_closed_form() -> None:
    selection = filled(SelectionMode.MIXTURE_PAIRED, plus=0.3, minus=-0.2)
    assert selection.success_share == pytest.approx(0.4, abs=0.01)  # .2 / (.3 + .2)
    assert selection.residual < 0.01 and selection.gate == 1.0


def test_the_share_stays_near_the_success_rate_of_real_clips() -> None:
    selection = filled(SelectionMode.MIXTURE_PAIRED, plus=0.05, minus=-0.4)  # wants .89
    selection.observe_real(success_share=0.1, td_rms=0.08)
    assert selection.success_share == pytest.approx(0.35)
    assert 0.0 < selection.gate < 1.0, (
        "what cannot be balanced shrinks the ratio instead of refusing the batch"
    )
    assert selection.gate == pytest.approx(selection.delta / selection.residual)


def test_the_gate_falls_as_the_residual_grows() -> None:
    gates = [filled(SelectionMode.MIXTURE_PAIRED, plus, -0.01).gate for plus in (0.0, 0.3, 0.6, 1.2)]
    assert gates == sorted(gates, reverse=True) and gates[0] > gates[-1]


def test_without_a_clear_difference_the_real_success_rate_decides() -> None:
    selection = Selection(SelectionConfig(mode=SelectionMode.MIXTURE_UNPAIRED))
    selection.observe_real(success_share=0.3, td_rms=0.08)
    for index in range(20):  # a spread of sources of +-.3 hides a difference of .02
        noise = 0.3 * (-1) ** index
        selection.consider(replace(BASE, q=0.51 + noise))
        selection.consider(replace(BASE, label=Label.FAILURE, q=0.49 - noise))
    assert selection.success_share == pytest.approx(0.3)


def test_pairing_sees_what_the_spread_of_sources_hides() -> None:
    paired = filled(SelectionMode.MIXTURE_PAIRED, plus=0.02, minus=-0.02)
    assert paired.success_share == pytest.approx(0.5, abs=0.05)


def test_one_empty_queue_keeps_the_gate_shut() -> None:
    selection = Selection(SelectionConfig())
    for _ in range(50):
        selection.consider(clip(Label.SUCCESS, 0.0))
    assert selection.gate == 0.0


def test_unknown_never_enters_and_is_counted() -> None:
    selection = Selection(SelectionConfig())
    assert selection.consider(clip(Label.UNKNOWN, 0.0)) is Admission.UNLABELLED
    assert selection.consider(replace(BASE, q=math.nan)) is Admission.NOT_FINITE
    assert selection.metrics()["selection/refused/unlabelled"] == 1.0
    assert selection.metrics()["selection/successes"] == 0.0


def test_a_surprising_success_needs_agreement_and_low_risk() -> None:
    selection = Selection(SelectionConfig())
    surprising = replace(BASE, first_q=0.05, label_return=0.9)
    assert selection.consider(surprising) is Admission.SURPRISING, "no history: nothing is beyond doubt"
    selection.consider(replace(BASE, risk=0.2))
    assert selection.consider(surprising) is Admission.ADMITTED
    for doubtful in ({"agreed": False}, {"risk": 0.9}):
        assert selection.consider(replace(surprising, **doubtful)) is Admission.SURPRISING  # type: ignore[arg-type]
    failure = replace(surprising, label=Label.FAILURE, label_return=0.0, first_q=0.9)
    assert selection.consider(failure) is Admission.ADMITTED, "negative surprises teach"


def test_mislabelled_successes_raise_refusals() -> None:
    selection = filled(SelectionMode.MIXTURE_PAIRED, plus=0.1, minus=-0.1)
    before = selection.metrics().get("selection/refused/surprising", 0.0)
    for _ in range(10):  # a hallucinated success where the critic expects none, and two seeds disagree
        selection.consider(replace(BASE, first_q=0.02, label_return=0.9, agreed=False))
    assert selection.metrics()["selection/refused/surprising"] == before + 10


def test_the_printed_rule_refuses_hard_failures_once_successes_look_real() -> None:
    hard = filled(SelectionMode.PAPER_SUM, plus=0.0, minus=-0.1)  # failures nearly as good as real steps
    assert hard.gate == 0.0
    useless = filled(SelectionMode.PAPER_SUM, plus=0.0, minus=-0.5)  # failures worth nothing
    assert useless.gate == 1.0
    assert filled(SelectionMode.MIXTURE_PAIRED, plus=0.0, minus=-0.1).gate > 0.0


def test_without_selection_every_labelled_clip_enters() -> None:
    selection = filled(SelectionMode.NONE, plus=0.6, minus=-0.1)
    assert selection.gate == 1.0
    assert selection.consider(replace(BASE, first_q=0.0, label_return=1.0)) is Admission.ADMITTED


def test_successes_alone_enter_and_no_critic_is_asked() -> None:
    selection = Selection(SelectionConfig(mode=SelectionMode.SUCCESSES, min_clips=3))
    unvalued = replace(BASE, q=math.nan, source_q=math.nan, first_q=math.nan)
    for _ in range(50):
        assert selection.consider(replace(unvalued, label=Label.FAILURE)) is Admission.FAILED
    assert selection.gate == 0.0, "failures open nothing"
    for count in range(1, 4):
        assert selection.consider(unvalued) is Admission.ADMITTED
        assert selection.gate == float(count == 3)
    assert selection.metrics()["selection/refused/failed"] == 50.0
    assert selection.consider(replace(unvalued, label=Label.UNKNOWN)) is Admission.UNLABELLED
    assert selection.consider(replace(unvalued, risk=math.nan)) is Admission.NOT_FINITE


def test_the_tolerance_follows_the_td_error_within_bounds() -> None:
    selection = Selection(SelectionConfig())
    for td_rms, delta in ((0.0, 0.01), (0.1, 0.05), (9.0, 0.10)):
        selection.observe_real(0.5, td_rms)
        assert selection.delta == pytest.approx(delta)
    with pytest.raises(ValueError, match="TD error"):
        selection.observe_real(0.5, math.inf)


def test_state_continues() -> None:
    selection = filled(SelectionMode.MIXTURE_PAIRED, plus=0.3, minus=-0.2)
    resumed = Selection(SelectionConfig())
    resumed.load_state(selection.state())
    assert resumed.metrics() == selection.metrics()
