"""The picture of an ablation: each measure of every arm, and the measures against the arms' success."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from rl.ablation.results import ArmResults
from rl.figures import save_figure

BARS = (
    ("td_error", "TD error, held out"),
    ("q_bias", "Q - return"),
    ("q_rank", "rank correlation, Q and return"),
    ("overestimation", "V - return"),
    ("corrections_error", "distance from corrections"),
    ("successes_error", "distance from successes"),
    ("fqe", "fitted Q evaluation"),
    ("true_success", "true success"),
)


def draw_page(path: Path, title: str, arms: Sequence[ArmResults], rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write the picture beside and rename; bars with their intervals where they have some."""
    traced = [arm for arm in arms if any(result["synthetic"] for result in arm.measured)]
    figure, axes = plt.subplots(
        4 if traced else 3, 4, figsize=(14, 9 + 2.5 * bool(traced)), layout="constrained"
    )
    for axis, (key, name) in zip(axes[:2].flat, BARS, strict=True):
        _bars(axis, key, name, rows)
    for axis, key in zip(axes[2], ("td_error", "q_rank", "successes_error", "fqe"), strict=True):
        _against_success(axis, key, rows)
    if traced:
        _ratios(axes[3, 0], traced)
        for axis in axes[3, 1:]:
            axis.axis("off")
    figure.suptitle(title)
    return save_figure(path, figure, dpi=90)


def _bars(axis: Any, key: str, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    values = [np.nan if row[key] is None else row[key] for row in rows]
    axis.barh([row["arm"] for row in rows], values, color=[f"C{k}" for k in range(len(rows))], alpha=0.7)
    bounds = {"fqe": ("fqe_low", "fqe_high"), "true_success": ("wilson_low", "wilson_high")}.get(key)
    for place, row in enumerate(rows):
        if bounds is not None and row[bounds[0]] is not None:
            axis.plot([row[bounds[0]], row[bounds[1]]], [place, place], color="black", lw=1)
        if key == "true_success" and row["online"] is not None:
            axis.plot(row["online"]["success"], place, "D", color="black", ms=5)
    if key == "true_success" and any(row["online"] is not None for row in rows):
        name += " (diamond: online)"
    axis.axvline(0, color="grey", lw=0.8)
    axis.invert_yaxis()
    axis.set_title(name, fontsize=10)


def _against_success(axis: Any, key: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Filled: success of the replayed policy; hollow: of the online run of the same arm."""
    for place, row in enumerate(rows):
        if row[key] is None:
            continue
        if row["true_success"] is not None:
            axis.plot(row[key], row["true_success"], "o", color=f"C{place}")
        if row["online"] is not None:
            axis.plot(row[key], row["online"]["success"], "D", color=f"C{place}", mfc="none")
    axis.set(xlabel=dict(BARS)[key], ylim=(-0.03, 1.03))
    axis.set_ylabel("success (o replayed, diamond online)", fontsize=8)


def _ratios(axis: Any, arms: Sequence[ArmResults]) -> None:
    for place, arm in enumerate(arms):
        for measured in arm.measured:
            trace = (measured["synthetic"] or {}).get("ratio", [])
            axis.plot([x for x, _ in trace], [y for _, y in trace], color=f"C{place}", lw=0.8)
    axis.set(xlabel="environment steps", title="synthetic share")
