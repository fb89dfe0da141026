"""Ranks of arms: signs, ties, arms that only one side knows, and no order at all."""

from __future__ import annotations

import pytest

from rl.ablation.ranking import MEASURES, Measure, at, mean_over_seeds, rank_row
from rl.ablation.report import rank_table, table

TRUTH = {"a": 0.1, "b": 0.5, "c": 0.9, "d": 0.9}
LESS_IS_BETTER = Measure("error", "error", -1, at("error"))
MORE_IS_BETTER = Measure("value", "value", +1, at("value"))


def test_positive_is_agreement_whatever_the_sign_of_the_measure() -> None:
    falling = {"a": 4.0, "b": 3.0, "c": 2.0}
    three = {arm: TRUTH[arm] for arm in falling}
    for measure, sign in ((LESS_IS_BETTER, 1.0), (MORE_IS_BETTER, -1.0)):
        row = rank_row(measure, falling, three)
        assert [row["spearman"], row["kendall"]] == pytest.approx([sign, sign])


def test_ties_and_arms_that_one_side_does_not_know() -> None:
    row = rank_row(MORE_IS_BETTER, {"a": 1.0, "b": 2.0, "c": 3.0, "d": None, "e": 9.0}, TRUTH)
    assert row["arms"] == 3 and row["spearman"] == pytest.approx(1.0)
    tied = rank_row(MORE_IS_BETTER, {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}, TRUTH)
    assert tied["arms"] == 4 and 0.9 < tied["kendall"] < 1.0


def test_where_there_is_no_order_nothing_is_claimed() -> None:
    constant = rank_row(MORE_IS_BETTER, {"a": 1.0, "b": 1.0}, TRUTH)
    single = rank_row(MORE_IS_BETTER, {"a": 1.0}, TRUTH)
    assert constant["spearman"] is constant["kendall"] is single["spearman"] is None


def test_unknown_is_left_out_of_a_mean_and_is_not_zero() -> None:
    assert mean_over_seeds([{"x": 1.0}, {"x": None}, {}], at("x")) == 1.0
    assert mean_over_seeds([{"x": None}], at("x")) is None
    assert at("fqe", "value")({"fqe": None}) is None


def test_tables_leave_out_what_nobody_knows() -> None:
    keys = {measure.key: 0.5 for measure in MEASURES}
    row = dict.fromkeys(
        ("label_precision", "label_recall", "admitted", "ratio_mean", "online", "true_success"), None
    )
    row |= dict.fromkeys(("wilson_low", "wilson_high"), None)
    row |= keys | {"arm": "rlpd", "seeds": 1, "minutes": 1.0, "cpu_minutes": 1.0, "real_transitions": 10.0}
    row |= {"impossible_share": 0.0, "fqe_low": 0.4, "fqe_high": 0.6}
    text = table([row])
    assert "label precision" not in text and "0.50 (0.40-0.60)" in text and text.count("\n") == 2
    assert "| fitted Q evaluation | online | 6 | +0.50 | - |" in rank_table(
        {"online": [{"measure": "fqe", "arms": 6, "spearman": 0.5, "kendall": None}]}
    )
