"""What an ablation leaves behind: summary.json, a Markdown table and one picture, from the results that there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl import provenance
from rl.ablation.config import AblateConfig
from rl.ablation.pictures import draw_page
from rl.ablation.ranking import MEASURES, SUCCESS, Measured, mean_over_seeds, rank_row
from rl.ablation.recording import Recording
from rl.ablation.results import ArmResults, collect, online_success, row_of
from rl.ablation.runs import PACKAGES, AblationRun, out_dir


def write_ablation_report(
    recording: Recording,
    config: AblateConfig,
    runs: Sequence[AblationRun],
    command: str,
) -> list[Path]:
    """Write below `out` what the finished runs say; returns the files."""
    arms = collect(((run.arm, run.result) for run in runs), online_success(config, recording))
    if not arms:
        return []
    out = out_dir(config)
    rows = [row_of(arm) for arm in arms]
    ranks = _ranks(arms)
    head = provenance.header("ablate", command, PACKAGES) | {
        "run": str(recording.run.path),
        "task": recording.config.robot.task,
        "recorded_env_steps": recording.env_steps,
        "recorded_minutes": recording.minutes,
        "recorded_robot_minutes": recording.env_steps / recording.config.robot.control_hz / 60,
        "cpu_minutes": sum(row["cpu_minutes"] for row in rows),
        "ranks": ranks,
    }
    summaries = [out / "summary.json", *([Path(config.summary)] if config.summary else [])]
    for path in summaries:
        provenance.write(path, head, rows)
    page = out / "table.md"
    page.write_text(table(rows) + "\n\n" + rank_table(ranks) + "\n")
    picture = draw_page(out / "ablation.png", f"{recording.run.path.name}: {head['task']}", arms, rows)
    return [*summaries, page, picture]


def _ranks(arms: Sequence[ArmResults]) -> dict[str, list[Measured]]:
    """Of every measure, against the success of the replayed policies and against that of the online runs."""
    replayed = {
        arm.arm: value for arm in arms if (value := mean_over_seeds(arm.measured, SUCCESS.read)) is not None
    }
    online = {arm.arm: arm.online["success"] for arm in arms if arm.online is not None}
    ranks: dict[str, list[Measured]] = {}
    for name, truth in (("replayed", replayed), ("online", online)):
        asked = MEASURES if name == "replayed" else (*MEASURES, SUCCESS)
        if truth:
            ranks[name] = [
                rank_row(
                    measure, {arm.arm: mean_over_seeds(arm.measured, measure.read) for arm in arms}, truth
                )
                for measure in asked
            ]
    return ranks


COLUMNS = (
    ("arm", "arm", "{}"),
    ("seeds", "seeds", "{:.0f}"),
    ("minutes", "minutes", "{:.1f}"),
    ("of one core", "cpu_minutes", "{:.1f}"),
    ("real transitions", "real_transitions", "{:.0f}"),
    ("TD error", "td_error", "{:.3f}"),
    ("Q - return", "q_bias", "{:+.3f}"),
    ("Q rank", "q_rank", "{:.2f}"),
    ("V - return", "overestimation", "{:+.3f}"),
    ("V impossible", "impossible_share", "{:.0%}"),
    ("to corrections", "corrections_error", "{:.3f}"),
    ("to successes", "successes_error", "{:.3f}"),
    ("label precision", "label_precision", "{:.2f}"),
    ("label recall", "label_recall", "{:.2f}"),
    ("admitted", "admitted", "{:.0f}"),
    ("ratio", "ratio_mean", "{:.2f}"),
)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per arm; a column of which nothing is known is left out."""
    shown = [c for c in COLUMNS if any(row[c[1]] is not None for row in rows)]
    titles = [title for title, _, _ in shown] + ["fitted Q", "true success", "online"]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for row in rows:
        cells = ["-" if row[key] is None else form.format(row[key]) for _, key, form in shown]
        cells.append(_interval(row["fqe"], row["fqe_low"], row["fqe_high"], "{:.2f}"))
        cells.append(_interval(row["true_success"], row["wilson_low"], row["wilson_high"], "{:.0%}"))
        seen = row["online"] or {}
        cells.append(_interval(seen.get("success"), seen.get("low"), seen.get("high"), "{:.0%}"))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _interval(value: float | None, low: float | None, high: float | None, form: str) -> str:
    if value is None or low is None or high is None:
        return "-"
    return f"{form.format(value)} ({form.format(low)}-{form.format(high)})"


def rank_table(ranks: Mapping[str, Sequence[Measured]]) -> str:
    """One line per measure: rank correlations with the success of the replayed policies and of the online runs."""
    titles = {measure.key: measure.title for measure in (*MEASURES, SUCCESS)}
    lines = ["| measure | success of | arms | Spearman | Kendall |", "|" + "---|" * 5]
    for truth, rows in ranks.items():
        for row in rows:
            cells = ["-" if row[k] is None else f"{row[k]:+.2f}" for k in ("spearman", "kendall")]
            lines.append(f"| {titles[row['measure']]} | {truth} | {row['arms']} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)
