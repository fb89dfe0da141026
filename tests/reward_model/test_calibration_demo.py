"""The 20-program experiment: programs are really run, judges go wrong as stated, and the directions hold."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from reward_model.calibration.demo import grading
from reward_model.calibration.demo.experiment import ExperimentConfig, Outcome, Route, run_experiment
from reward_model.calibration.demo.grading import UNIT_TESTS, GradingError, run_unit_tests
from reward_model.calibration.demo.judges import Judge, JudgeKind, UnitTests, opinion
from reward_model.calibration.demo.programs import KEYWORD, PROGRAMS, Program
from reward_model.calibration.demo.report import BEGIN, END, draw, table, write_table
from reward_model.calibration.scorers import ScorerError, ScorerPair
from robot.types import Array


def in_process(program: Program) -> float:
    """Share of tests passed when the source is executed here: quick, and a second opinion on the grader."""
    scope: dict[str, object] = {}
    exec(program.source, scope)
    passed = 0
    for text, wanted in UNIT_TESTS:
        try:
            passed += scope["canonical"](text) == wanted  # type: ignore[operator]
        except AttributeError:
            assert program.name == "crash"
    return passed / len(UNIT_TESTS)


@pytest.fixture(scope="module")
def true() -> Array:
    return np.array([in_process(program) for program in PROGRAMS])


def test_twenty_programs_and_twenty_tests_that_tell_them_apart(true: Array) -> None:
    assert len(PROGRAMS) == len({p.name for p in PROGRAMS}) == len({p.source for p in PROGRAMS}) == 20
    assert len(UNIT_TESTS) == len({text for text, _ in UNIT_TESTS}) == 20
    assert true.max() == 1.0 and (true == 1.0).sum() == 1 and len(np.unique(true)) >= 12
    claims = [KEYWORD in p.source for p in PROGRAMS]
    assert sum(claims) == 4 and true[claims].max() <= 0.3


def test_the_grader_agrees_with_an_execution_by_hand(true: Array) -> None:
    chosen = [i for i, p in enumerate(PROGRAMS) if p.name in ("crash", "folded_ascii_apostrophe")]
    passed = run_unit_tests([PROGRAMS[i] for i in chosen])
    assert passed.shape == (2, 20) and passed.mean(axis=1).tolist() == true[chosen].tolist()
    assert [text for (text, _), ok in zip(UNIT_TESTS, passed[1], strict=True) if not ok] == ["don\u2019t"]


def test_every_run_has_an_isolated_interpreter_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "import os, sys\n"
        "def canonical(text):\n"
        "    isolated = sys.flags.isolated and sys.flags.no_site and 'numpy' not in sys.modules\n"
        "    return f'{os.getpid()} {isolated}'\n"
    )
    answers: list[str] = []
    run = subprocess.run

    def spy(*args: object, **kwargs: object) -> subprocess.CompletedProcess[str]:
        done = run(*args, **kwargs)  # type: ignore[call-overload]
        answers.append(done.stdout.strip().strip("'"))
        return done  # type: ignore[no-any-return]

    monkeypatch.setattr(subprocess, "run", spy)
    run_unit_tests([Program("spy", source)])
    pids, isolated = zip(*(answer.split() for answer in answers), strict=True)
    assert len(set(pids)) == 20 and str(os.getpid()) not in pids and set(isolated) == {"True"}


def test_a_grader_that_gives_up_is_no_failed_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grading, "UNIT_TESTS", UNIT_TESTS[:1])
    endless = Program("endless", "def canonical(text):\n    while True: pass\n")
    with pytest.raises(GradingError, match=r"endless: no answer within .* so pass or fail is unknown"):
        run_unit_tests([endless], timeout_s=0.3)


def test_how_the_judges_go_wrong(true: Array) -> None:
    monotone, hackable, reverse = (opinion(kind, PROGRAMS, true) for kind in JudgeKind)
    assert monotone.tolist() == pytest.approx((0.08 + 0.82 * np.sqrt(true)).tolist())
    claims = np.array([KEYWORD in p.source for p in PROGRAMS])
    assert (hackable[~claims] == monotone[~claims]).all() and hackable[claims].min() > monotone.max()
    order = np.argsort(true, kind="stable")
    assert (np.diff(monotone[order]) >= 0).all() and (np.diff(reverse[order]) <= 0).all()
    judge = Judge(JudgeKind.MONOTONE, monotone, 0.05, np.random.default_rng(0))
    scores = np.array(judge.score([5] * 4000))
    assert scores.mean() == pytest.approx(monotone[5], abs=0.005) and scores.std() == pytest.approx(
        0.05, abs=0.005
    )


def test_real_queries_are_counted_and_the_two_scorers_cannot_be_swapped(true: Array) -> None:
    tests = UnitTests(true)
    assert tests.score([0, 15, 15]) == [true[0], 1.0, 1.0] and tests.queries == 3
    judge = Judge(JudgeKind.MONOTONE, true, 0.05, np.random.default_rng(0))
    with pytest.raises(ScorerError, match="swapped"):
        ScorerPair(cheap=tests, trusted=judge)


@pytest.fixture(scope="module")
def outcomes(true: Array) -> dict[tuple[JudgeKind, Route], Outcome]:
    config = ExperimentConfig(seeds=3)
    return {(outcome.judge, outcome.route): outcome for outcome in run_experiment(config, true)}


def test_the_directions_of_the_experiment(outcomes: dict[tuple[JudgeKind, Route], Outcome]) -> None:
    final = {key: outcome.reward[:, -1].mean() for key, outcome in outcomes.items()}
    for judge in JudgeKind:
        assert final[judge, Route.ALL_REAL] > 0.95
        assert outcomes[judge, Route.ALL_REAL].queries == 4800
        assert outcomes[judge, Route.ALL_JUDGE].queries == 0
        assert outcomes[judge, Route.ANCHORED].queries == outcomes[judge, Route.PUBLISHED].queries == 480
        assert final[judge, Route.ANCHORED] > 0.85
    assert final[JudgeKind.MONOTONE, Route.ALL_JUDGE] > 0.9
    assert final[JudgeKind.HACKABLE, Route.ALL_JUDGE] < 0.4
    assert final[JudgeKind.REVERSED, Route.ALL_JUDGE] < 0.1
    assert final[JudgeKind.REVERSED, Route.PUBLISHED] < final[JudgeKind.REVERSED, Route.ANCHORED] - 0.05


def test_the_gate_opens_for_the_monotone_judge_and_stays_closed_for_the_reversed_one(
    outcomes: dict[tuple[JudgeKind, Route], Outcome],
) -> None:
    monotone = outcomes[JudgeKind.MONOTONE, Route.ANCHORED].gate
    assert (monotone[:, :4] == 0.0).all()  # 24 pairs of warm-up, then 20 executions of evidence
    assert monotone[:, 8:14].mean() > 0.8
    assert outcomes[JudgeKind.REVERSED, Route.ANCHORED].gate.max() < 0.2
    assert outcomes[JudgeKind.REVERSED, Route.ANCHORED].gate.mean() < 0.01


def test_rows_table_and_picture(outcomes: dict[tuple[JudgeKind, Route], Outcome], tmp_path: Path) -> None:
    rows = [outcome.row() for outcome in outcomes.values()]
    assert len(rows) == 12
    for row in rows:
        assert row["ci_low"] <= row["final_true_reward"] <= row["ci_high"] and row["seeds"] == 3
        assert len(row["curve"]) == 61 and row["curve"][-1] == row["final_true_reward"]
    page = tmp_path / "calibration.md"
    assert not write_table(page, rows) and not page.exists()
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert write_table(page, rows)
    assert page.read_text() == f"before\n{BEGIN}\n{table(rows)}\n{END}\nafter\n"
    assert draw(tmp_path / "deep" / "picture.png", rows).stat().st_size > 10_000


def test_settings_out_of_range_are_refused() -> None:
    for wrong in ({"seeds": 1}, {"steps": 0}, {"group_size": 1}, {"learning_rate": 0.0}, {"noise": -1.0}):
        with pytest.raises(ValueError, match="experiment: expected"):
            ExperimentConfig(**wrong)  # type: ignore[arg-type]
