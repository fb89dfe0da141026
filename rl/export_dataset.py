"""`groundhog export-dataset`: a replay store becomes a LeRobot dataset v3.0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from rl import command
from rl.config import load
from rl.replay.lerobot.config import ExportConfig
from rl.replay.lerobot.exporter import export_dataset


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("export-dataset", argv, _export)


def _export(overrides: list[str]) -> int:
    config = load("export-dataset", overrides)
    assert isinstance(config, ExportConfig)
    report = export_dataset(
        Path(config.path),
        Path(config.out),
        config.encoding(),
        fps=config.fps,
        videos_from=Path(config.videos_from) if config.videos_from else None,
    )
    console = Console()
    for line in report.describe():
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    console.print(f"dataset in {config.out}", soft_wrap=True, markup=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
