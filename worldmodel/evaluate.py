"""Evaluation on held-out clips: metrics per view and per step, the last frame copied beside each, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from robot.types import Array, Clip, Float32
from worldmodel.clips import split
from worldmodel.interface import Context, WorldModel, WorldModelError
from worldmodel.intervals import Estimate, clustered_mean
from worldmodel.lpips import Lpips
from worldmodel.metrics import Convention, FrameScores, score_frames

BATCH = 16  # clips imagined at once
METRICS = ("psnr", "ssim", "lpips")


@dataclass(frozen=True)
class ViewReport:
    """Scores of one view, each array (B, n): of the model, and of the last real frame copied."""

    size: tuple[int, int]  # (H, W) px at which PSNR and SSIM were taken
    model: FrameScores
    copy: FrameScores


@dataclass(frozen=True)
class Report:
    """How a model did on B held-out clips of n steps.

    views: by name. episode: (B,) of each clip, the unit of the intervals. valid: (B, n), False behind an episode's
    end; such frames count nowhere. risk: (B, n), the model's own. imagined: view -> (B, n, H, W, 3) uint8.
    """

    version: int
    views: Mapping[str, ViewReport]
    episode: NDArray[np.int64]
    valid: NDArray[np.bool_]
    risk: Float32
    imagined: Mapping[str, NDArray[np.uint8]]
    convention: Convention

    @property
    def steps(self) -> int:
        return int(self.valid.shape[1])

    def curve(self, view: str, metric: str, *, copied: bool = False) -> Array:
        """The metric at each step (n,), mean over the clips that last so long; NaN where none does or it is unknown."""
        values = self._values(view, metric, copied)
        if values is None:
            return np.full(self.steps, np.nan)
        return np.array(
            [float(values[ok, t].mean()) if ok.any() else math.nan for t, ok in enumerate(self.valid.T)]
        )

    def at(
        self, view: str, metric: str, step: int, rng: np.random.Generator, *, copied: bool = False
    ) -> Estimate:
        """The metric at `step`, counted from 1, with its interval."""
        values, ok = self._values(view, metric, copied), self.valid[:, step - 1]
        if values is None:
            return Estimate(math.nan, math.nan, math.nan)
        return clustered_mean(values[ok, step - 1], self.episode[ok], rng)

    def gain(self, view: str, step: int, rng: np.random.Generator) -> Estimate:
        """PSNR of the model minus that of the copied frame at `step`, paired clip by clip, in dB."""
        scores, ok = self.views[view], self.valid[:, step - 1]
        difference = (scores.model.psnr - scores.copy.psnr)[ok, step - 1]
        return clustered_mean(difference, self.episode[ok], rng)

    def mean(self, metric: str, steps: int, *, view: str | None = None, copied: bool = False) -> float:
        """The metric over steps 1..`steps`, of one view or over all of them; NaN where it is unknown."""
        curves = [self.curve(v, metric, copied=copied)[:steps] for v in ([view] if view else self.views)]
        return float(np.mean(curves))

    def risk_correlation(self) -> float:
        """Spearman's correlation of risk and squared error among frames of one step, mean over steps and views.

        Taken within a step because both grow with time, which says nothing. NaN for a constant risk.
        """
        found = []
        for scores in self.views.values():
            for t, ok in enumerate(self.valid.T):
                risk, error = self.risk[ok, t], -scores.model.psnr[ok, t]
                if ok.sum() > 2 and np.ptp(risk) > 0 and np.ptp(error) > 0:
                    found.append(float(spearmanr(risk, error).statistic))
        return float(np.mean(found)) if found else math.nan

    def rows(self, data: str, model: str, hz: float, horizons: Sequence[float]) -> list[dict[str, Any]]:
        """One row per view and horizon [s]: scores at the horizon, and their mean up to it; None is unknown.

        hz: steps per second of the data. Raises WorldModelError for a horizon that was not imagined.
        """
        rows = []
        for view in self.views:
            for horizon in horizons:
                step = round(horizon * hz)
                if not 1 <= step <= self.steps:
                    raise WorldModelError(
                        f"horizon {horizon:g} s: expected 1 to {self.steps} steps at {hz:g} Hz, got {step}"
                    )
                rows.append(
                    {"data": data, "model": model, "view": view, "px": self._pixels(view)}
                    | {"horizon_s": horizon, "step": step, "convention": self.convention.value}
                    | self._scores_at(view, step)
                    | {"clips": int(self.valid[:, step - 1].sum())}
                    | {"episodes": len(np.unique(self.episode[self.valid[:, step - 1]]))}
                )
        return rows

    def _scores_at(self, view: str, step: int) -> dict[str, float | None]:
        rng = np.random.default_rng(step)
        psnr, gain = self.at(view, "psnr", step, rng), self.gain(view, step, rng)
        values = {
            **{name: self.at(view, name, step, rng).mean for name in (*METRICS, "sharpness")},
            **{f"copy_{name}": self.at(view, name, step, rng, copied=True).mean for name in METRICS},
            **{"psnr_low": psnr.low, "psnr_high": psnr.high},
            **{"psnr_gain": gain.mean, "psnr_gain_low": gain.low, "psnr_gain_high": gain.high},
            **{f"mean_{name}": self.mean(name, step, view=view) for name in METRICS},
            **{f"mean_copy_{name}": self.mean(name, step, view=view, copied=True) for name in METRICS},
        }
        return {name: round(value, 4) if math.isfinite(value) else None for name, value in values.items()}

    def _values(self, view: str, metric: str, copied: bool) -> Array | None:
        scores = self.views[view]
        return (scores.copy if copied else scores.model).named().get(metric)

    def _pixels(self, view: str) -> int | str:
        height, width = self.views[view].size
        return height if height == width else f"{width}x{height}"


def evaluate(
    model: WorldModel,
    clip: Clip,
    lpips: Lpips | None = None,
    convention: Convention = Convention.RGB,
) -> Report:
    """Imagine what followed each context of `clip` (see `split`) in one open-loop rollout, and score every frame.

    The same clips give the same report: rollouts have fixed seeds. Raises WorldModelError where the clips do not fit.
    """
    context, future = split(clip, model.spec)
    if len(context) == 0:
        raise WorldModelError("evaluation: expected held-out clips, got none; hold out at least one episode")
    parts = [
        model.rollout(_take(context, part), future.action[part], seed=part.start)
        for part in (slice(start, start + BATCH) for start in range(0, len(context), BATCH))
    ]
    views, imagined = {}, {}
    for view, size in model.spec.views.items():
        imagined[view] = np.concatenate([part.images[view] for part in parts])
        actual = future.images[view]
        copied = np.broadcast_to(context.images[view][:, -1:], actual.shape)
        views[view] = ViewReport(
            size,
            score_frames(imagined[view], actual, lpips, convention),
            score_frames(copied, actual, lpips, convention),
        )
    risk = np.concatenate([part.risk for part in parts])
    return Report(model.version, views, clip.episode, future.valid, risk, imagined, convention)


def _take(context: Context, part: slice) -> Context:
    return Context({view: frames[part] for view, frames in context.images.items()}, context.past_action[part])
