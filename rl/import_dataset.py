"""`groundhog import-dataset`: a LeRobot dataset (v3.0, v2.1) becomes a replay store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from rl import command
from rl.config import load
from rl.replay.lerobot.config import ImportConfig
from rl.replay.lerobot.importer import import_dataset


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("import-dataset", argv, _import)


def _import(overrides: list[str]) -> int:
    config = load("import-dataset", overrides)
    assert isinstance(config, ImportConfig)
    report = import_dataset(
        Path(config.path), Path(config.out), config.mapping, repair=config.repair, episodes=config.episodes
    )
    console = Console()
    for line in report.describe():
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    console.print(f"store in {config.out}; look at it with: groundhog show path={config.out}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
