"""The reliability plot: what a reward model says against what happened, one line per task and origin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from reward_model.evaluate import Report
from reward_model.labels import Thresholds


def draw_reliability(path: Path, reports: Sequence[Report], thresholds: Thresholds) -> Path:
    """Write a PNG: observed success rate over held probability, and how many windows each bin has."""
    figure = Figure(figsize=(5.0, 6.0), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    upper.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for index, report in enumerate(reports):
        if not len(report.bins):
            continue
        prob, rate, count = report.bins.T
        name = f"{report.task}, {report.origin.value}: ECE {report.ece:.3f}"
        upper.plot(prob, rate, marker="o", color=f"C{index}", label=name)
        lower.plot(prob, count, marker="o", linestyle="", color=f"C{index}")
    for value, style in ((thresholds.failure, ":"), (thresholds.success, "--")):
        if value is not None:
            upper.axvline(value, color="0.4", linestyle=style, linewidth=1)
    upper.set(ylabel="observed success rate", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    upper.set_title("dotted: failure up to here; dashed: success from here on", fontsize=9)
    lower.set(xlabel="held success probability", ylabel="windows", yscale="log")
    if upper.get_legend_handles_labels()[0]:
        upper.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part.png")
    figure.savefig(beside, dpi=110)
    beside.replace(path)
    return path
