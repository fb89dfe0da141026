"""`groundhog calibration-demo`: results file, picture and table; a place that cannot be written is one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from reward_model.calibration.demo.report import BEGIN, END
from rl import calibration_demo, cli

QUICK = ["experiment.seeds=2", "experiment.steps=3"]


@pytest.fixture(autouse=True)
def graded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What running them shows is tested with the grader; here it takes too long."""
    monkeypatch.setattr(calibration_demo, "run_unit_tests", lambda programs: np.tri(20, dtype=bool))


def test_results_picture_and_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "docs" / "calibration.md"
    page.parent.mkdir()
    page.write_text(f"{BEGIN}\n{END}\n")
    out = tmp_path / "results" / "calibration_demo.json"
    assert cli.main(["calibration-demo", *QUICK, f"out={out}", f"docs_dir={page.parent}"]) == 0
    result = json.loads(out.read_text())
    assert result["name"] == "calibration_demo"
    assert result["command"].startswith("groundhog calibration-demo experiment.seeds=2")
    assert len(result["rows"]) == 12 and {row["real_queries"] for row in result["rows"]} == {0, 24, 240}
    assert {"judge", "route", "seeds", "final_true_reward", "ci_low", "ci_high"} <= set(result["rows"][0])
    assert (page.parent / "calibration_demo.png").exists()
    assert (
        "| reversed | anchored |" in page.read_text() and "| reversed | anchored |" in capsys.readouterr().out
    )


def test_a_place_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert cli.main(["calibration-demo", *QUICK, f"out={blocked}/x.json", f"docs_dir={tmp_path}"]) == 2
    assert "choose another out=<file> or docs_dir=<directory>" in capsys.readouterr().err
