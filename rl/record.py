"""`groundhog record`: demonstrations by the scripted expert or by hand, written step by step into a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from rl import command
from rl.config import RecordConfig, load
from rl.demonstrations import open_writer, record_demonstrations
from rl.runtime.interrupt import InterruptFlag


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("record", argv, _record)


def _record(overrides: list[str]) -> int:
    config = load("record", overrides)
    assert isinstance(config, RecordConfig)
    console = Console()
    interrupted = InterruptFlag()
    out = Path(config.out)
    try:
        with open_writer(out, config.robot) as writer:
            recorded = record_demonstrations(
                writer, config.robot, config.demos, config.correction.kind, seed=config.seed, stop=lambda: interrupted.seen
            )
            for outcome in track(recorded, "recording", total=None, console=console, transient=True):
                console.print(outcome.describe())
    finally:
        interrupted.restore()
    console.print(f"demonstrations in {out}; use them with: groundhog train demos.path={out}")
    return 130 if interrupted.seen else 0


if __name__ == "__main__":
    raise SystemExit(main())
