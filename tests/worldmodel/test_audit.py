"""The audit against a world whose true futures are known: what it measures per kind, and where trust ends."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import moving_world
import numpy as np
import pytest
from moving_world import SPEC, STEP, ShiftModel

from robot.factory import make_task
from robot.geometry import DeltaFrame
from robot.types import Clip, Float32
from worldmodel.audit import Audit, AuditConfig, Executed, audit
from worldmodel.baselines import CopyLastFrame
from worldmodel.counterfactual import Branches, BranchKind, Motion, make_branches
from worldmodel.interface import Context, Imagined, WorldModelError

N, STEPS = 12, 5
POLICY = np.zeros((N, STEPS, 7), np.float32)
POLICY[..., 0] = -0.8


class MovingCell:
    """Executes in the moving world; a governor lets no entry beyond `limit` through."""

    def __init__(self, clip: Clip, limit: float = 1.0) -> None:
        self._clip, self._limit = clip, limit
        self.executed: list[int] = []

    def execute(self, index: int, actions: Float32) -> Executed:
        self.executed.append(index)
        allowed = actions.clip(-self._limit, self._limit)
        path = STEP * np.cumsum(allowed[:, :2], axis=0) + self._place(index)
        return Executed(
            {view: np.stack([moving_world.look(view, place) for place in path]) for view in SPEC.views},
            allowed,
            np.ones(len(actions), np.bool_),
        )

    def _place(self, index: int) -> np.ndarray:
        """Where the clip starts, as `moving_world.clips` drew it."""
        past = self._clip.action[index, : self._clip.history, :2]
        return self._clip.proprio[index, 0, :2] + STEP * past.sum(axis=0)


@pytest.fixture(scope="module")
def clip() -> Clip:
    return replace(moving_world.clips(N, STEPS, seed=2), episode=np.arange(N) // 2)


@pytest.fixture(scope="module")
def branches(clip: Clip) -> Branches:
    motion = Motion.of(make_task("press").spec, DeltaFrame.BASE)
    return make_branches(clip, motion, np.random.default_rng(0), policy=lambda _: POLICY)


def test_replays_are_what_happened_and_every_kind_is_measured(clip: Clip, branches: Branches) -> None:
    outcome = audit(ShiftModel(), clip, branches, MovingCell(clip))
    replays = np.flatnonzero(branches.of_kind(BranchKind.REPLAY))
    report = moving_world.clips(N, STEPS, seed=2)
    cell = MovingCell(clip)
    for k in replays[:3]:
        truth = cell.execute(int(branches.source[k]), branches.actions[k])
        happened = report.images["wrist"][branches.source[k], 2:].astype(int)
        assert np.abs(truth.images["wrist"] - happened).max() <= 1
    rows = outcome.rows("toy", hz=10.0)
    assert [row["kind"] for row in rows] == ["replay", "local", "policy"]
    for row in rows:
        assert row["psnr"] > row["copy_psnr"] + 3 and row["psnr_low"] < row["psnr"] < row["psnr_high"]
        assert row["episodes"] == N // 2 and row["followed"] == 1.0
        assert row["label_precision"] is None and row["world_model_version"] == 7
        assert len(row["psnr_by_step"]) == STEPS
        json.dumps(row, allow_nan=False)
    assert rows[0]["deviation_mm"] == 0.0 < rows[1]["deviation_mm"] < rows[2]["deviation_mm"]


def test_a_model_that_ignores_its_actions_is_good_on_none_and_worst_on_the_policy(
    clip: Clip, branches: Branches
) -> None:
    rows = audit(ShiftModel(blind=True), clip, branches, MovingCell(clip)).rows("toy", 10.0)
    gains = [row["psnr_gain"] for row in rows]
    assert gains[2] < gains[0] - 1.0


def test_trust_ends_where_the_model_is_no_better_than_a_copy_or_too_bad(
    clip: Clip, branches: Branches
) -> None:
    class Forgetful(ShiftModel):
        """From the third step on, gray."""

        def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
            imagined = super().rollout(context, actions, seed)
            for frames in imagined.images.values():
                frames[:, 2:] = 128
            return imagined

    cell = MovingCell(clip)
    forgetful = audit(Forgetful(), clip, branches, cell)
    assert forgetful.horizon_cap(BranchKind.LOCAL) == 2
    assert audit(ShiftModel(), clip, branches, cell).horizon_cap(BranchKind.LOCAL) == STEPS
    assert audit(CopyLastFrame(SPEC), clip, branches, cell).horizon_cap(BranchKind.REPLAY) == 0
    strict = audit(ShiftModel(), clip, branches, cell, AuditConfig(trusted_psnr=55.0))
    assert strict.horizon_cap(BranchKind.REPLAY) == 0


def test_what_the_governor_changed_counts_as_an_error_of_the_whole(clip: Clip, branches: Branches) -> None:
    free = audit(ShiftModel(), clip, branches, MovingCell(clip)).rows("toy", 10.0)[2]
    bound = audit(ShiftModel(), clip, branches, MovingCell(clip, limit=0.3)).rows("toy", 10.0)[2]
    assert bound["followed"] == 0.0 and bound["psnr"] < free["psnr"] - 1.0


def test_steps_behind_the_end_of_an_episode_count_nowhere(clip: Clip, branches: Branches) -> None:
    class Ending(MovingCell):
        def execute(self, index: int, actions: Float32) -> Executed:
            done = super().execute(index, actions)
            for frames in done.images.values():
                frames[2:] = 255
            return replace(done, valid=np.arange(len(actions)) < 2)

    outcome = audit(ShiftModel(), clip, branches, Ending(clip))
    whole = audit(ShiftModel(), clip, branches, MovingCell(clip))
    curve = outcome.curve(BranchKind.REPLAY)
    np.testing.assert_array_equal(curve[:2], whole.curve(BranchKind.REPLAY)[:2])
    assert np.isnan(curve[2:]).all()
    assert outcome.horizon_cap(BranchKind.REPLAY) == 2


def with_risk(outcome: Audit, risk: np.ndarray) -> Audit:
    return replace(outcome, risk=risk.astype(np.float32))


def test_risk_that_warns_correlates_with_error(clip: Clip, branches: Branches) -> None:
    outcome = audit(ShiftModel(), clip, branches, MovingCell(clip))
    assert with_risk(outcome, -outcome.psnr).risk_correlation(BranchKind.LOCAL) == pytest.approx(1.0)
    assert with_risk(outcome, outcome.psnr).risk_correlation(BranchKind.LOCAL) == pytest.approx(-1.0)
    assert math.isnan(with_risk(outcome, np.ones_like(outcome.psnr)).risk_correlation(BranchKind.LOCAL))


def test_branches_are_imagined_in_bounded_batches_and_executed_once_each(
    clip: Clip, branches: Branches
) -> None:
    model, cell = ShiftModel(), MovingCell(clip)
    audit(model, clip, branches, cell)
    assert max(model.rollouts) <= 16 and sum(model.rollouts) == len(branches)
    assert cell.executed == branches.source.tolist()


def test_no_branches_is_an_error(clip: Clip, branches: Branches) -> None:
    none = replace(branches, source=branches.source[:0], kind=(), actions=branches.actions[:0])
    with pytest.raises(WorldModelError, match="at least one branch"):
        audit(ShiftModel(), clip, none, MovingCell(clip))
