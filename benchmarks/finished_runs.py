"""The command line of benchmarks that look into finished runs."""

from __future__ import annotations

import argparse
from pathlib import Path


def asked(module: str, doc: str | None, clips: int) -> tuple[list[Path], int, str]:
    """The runs that `python -m benchmarks.<module>` is asked about, how many clips of each, and the command.

    clips: where nothing else is said. The command names runs below runs/closed_loop/runs, wherever they lie.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--clips", type=int, default=clips)
    arguments = parser.parse_args()
    runs = " ".join("/".join(("runs/closed_loop/runs", *path.parts[-3:])) for path in arguments.runs)
    command = f"python -m benchmarks.{module} {runs} --clips {arguments.clips}"
    return arguments.runs, arguments.clips, command
