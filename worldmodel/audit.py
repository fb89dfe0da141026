"""Counterfactual audit: what a model imagines of actions that were never taken, against what they really bring."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from robot.types import Array, Clip, Float32
from worldmodel.clips import split
from worldmodel.counterfactual import Branches, BranchKind
from worldmodel.interface import Context, WorldModel, WorldModelError
from worldmodel.intervals import clustered_mean
from worldmodel.metrics import psnr

BATCH = 16  # branches imagined at once
FOLLOWED = 0.05  # an executed action entry that differs by less from the wish counts as followed


@dataclass(frozen=True)
class Executed:
    """What n asked actions really brought, from the start of one clip on.

    images: view -> (n, H, W, 3) uint8 after each action. action: (n, A), what the safety governor let through.
    valid: (n,), False from the end of the episode on, where the last frame is repeated.
    """

    images: Mapping[str, NDArray[np.uint8]]
    action: Float32
    valid: NDArray[np.bool_]


class Cell(Protocol):
    """Where actions can be executed from the very state in which a clip starts: a simulator."""

    def execute(self, index: int, actions: Float32) -> Executed:
        """Execute `actions` (n, A) from the start of clip `index`, as often as one likes."""


@dataclass(frozen=True)
class AuditConfig:
    """When an imagined step is trusted: while its PSNR is at least `trusted_psnr` [dB], and surely above a copy's."""

    trusted_psnr: float = 20.0

    def __post_init__(self) -> None:
        if not 0 < self.trusted_psnr < 60:
            raise ValueError(f"audit.trusted_psnr: expected 0 to 60 dB, got {self.trusted_psnr}")


@dataclass(frozen=True)
class Audit:
    """N branches of n steps, imagined and executed. psnr, copy_psnr: (N, n), mean over the views; copy: of the frame
    before the branch. risk: (N, n), the model's. valid: (N, n). episode: (N,), the unit of the intervals.
    followed: (N, n), the governor let the action through. version: of the model.
    """

    version: int
    branches: Branches
    episode: NDArray[np.int64]
    psnr: Array
    copy_psnr: Array
    risk: Float32
    valid: NDArray[np.bool_]
    followed: NDArray[np.bool_]
    config: AuditConfig

    def horizon_cap(self, kind: BranchKind) -> int:
        """Steps from the start on that are trusted: each of them is good enough and surely better than a copy.

        The lower bound of the paired PSNR gain over the copied frame must exceed 0.
        """
        chosen, rng = self.branches.of_kind(kind), np.random.default_rng(0)
        for t in range(self.psnr.shape[1]):
            ok = chosen & self.valid[:, t]
            gain = clustered_mean((self.psnr - self.copy_psnr)[ok, t], self.episode[ok], rng)
            if not (gain.low > 0 and self.psnr[ok, t].mean() >= self.config.trusted_psnr):
                return t
        return int(self.psnr.shape[1])

    def curve(self, kind: BranchKind, *, copied: bool = False) -> Array:
        """PSNR at each step (n,), of the model or of the copied frame; NaN where no branch lasts so long."""
        chosen, values = self.branches.of_kind(kind), self.copy_psnr if copied else self.psnr
        picked = [values[chosen & self.valid[:, t], t] for t in range(values.shape[1])]
        return np.array([float(at.mean()) if len(at) else math.nan for at in picked])

    def risk_correlation(self, kind: BranchKind) -> float:
        """Spearman's correlation of a branch's mean risk and its mean PSNR, sign turned: large where risk warns."""
        chosen = np.flatnonzero(self.branches.of_kind(kind) & self.valid.any(axis=1))
        risk, error = (
            [float(values[k, self.valid[k]].mean()) for k in chosen] for values in (self.risk, -self.psnr)
        )
        if len(chosen) < 3 or np.ptp(risk) == 0 or np.ptp(error) == 0:
            return math.nan
        return float(spearmanr(risk, error).statistic)

    def rows(self, task: str, hz: float) -> list[dict[str, Any]]:
        """One row per kind of branch that was audited; None is unknown. Labels are for whoever scores them."""
        return [self._row(task, hz, kind) for kind in BranchKind if self.branches.of_kind(kind).any()]

    def _row(self, task: str, hz: float, kind: BranchKind) -> dict[str, Any]:
        chosen = self.branches.of_kind(kind)
        shown = chosen[:, None] & self.valid
        place = np.nonzero(shown)[0]
        rng = np.random.default_rng(0)
        model = clustered_mean(self.psnr[shown], self.episode[place], rng)
        gain = clustered_mean((self.psnr - self.copy_psnr)[shown], self.episode[place], rng)
        cap = self.horizon_cap(kind)
        numbers = {
            **{"psnr": model.mean, "psnr_low": model.low, "psnr_high": model.high},
            "copy_psnr": float(self.copy_psnr[shown].mean()),
            **{"psnr_gain": gain.mean, "psnr_gain_low": gain.low, "psnr_gain_high": gain.high},
            "risk_correlation": self.risk_correlation(kind),
            "deviation_mm": 1e3 * float(self.branches.position_deviation[chosen].mean()),
            "followed": float(self.followed[shown].mean()),
        }
        return {
            **{"task": task, "world_model_version": self.version, "kind": kind.value},
            **{name: _plain(value) for name, value in numbers.items()},
            **{"horizon_cap": cap, "horizon_cap_s": round(cap / hz, 3), "steps": self.psnr.shape[1]},
            **{"psnr_by_step": [_plain(v) for v in self.curve(kind)]},
            **{"copy_psnr_by_step": [_plain(v) for v in self.curve(kind, copied=True)]},
            **dict.fromkeys(("label_precision", "label_recall", "precision_low", "precision_high")),
            **{"branches": int(chosen.sum()), "episodes": len(np.unique(self.episode[place]))},
        }


def audit(
    model: WorldModel, clip: Clip, branches: Branches, cell: Cell, config: AuditConfig | None = None
) -> Audit:
    """Imagine each branch from the context of its clip, execute it in `cell` from the same state, compare.

    The model is given the actions that were asked for, as in use: what the governor will change is not known then.
    Raises WorldModelError where clips and branches do not fit the model.
    """
    context, _ = split(clip, model.spec)
    count, steps = branches.actions.shape[:2]
    if count == 0:
        raise WorldModelError("audit: expected at least one branch, got none")
    shape = (count, steps)
    scores, copies, risk = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.float32)
    valid, followed = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    for start in range(0, count, BATCH):
        part = np.arange(start, min(start + BATCH, count))
        source, actions = branches.source[part], branches.actions[part]
        begun = _take(context, source)
        imagined = model.rollout(begun, actions, seed=start)
        truth = [cell.execute(int(k), wish) for k, wish in zip(source, actions, strict=True)]
        scores[part] = _mean_psnr(imagined.images, truth)
        copies[part] = _mean_psnr(
            {v: np.repeat(frames[:, -1:], steps, axis=1) for v, frames in begun.images.items()}, truth
        )
        risk[part] = imagined.risk
        valid[part] = [one.valid for one in truth]
        done = np.stack([one.action for one in truth])
        followed[part] = (np.abs(done - actions)[..., :6] < FOLLOWED).all(axis=-1)
    return Audit(
        *(model.version, branches, clip.episode[branches.source], scores, copies),
        *(risk, valid, followed, config or AuditConfig()),
    )


def _take(context: Context, index: NDArray[np.int64]) -> Context:
    return Context(
        {view: frames[index] for view, frames in context.images.items()}, context.past_action[index]
    )


def _mean_psnr(imagined: Mapping[str, NDArray[np.uint8]], truth: Sequence[Executed]) -> Array:
    views = [psnr(frames, np.stack([one.images[view] for one in truth])) for view, frames in imagined.items()]
    mean: Array = np.mean(views, axis=0)
    return mean


def _plain(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None
