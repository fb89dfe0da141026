"""The tables of the closed loop: paired over common seeds only, and `-` where nothing is known."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.ceiling import TRACE_POINTS, area, saved, share_trace
from benchmarks.loop_tables import accounts, links, means_in_parts, shares


def run(success: float, **more: Any) -> dict[str, Any]:
    """A run of 100 env steps whose evaluation stood at `success` from its beginning to its end."""
    curve = [{"env_steps": 0, "success": success}]
    numbers = {
        "env_steps": 100,
        "updates": 300,
        "minutes": 2.0,
        "correction_rate": 0.0,
        "final_success": success,
    }
    return numbers | {"eval_episodes": 100.0, "curve": curve, "generated": 9, "admitted": 8, "used": 7} | more


def record(updates: int, ratio: float) -> dict[str, float]:
    names = ("ratio", "paced", "gate_world_model", "gate_selection", "gate_calibration", "alive")
    return {"env_steps": updates // 3, "updates": updates} | {f"selection/{name}": ratio for name in names}


def test_a_link_is_paired_over_the_seeds_that_both_arms_have() -> None:
    arms = {
        "full": {0: run(0.5), 1: run(0.6), 2: run(0.0)},
        "oracle_labels": {0: run(0.6), 1: run(0.8)},
        "hil_serl": {2: run(0.25)},
    }
    text = links(arms)
    assert "| `oracle_labels` - `full` | 2 | +0.150 +- 0.050 |" in text
    assert "| `full` - `hil_serl` | 1 | -0.250 |" in text
    assert "naive" not in text, "an arm that was not run has no line"
    assert links({"full": {0: run(0.5)}}) == "", "nothing to compare, no table"


@pytest.mark.parametrize(
    ("now", "before", "cell"),
    [(50, 100, "50%"), (50, None, ">= 50%"), (None, 50, "<= -100%"), (None, None, "~ 0%")],
)
def test_what_is_saved_says_which_bound_it_is(now: int | None, before: int | None, cell: str) -> None:
    """A run that never got there counts as its whole length, 100 env steps."""
    assert saved([run(1.0, running_env_steps=now)], [run(1.0, running_env_steps=before)]) == cell


def test_area_is_the_mean_of_the_curve() -> None:
    assert area(run(0.5)) == pytest.approx(0.5)


def test_the_trace_is_thinned_and_holds_what_makes_the_share() -> None:
    records = [{"env_steps": 1, "updates": 1, "env/success": 1.0}, *(record(i, 0.1) for i in range(1, 101))]
    trace = share_trace(records)
    assert TRACE_POINTS <= len(trace) <= 2 * TRACE_POINTS
    assert trace[0] == {
        "env_steps": 0,
        "updates": 1,
        "ratio": 0.1,
        "paced": 0.1,
        "gate_world_model": 0.1,
        "gate_selection": 0.1,
        "gate_calibration": 0.1,
        "alive": 0.1,
    }
    assert share_trace(records[:1]) == []


def test_a_part_without_a_measurement_has_the_share_of_the_one_before() -> None:
    trace = share_trace([record(10, 0.0), record(20, 0.3), record(100, 0.1)])
    assert means_in_parts(trace) == pytest.approx([0.15, 0.15, 0.15, 0.15, 0.1])


def test_accounts_pool_episodes_and_say_where_no_trace_was_kept() -> None:
    traced = run(0.9, share_trace=share_trace([record(10, 0.25), record(20, 0.25)]))
    text = accounts(
        {"full": {0: traced, 1: run(0.7)}, "hil_serl": {0: run(1.0)}, "full_before": {0: run(0.1)}}
    )
    assert (
        "| video, the whole loop | 2 | 80% (74% to 85%) | 300 | 2 | 0% | 9 | 8 | 7 | .25 .25 .25 .25 .25 |"
        in text
    )
    assert "| none | 1 | 100% (96% to 100%) | 300 | 2 | 0% | 9 | 8 | 7 | - |" in text
    assert "former" not in text, "an arm that is no longer configured"
    assert shares([run(1.0)]) == "-"
