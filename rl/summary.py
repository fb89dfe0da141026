"""Summary of a run: summary.json with every number and a picture of the arm learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from rl.figures import save_figure
from rl.imagined_summary import draw_queues, draw_share, imagined_anything
from rl.metrics import SESSION, read_metrics
from rl.pictures import strip
from rl.replay.reader import StoreReader
from robot.types import Episode, Image

Records = list[dict[str, Any]]
_FAILURES = "final/failures/"
SUSTAINED = (0.95, 3)  # this success or better at so many evaluations in a row


def sustained_env_steps(curve: Sequence[Mapping[str, Any]]) -> int | None:
    """The env steps that complete the first such series of evaluations, None where there is none."""
    level, needed = SUSTAINED
    row = 0
    for point in curve:
        row = row + 1 if point["success"] >= level else 0
        if row == needed:
            return int(point["env_steps"])
    return None


def bc_line(records: Records) -> float | None:
    """Success before the robot's first step, which a run with a behaviour-cloning warm start has to beat."""
    for name in ("eval/success", "final/success"):
        for record in records:
            if record.get(name) is not None and record["env_steps"] == 0:
                return float(record[name])
    return None


def summarise(metrics_path: Path, real: Path, control_hz: float, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a run: evaluation curve, final success, corrections, counts, minutes."""
    records: Records = read_metrics(metrics_path)
    minutes = session_minutes(records)
    curve = [
        {
            "env_steps": int(r["env_steps"]),
            "updates": int(r["updates"]),
            "minutes": spent,
            "success": r["eval/success"],
            "mean_steps": r["eval/mean_steps"],
        }
        for r, spent in zip(records, minutes, strict=True)
        if "eval/success" in r
    ]
    stored = StoreReader(real).episodes()
    corrected = sum(info.corrections for info in stored)
    env_steps = sum(info.num_transitions for info in stored)
    finals = (r for r in reversed(records) if "final/success" in r and r["env_steps"] >= env_steps)
    final = next(finals, {})  # one from before the run was continued says nothing of it now
    episodes = [r for r in records if "env/success" in r]
    losses = [r for r in records if r.get("learner/q_mean") is not None]
    failures = {
        name.removeprefix(_FAILURES): int(n) for name, n in final.items() if name.startswith(_FAILURES)
    }
    return {
        **facts,
        "bc_line": bc_line(records) if facts["bc_updates"] else None,
        "final_success": final.get("final/success"),
        "wilson_low": final.get("final/wilson_low"),
        "wilson_high": final.get("final/wilson_high"),
        "eval_episodes": final.get("final/episodes"),
        "cycle_steps": final.get("final/cycle_steps"),
        "failures": failures,
        "policy_version": final.get("final/policy_version"),
        "env_steps": env_steps,
        "sustained_env_steps": sustained_env_steps(curve),
        "correction_rate": corrected / max(1, env_steps),
        "correction_seconds": round(corrected / control_hz, 1),
        "updates": max((int(r["updates"]) for r in records), default=0),
        "episodes": len(stored),
        "minutes": minutes[-1] if minutes else 0.0,
        "correction_rate_first": _mean(episodes[: len(episodes) // 4 or 1], "actor/correction_rate"),
        "correction_rate_last": _last(episodes, "actor/correction_rate"),
        "overruns": _last(episodes, "time/overruns"),
        "period_p99_ms": _last(episodes, "time/period_p99_ms"),
        "entropy": _last(losses, "learner/entropy"),
        "value_bias": _last(records, "learner/value_bias"),
        "value_correlation": _last(records, "learner/value_correlation"),
        "generated": int(_last(records, "world_model/generated") or 0),
        "admitted": int(_last(records, "world_model/admitted") or 0),
        "used": int(_last(records, "selection/used") or 0),
        "ratio_mean": _mean(losses, "selection/ratio") or 0.0,
        "curve": curve,
    }


def draw(
    path: Path,
    title: str,
    metrics_path: Path,
    real: Path,
    film: Mapping[str, list[Image]],
    bc_line: float | None,
    relived: Image | None = None,
) -> Path:
    """One picture: learning curve and corrections, the diagnostics below, then an early and the final episode.

    Where the run imagines, also its share, gates and queues, and `relived`, real clips beside imagined ones.
    """
    records: Records = read_metrics(metrics_path)
    early = _early_episode(real)
    late = {view: np.stack(frames) for view, frames in film.items() if frames}
    rows = [
        (name, s)
        for name, s in (
            ("first episode", _strip(early)),
            ("final policy", _final(late)),
            ("relived: what really followed, and what was imagined", relived),
        )
        if s is not None
    ]
    imagines = imagined_anything(records)
    heights = [3.0, 1.8] + [2.0] * imagines + [12.0 * s.shape[0] / s.shape[1] for _, s in rows]
    figure = plt.figure(figsize=(12, 0.4 + sum(heights)), layout="constrained")
    grid = figure.add_gridspec(len(heights), 6, height_ratios=heights)
    _curves(figure.add_subplot(grid[0, :3]), figure.add_subplot(grid[0, 3:]), records, bc_line)
    for i, draw_panel in enumerate((_lengths, _entropy, _values)):
        draw_panel(figure.add_subplot(grid[1, 2 * i : 2 * i + 2]), records)
    if imagines:
        draw_share(figure.add_subplot(grid[2, :3]), records)
        draw_queues(figure.add_subplot(grid[2, 3:]), records)
    for i, (name, picture) in enumerate(rows):
        axes = figure.add_subplot(grid[i + 2 + imagines, :])
        axes.imshow(picture)
        axes.set_title(name, loc="left", fontsize=10)
        axes.axis("off")
    figure.suptitle(title)
    return save_figure(path, figure, dpi=100)


def _curves(left: Any, right: Any, records: Records, bc_line: float | None) -> None:
    evaluations = [r for r in records if "eval/success" in r]
    finals = [r for r in records if "final/success" in r]
    episodes = [r for r in records if "env/success" in r]
    left.plot(
        [r["env_steps"] for r in evaluations],
        [r["eval/success"] for r in evaluations],
        "o-",
        label="policy, no corrections",
    )
    for r in finals:
        low = max(0.0, r["final/success"] - r["final/wilson_low"])
        high = max(0.0, r["final/wilson_high"] - r["final/success"])
        left.errorbar([r["env_steps"]], [r["final/success"]], yerr=[[low], [high]], fmt="s", color="C3", capsize=4,
                      label=f"final, {r['final/episodes']:.0f} episodes (95% interval)")  # fmt: skip
    if bc_line is not None:
        left.axhline(bc_line, color="grey", ls="--", label="before the first step (behaviour cloning)")
    left.set(xlabel="environment steps", ylabel="success", ylim=(-0.03, 1.05), title="learning curve")
    left.legend(fontsize=8, loc="lower right")
    right.plot([r["env_steps"] for r in episodes], [r["actor/correction_rate"] for r in episodes], color="C1")
    right.set(
        xlabel="environment steps", ylabel="share of corrected steps", ylim=(-0.03, 1.05), title="corrections"
    )


def _lengths(axes: Any, records: Records) -> None:
    _plot(axes, records, "eval/mean_steps", "o-", "all episodes")
    _plot(axes, records, "eval/cycle_steps", "o--", "successes")
    axes.set(ylabel="control steps", ylim=(0, None), title="length of evaluation episodes")
    axes.legend(fontsize=8)


def _entropy(axes: Any, records: Records) -> None:
    _plot(axes, records, "learner/entropy", "-", "")
    axes.set(ylabel="nats", title="entropy of the policy")


def _values(axes: Any, records: Records) -> None:
    _plot(axes, records, "learner/value_bias", "o-", "bias")
    _plot(axes, records, "learner/value_correlation", "o--", "correlation")
    axes.axhline(0, color="grey", lw=0.8)
    axes.set(ylim=(-1.05, 1.05), title="value against return")
    axes.legend(fontsize=8)


def _plot(axes: Any, records: Records, name: str, style: str, label: str) -> None:
    """One metric against the environment steps."""
    points = [(r["env_steps"], r[name]) for r in records if r.get(name) is not None]
    axes.plot([x for x, _ in points], [y for _, y in points], style, ms=3, label=label)
    axes.set_xlabel("environment steps")
    axes.title.set_fontsize(10)


def _early_episode(real: Path) -> Episode | None:
    reader = StoreReader(real)
    episodes = reader.episodes()
    return reader.episode(episodes[0].episode) if episodes else None


def _strip(episode: Episode | None) -> Image | None:
    if episode is None or not episode.images:
        return None
    return strip(episode.images, 12, episode.intervened.tolist())


def _final(frames: Mapping[str, NDArray[np.uint8]]) -> Image | None:
    return strip(frames, 12) if frames else None


def session_minutes(records: Records) -> list[float]:
    """Minutes of work up to each record; the time between two sessions of a resumed run does not count."""
    minutes, total, before = [], 0.0, None
    for record in records:
        if before is not None and SESSION not in record:
            total += max(0.0, float(record["time"]) - before)
        before = float(record["time"])
        minutes.append(round(total / 60, 3))
    return minutes


def _mean(records: Records, name: str) -> float | None:
    values = [r[name] for r in records if r.get(name) is not None]
    return float(np.mean(values)) if values else None


def _last(records: Records, name: str) -> float | None:
    return next((r[name] for r in reversed(records) if r.get(name) is not None), None)
