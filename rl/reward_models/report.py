"""What an evaluation of a reward model leaves: lines to read, rows as JSON, and false positives as clips to relabel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reward_model.evaluate import Report, ScoredClip, trials_of
from reward_model.labels import Thresholds
from rl.pictures import save_film
from rl.provenance import write_json
from robot.types import Label

LEAD_IN = 10  # frames of a saved clip before the one in question


def rows(reports: Sequence[Report], thresholds: Thresholds) -> list[dict[str, Any]]:
    """One JSON-able row per report, with the thresholds and the episodes that they rest on; None is unknown."""
    shared = {
        "threshold": thresholds.success,
        "failure_threshold": thresholds.failure,
        "threshold_failures": thresholds.negatives,
        "threshold_successes": thresholds.positives,
    }
    return [
        {name: _plain(value) for name, value in {**asdict(entry), **shared}.items() if name != "origin"}
        | {"source": entry.origin.value}
        for entry in reports
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 5) if math.isfinite(value) else None
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    return _plain(value.tolist()) if hasattr(value, "tolist") else value


def save_rows(path: Path, version: int, thresholds: Thresholds, reports: Sequence[Report]) -> None:
    """Write the report, beside and renamed."""
    content = {
        "reward_model_version": version,
        "thresholds": asdict(thresholds),
        "rows": rows(reports, thresholds),
    }
    write_json(path, content, indent=2)


def save_false_positives(folder: Path, scored: Sequence[ScoredClip], thresholds: Thresholds) -> int:
    """A film of each false success and false_positives.json, in which a person may change `label`; returns how many.

    Entries name the frames of the episode; generated clips have a film only, their frames lie in no store.
    """
    if thresholds.success is None:
        return 0
    entries = []
    wrong = [t for t in trials_of(scored) if not t.succeeded and t.score >= thresholds.success]
    for index, trial in enumerate(wrong):
        clip, last = trial.scored.clip, trial.end
        first = last - trial.scored.hold_frames + 1
        film = f"{index:03d}_{clip.origin.value}_{clip.episode.replace('/', '_')}.mp4"
        part = slice(max(0, first - LEAD_IN), last + 1)
        save_film(folder / film, {view: frames[part] for view, frames in clip.images.items()})
        entries.append(
            {
                "film": film,
                "source": clip.origin.value,
                "episode": clip.episode,
                "first": first,
                "last": last,
                "score": round(trial.score, 5),
                "label": Label.FAILURE.name.lower(),
            }
        )
    write_json(folder / "false_positives.json", {"clips": entries}, indent=2)
    return len(wrong)


def describe(reports: Sequence[Report], thresholds: Thresholds) -> str:
    """One line per task and origin; brackets hold 95% intervals, n/a where nothing was counted."""
    lines = [f"success from {_limit(thresholds.success)} on, failure up to {_limit(thresholds.failure)}"]
    for entry in reports:
        lines.append(
            f"{entry.task}, {entry.origin.value}: {entry.episodes} episodes, "
            f"AUC {_between(entry.auc, entry.auc_interval)}, "
            f"precision {_between(entry.precision, entry.precision_interval)}, "
            f"recall {_between(entry.recall, entry.recall_interval)}, "
            f"false positives {entry.false_positive_rate:.3f} (below {entry.fpr_upper95:.3f}), "
            f"unknown {entry.unknown:.1%}"
        )
    return "\n".join(lines)


def _limit(threshold: float | None) -> str:
    return "no value (too little evidence)" if threshold is None else f"{threshold:.3f}"


def _between(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.3f} ({interval[0]:.3f}-{interval[1]:.3f})" if math.isfinite(value) else "n/a"
