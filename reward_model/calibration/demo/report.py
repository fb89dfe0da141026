"""The experiment as a person reads it: a Markdown table and a picture, from the rows of the results file alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # files only: works without a display
import matplotlib.pyplot as plt

from reward_model.calibration.demo.experiment import Route
from reward_model.calibration.demo.judges import JudgeKind

BEGIN, END = "<!-- calibration table: begin -->", "<!-- calibration table: end -->"
COLOURS = {Route.ALL_REAL: "C2", Route.ALL_JUDGE: "C3", Route.ANCHORED: "C0", Route.PUBLISHED: "C1"}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per judge and route."""
    lines = [
        "| judge | route | final true reward (95% interval) | real queries | gate, mean over steps |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        gate = f"{row['gate_mean']:.2f}" if row["route"] == Route.ANCHORED.value else "-"
        lines.append(
            f"| {row['judge']} | {row['route']} | {row['final_true_reward']:.3f} "
            f"({row['ci_low']:.3f}-{row['ci_high']:.3f}) | {row['real_queries']} | {gate} |"
        )
    return "\n".join(lines)


def write_table(page: Path, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Replace the table between its markers in a Markdown page; False where there is no such page."""
    text = page.read_text() if page.exists() else ""
    if BEGIN not in text or END not in text:
        return False
    before, _, rest = text.partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{rest.partition(END)[2]}")
    return True


def draw(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Learning curves per judge and, beside them, what each route ends with and what it asked for; returns `path`."""
    figure, axes = plt.subplots(1, 4, figsize=(14, 3.4), layout="constrained", width_ratios=[1, 1, 1, 1.2])
    for axis, judge in zip(axes, JudgeKind, strict=False):
        for row in rows:
            if row["judge"] == judge.value:
                axis.plot(row["curve"], color=COLOURS[Route(row["route"])], label=row["route"])
                last = len(row["curve"]) - 1
                axis.plot([last, last], [row["ci_low"], row["ci_high"]], color="k", lw=2)
        axis.set(title=f"{judge.value} judge", xlabel="steps", ylim=(0, 1.02))
    axes[0].set_ylabel("expected true reward")
    axes[0].legend(fontsize=8)
    markers = dict(zip((kind.value for kind in JudgeKind), "os^", strict=True))
    for row in rows:
        error = [[row["final_true_reward"] - row["ci_low"]], [row["ci_high"] - row["final_true_reward"]]]
        axes[3].errorbar(
            row["real_queries"],
            row["final_true_reward"],
            error,
            fmt=markers[row["judge"]],
            color=COLOURS[Route(row["route"])],
        )
    for name, marker in markers.items():
        axes[3].plot([], [], marker, color="k", label=name)
    axes[3].set(title="what it costs", xlabel="real queries", ylim=(0, 1.02))
    axes[3].legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
