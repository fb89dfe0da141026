"""`groundhog calibration-demo`: what a judge costs that is never checked, and what a tenth of real tests puts right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from reward_model.calibration.demo.experiment import run_experiment
from reward_model.calibration.demo.grading import run_unit_tests
from reward_model.calibration.demo.programs import PROGRAMS
from reward_model.calibration.demo.report import draw, table, write_table
from rl import command
from rl.config import ConfigError, load
from rl.provenance import header, write
from rl.schemas import CalibrationDemoConfig


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("calibration-demo", argv, _calibration_demo)


def _calibration_demo(overrides: list[str]) -> int:
    config = load("calibration-demo", overrides)
    assert isinstance(config, CalibrationDemoConfig)
    console = Console()
    with console.status(f"running {len(PROGRAMS)} programs against their unit tests"):
        true = run_unit_tests(PROGRAMS).mean(axis=1)
    with console.status("learning along every route"):
        rows = [outcome.row() for outcome in run_experiment(config.experiment, true)]
    docs = Path(config.docs_dir)
    head = header(
        "calibration_demo", " ".join(["groundhog calibration-demo", *overrides]), ("numpy", "scipy")
    )
    try:
        write(Path(config.out), head, rows)
        picture = draw(docs / "calibration_demo.png", rows)
        write_table(docs / "calibration.md", rows)
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: cannot write there ({error.strerror}); "
            "choose another out=<file> or docs_dir=<directory>"
        ) from error
    console.print(table(rows), soft_wrap=True, highlight=False)
    console.print(f"picture {picture}", soft_wrap=True, highlight=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
