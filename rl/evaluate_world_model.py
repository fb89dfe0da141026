"""`groundhog evaluate-world-model`: PSNR, SSIM, LPIPS on held-out clips, the last frame copied beside each."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from rl import command, provenance
from rl.config import load
from rl.replay.sampler import Split
from rl.world_models.config import EvaluateWorldModelConfig
from rl.world_models.data import ClipData
from rl.world_models.inputs import check_fits, find_lpips, opened, published
from rl.world_models.report import Row, merge_rows, resolution_note, save_pictures, score_table
from robot.types import Clip
from worldmodel.evaluate import evaluate
from worldmodel.following import action_following
from worldmodel.interface import WorldModel, WorldModelError

PACKAGES = ("numpy", "torch")
PROBE_CLIPS = 512  # real steps on which the probe of action following is fitted


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("evaluate-world-model", argv, _evaluate)


def _evaluate(overrides: list[str]) -> int:
    config = load("evaluate-world-model", overrides)
    assert isinstance(config, EvaluateWorldModelConfig)
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)  # tables in a file or a pipe keep their columns
    version = published(Path(config.model), config.device)
    model = version.model
    lpips, missing = find_lpips(config.lpips, config.device)
    rng = np.random.default_rng(config.seed)
    with opened(Path(config.data), config.mapping, config.holdout, all_episodes=config.all_episodes) as data:
        check_fits(model.spec, data.schema)
        steps = max(round(horizon * data.hz) for horizon in config.horizons)
        clip = data.held_out(config.clips, steps, model.spec.context_frames - 1, rng)
        report = evaluate(model, clip, lpips, config.convention)
        scores = _following(model, data, clip, rng) | {"risk_correlation": _plain(report.risk_correlation())}
        rows = report.rows(
            config.name or data.schema.task, config.model_name or version.kind, data.hz, config.horizons
        )
        hz = data.hz
    rows = [row | scores for row in rows]
    out = Path(config.out) if config.out else version.path.parent.parent / "evaluation"
    head = provenance.header(
        "world_model", shlex.join(["groundhog", "evaluate-world-model", *overrides]), PACKAGES
    )
    provenance.write(out / "evaluation.json", head | {"model": str(version.path)}, rows)
    if config.results:
        names = {(row["data"], row["model"]) for row in rows}
        merge_rows(Path(config.results), head, rows, lambda row: (row.get("data"), row.get("model")) in names)
    console.print(score_table(rows))
    for line in (
        missing,
        f"version {report.version}; in brackets the last frame copied; {resolution_note(report, lpips)}",
        f"action following {_shown(scores['following'])} of 1; "
        f"risk against error {_shown(scores['risk_correlation'])}, rank correlation within a step",
        *map(str, save_pictures(out, clip, report, config.pictures, hz)),
    ):
        if line:
            console.print(line, soft_wrap=True, highlight=False)
    return 0


def _following(model: WorldModel, data: ClipData, clip: Clip, rng: np.random.Generator) -> Row:
    """Action following, None where the data do not suffice to tell."""
    names = ("following", "following_correlation", "following_real_correlation")
    train = data.sampler(Split.TRAIN)
    train = train if train.size else data.sampler(Split.ALL)
    try:
        found = action_following(model, train.sample(PROBE_CLIPS, 1, rng), clip, rng)
    except WorldModelError:  # too few clips to tell, which is no verdict on the model
        return dict.fromkeys(names)
    values = (found.score, found.correlation, found.real_correlation)
    return dict(zip(names, map(_plain, values), strict=True))


def _plain(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


def _shown(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
