"""`groundhog bench`: tasks x arms x seeds, resumable, one JSON per run, then the table and the learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from rl import command
from rl.bench_report import write_bench_report
from rl.bench_runs import BenchRun, plan_runs, run_all
from rl.config import load
from rl.schemas import BenchConfig


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("bench", argv, _bench)


def _bench(overrides: list[str]) -> int:
    config = load("bench", overrides)
    assert isinstance(config, BenchConfig)
    console = Console()
    failed: list[BenchRun] = []
    if not config.report:
        runs = plan_runs(config)
        todo = [run for run in runs if not run.result.exists()]
        console.print(f"{len(runs)} runs, {len(runs) - len(todo)} of them have a result", highlight=False)
        failed = run_all(
            todo, config.parallel, lambda text: console.print(text, highlight=False, soft_wrap=True)
        )
    table = write_bench_report(Path(config.results_dir), Path(config.docs_dir))
    console.print(f"table and curves in {table}", soft_wrap=True)
    for run in failed:
        console.print(f"failed: {run.name}; see {run.log}", soft_wrap=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
