"""What the runs of a task cost, how much of their batches was imagined, and what each link of the loop costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from benchmarks.ceiling import NAMES, Result, area, in_order, paired
from rl.config import CONFIG_DIR
from rl.statistics import pooled

ARMS = CONFIG_DIR / "arm"
PARTS = 5  # of a run, for which the table gives the share
LINKS = (  # what is changed, the arm with it, the arm without
    ("the whole loop on video, against plain learning", "full", "hil_serl"),
    ("a tenth of the clips carried out, as anchors that calibrate", "full_anchored", "full"),
    ("labels: the simulator's truth", "oracle_labels", "full"),
    ("labels, frames and readings: all true, so no gates of trust", "oracle_paced", "full"),
    (
        "frames and readings: true, with true labels before and after, no gate",
        "oracle_paced",
        "oracle_labels",
    ),
    ("pacing: none", "no_schedule", "full"),
    ("pacing and selection: none", "naive", "full"),
    (
        "all true: pacing, selection and replays taken away; its own clip length",
        "oracle_policy",
        "oracle_paced",
    ),
    ("all true and everything open", "oracle_policy", "full"),
)


def accounts(arms: Mapping[str, Mapping[int, Result]]) -> str:
    """One line per arm as it is configured today: how its runs ended and what they cost, as means over seeds.

    Success is of all final episodes of all seeds, with its Wilson interval; `-` where a result does not tell.
    """
    lines = [
        "| synthetic data | seeds | final success (95%) | updates | minutes | corrections | imagined | admitted | used "
        f"| share, run in {PARTS} parts |",
        "|" + "---|" * 10,
    ]
    for arm in in_order([name for name in arms if (ARMS / f"{name}.yaml").exists()]):
        runs = list(arms[arm].values())
        ends = pooled((r["final_success"], r["eval_episodes"]) for r in runs)
        cells = [
            NAMES.get(arm, arm),
            f"{len(runs)}",
            f"{ends.rate:.0%} ({ends.low:.0%} to {ends.high:.0%})",
            *(f"{np.mean([r[key] for r in runs]):.0f}" for key in ("updates", "minutes")),
            f"{np.mean([r['correction_rate'] for r in runs]):.0%}",
            *(f"{np.mean([r[key] for r in runs]):.0f}" for key in ("generated", "admitted", "used")),
            shares(runs),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def shares(runs: Sequence[Result]) -> str:
    """The imagined share of a batch in each part of a run, mean over the runs that kept its trace."""
    traces = [run["share_trace"] for run in runs if run.get("share_trace")]
    if not traces:
        return "-"
    told = np.array([means_in_parts(trace) for trace in traces])
    return " ".join(f"{value:.2f}".removeprefix("0") for value in told.mean(0))


def means_in_parts(trace: Sequence[Mapping[str, float]]) -> list[float]:
    """Mean share in each of PARTS equal spans of updates; that of the last measurement before where a span has none."""
    updates = np.array([point["updates"] for point in trace], float)
    ratio = np.array([point["ratio"] for point in trace], float)
    edges = np.linspace(0.0, updates[-1], PARTS + 1)
    means: list[float] = []
    for low, high in pairwise(edges):
        within = ratio[(updates > low) & (updates <= high)]
        means.append(float(within.mean()) if within.size else (means[-1] if means else float(ratio[0])))
    return means


def links(arms: Mapping[str, Mapping[int, Result]]) -> str:
    """One line per link that was replaced: the area with it less that without, paired over the seeds both have."""
    lines = ["| replaced | arms | seeds | area gained (t) |", "|" + "---|" * 4]
    for what, after, before in LINKS:
        both = sorted(set(arms.get(after, {})) & set(arms.get(before, {})))
        if both:
            gained = [area(arms[after][seed]) - area(arms[before][seed]) for seed in both]
            lines.append(f"| {what} | `{after}` - `{before}` | {len(both)} | {paired(gained)} |")
    return "\n".join(lines) if len(lines) > 2 else ""
