"""What an evaluation or an audit of a world model leaves: tables, rows as JSON, contact sheet and film."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from rl import provenance
from rl.config import ConfigError
from rl.pictures import save_film, save_png, strip
from robot.types import Clip
from worldmodel.evaluate import Report
from worldmodel.lpips import Lpips

Row = dict[str, Any]
COLUMNS = 12  # moments of a clip in the contact sheet
CONTRAST = 2  # by which differences are shown stronger


def score_table(rows: Sequence[Row]) -> Table:
    """One line per view and horizon: each metric of the model, and of the last frame copied in brackets."""
    table = Table(title_justify="left")
    for name in ("view", "px", "ahead", "PSNR dB", "gain dB", "SSIM", "LPIPS", "sharpness", "clips"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row["view"],
            str(row["px"]),
            f"{row['horizon_s']:g} s",
            *(_pair(row, "psnr", 2), _interval(row, "psnr_gain")),
            *(_pair(row, "ssim", 3), _pair(row, "lpips", 3)),
            _number(row["sharpness"], 2),
            f"{row['clips']} of {row['episodes']} episodes",
        )
    return table


def audit_table(rows: Sequence[Row], hz: float) -> Table:
    """One line per kind of branch: how well what was imagined matches what was executed, and how far ahead."""
    table = Table(title_justify="left")
    for name in (
        "actions",
        "PSNR dB (copied)",
        "gain dB",
        "trusted for",
        "risk/error",
        "astray",
        "followed",
        "n",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row["kind"],
            _pair(row, "psnr", 2),
            _interval(row, "psnr_gain"),
            f"{row['horizon_cap']} of {row['steps']} steps ({row['horizon_cap'] / hz:.1f} s)",
            _number(row["risk_correlation"], 2),
            f"{_number(row['deviation_mm'], 1)} mm",
            f"{row['followed']:.0%}",
            f"{row['branches']} of {row['episodes']} episodes",
        )
    return table


def _pair(row: Row, name: str, digits: int) -> str:
    return f"{_number(row[name], digits)} ({_number(row[f'copy_{name}'], digits)})"


def _interval(row: Row, name: str) -> str:
    middle, low, high = (row[key] for key in (name, f"{name}_low", f"{name}_high"))
    spread = "" if low is None else f" [{low:+.2f}, {high:+.2f}]"
    return "n/a" if middle is None else f"{middle:+.2f}{spread}"


def _number(value: float | None, digits: int) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"


def resolution_note(report: Report, lpips: Lpips | None) -> str:
    """At which size the metrics were taken; LPIPS enlarges small frames."""
    notes = []
    for view, scores in report.views.items():
        height, width = scores.size
        compared = (height, width) if lpips is None else lpips.compared_size(height, width)
        enlarged = f" (LPIPS enlarged to {compared[1]}x{compared[0]})" if compared != (height, width) else ""
        notes.append(f"{view} {width}x{height} px{enlarged}")
    return ", ".join(notes)


def save_pictures(folder: Path, clip: Clip, report: Report, count: int, hz: float) -> list[Path]:
    """`imagined.png` and `imagined.mp4`: of `count` clips, for each view real, imagined and their difference.

    The sheet has one row for each of these and the clips below each other; the film shows them side by side, one
    clip after the other. Differences are twice as strong as they are.
    """
    chosen = np.unique(np.linspace(0, len(clip) - 1, count).round().astype(int))
    shown = [_beside(clip, report, int(index)) for index in chosen]
    sheet = np.concatenate([strip(pictures, min(COLUMNS, report.steps)) for pictures in shown])
    film = {name: np.concatenate([pictures[name] for pictures in shown]) for name in shown[0]}
    try:
        return [
            save_png(folder / "imagined.png", sheet),
            save_film(folder / "imagined.mp4", film, fps=max(1, round(hz))),
        ]
    except OSError as error:
        raise ConfigError(
            f"{folder}: cannot write there ({error.strerror}); choose another out=<directory>"
        ) from error


def _beside(clip: Clip, report: Report, index: int) -> Mapping[str, NDArray[np.uint8]]:
    pictures: dict[str, NDArray[np.uint8]] = {}
    for view, frames in report.imagined.items():
        real = clip.images[view][index, clip.history + 1 :]
        difference = np.abs(real.astype(np.int16) - frames[index]) * CONTRAST
        pictures |= {
            f"{view} real": real,
            f"{view} imagined": frames[index],
            f"{view} difference": difference.clip(0, 255).astype(np.uint8),
        }
    return pictures


def merge_rows(
    path: Path, head: dict[str, Any], rows: Sequence[Row], replaces: Callable[[Row], bool]
) -> None:
    """Write a results file with `rows` in place of those that `replaces` says yes to; others stay, in front."""
    kept: list[Row] = []
    if path.exists():
        try:
            kept = [row for row in json.loads(path.read_text())["rows"] if not replaces(row)]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path}: no results file ({error}); choose another results=<file>") from error
    provenance.write(path, head, [*kept, *rows])
