"""Matplotlib figures as files: whole or not at all, and without a display."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

matplotlib.use("Agg")  # files only: works without a display
import matplotlib.pyplot as plt


def save_figure(path: Path, figure: Figure, dpi: int) -> Path:
    """Write a PNG beside and rename, and close the figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp.png")
    figure.savefig(beside, dpi=dpi)
    plt.close(figure)
    beside.rename(path)
    return path
