"""The bench as a person reads it: a Markdown table and learning curves with bands, from the result files alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from rl.bench_runs import read_results, seeds_cell
from rl.figures import save_figure
from rl.pages import write_between
from rl.statistics import pooled

Group = tuple[str, str, str]  # task, obs, arm
BEGIN, END = "<!-- bench table: begin -->", "<!-- bench table: end -->"


def write_bench_report(results_dir: Path, docs_dir: Path) -> Path:
    """Write docs/results.md's table (between its marks) and docs/bench/<task>_<obs>.png; returns the page.

    A new page where there is none; raises ValueError where one lacks a mark.
    """
    groups: dict[Group, list[dict[str, Any]]] = defaultdict(list)
    for result in read_results(results_dir):
        groups[result["task"], result["obs"], result["arm"]].append(result)
    page = docs_dir / "results.md"
    if not page.exists():
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"# Results\n\n{BEGIN}\n{END}\n")
    write_between(page, BEGIN, END, table(groups))
    for task, obs in sorted({(task, obs) for task, obs, _ in groups}):
        arms = {arm: runs for (t, o, arm), runs in groups.items() if (t, o) == (task, obs)}
        draw_curves(docs_dir / "bench" / f"{task}_{obs}.png", f"{task}, {obs}", arms)
    return page


def table(groups: Mapping[Group, Sequence[Mapping[str, Any]]]) -> str:
    """One line per task, observation and arm: pooled success with its interval, and what it cost."""
    lines = [
        "| task | obs | arm | seeds | success (95% interval) | per seed | sustained at env steps | env steps | updates "
        "| minutes | cycle (steps) | corrected | correction s |",
        "|" + "---|" * 13,
    ]
    for (task, obs, arm), runs in sorted(groups.items()):
        success = pooled((r["final_success"], r["eval_episodes"]) for r in runs)
        cells = [
            task,
            obs,
            arm,
            seeds_cell(runs),
            f"{success.rate:.1%} ({success.low:.0%}-{success.high:.0%})",
            " / ".join(f"{r['final_success']:.0%}" for r in runs),
            " / ".join(
                "-" if r["sustained_env_steps"] is None else str(r["sustained_env_steps"]) for r in runs
            ),
            _mean(runs, "env_steps", "{:.0f}"),
            _mean(runs, "updates", "{:.0f}"),
            _mean(runs, "minutes", "{:.1f}"),
            _mean(runs, "cycle_steps", "{:.1f}"),
            _mean(runs, "correction_rate", "{:.1%}"),
            _mean(runs, "correction_seconds", "{:.0f}"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw_curves(path: Path, title: str, arms: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Success against env steps, updates and minutes: seeds thin, their mean thick, a band from lowest to highest."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained", sharey=True)
    for colour, (arm, runs) in enumerate(sorted(arms.items())):
        for axis, key in zip(axes, ("env_steps", "updates", "minutes"), strict=True):
            curves = [_curve(r, key) for r in runs if len(r["curve"]) > 1]
            if not curves:
                final = [r["final_success"] for r in runs]
                axis.axhline(float(np.mean(final)), color=f"C{colour}", ls="--", label=arm)
                axis.axhspan(min(final), max(final), color=f"C{colour}", alpha=0.1)
                continue
            for x, y in curves:
                axis.plot(x, y, color=f"C{colour}", lw=0.7, alpha=0.6)
            grid = np.linspace(0, min(x[-1] for x, _ in curves), 60)
            stack = np.stack([np.interp(grid, x, y) for x, y in curves])
            axis.plot(grid, stack.mean(0), color=f"C{colour}", lw=2, label=arm)
            axis.fill_between(grid, stack.min(0), stack.max(0), color=f"C{colour}", alpha=0.15)
    for axis, label in zip(axes, ("environment steps", "updates", "minutes"), strict=True):
        axis.set(xlabel=label, ylim=(-0.03, 1.05))
    axes[0].set(ylabel="success, no corrections")
    axes[0].legend(loc="lower right", fontsize=8)
    figure.suptitle(title)
    save_figure(path, figure, dpi=90)


def _curve(result: Mapping[str, Any], key: str) -> tuple[list[float], list[float]]:
    return [float(p[key]) for p in result["curve"]], [float(p["success"]) for p in result["curve"]]


def _mean(runs: Sequence[Mapping[str, Any]], key: str, form: str) -> str:
    values = [r[key] for r in runs if r[key] is not None]
    return form.format(float(np.mean(values))) if values else "-"
