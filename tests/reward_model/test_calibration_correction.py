"""The correction loop: order of steps, unknowns never enter, swapped scorers refused, one object for both paths."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_model.calibration.advantages import AdvantageConfig, group_advantages
from reward_model.calibration.anchors import AnchorConfig, AnchorKind, AnchorPair, ScorerKey
from reward_model.calibration.calibrator import (
    CalibrationConfig,
    CalibrationError,
    CalibrationMode,
    Calibrator,
)
from reward_model.calibration.correction import CorrectionConfig, CorrectionLoop
from reward_model.calibration.debias import DebiasConfig
from reward_model.calibration.gates import Closure, GateConfig
from reward_model.calibration.hardened import HardenedConfig
from reward_model.calibration.scorers import ScorerError, ScorerPair, Trust, scores_of
from reward_model.calibration.weight import WeightConfig

KEY = ScorerKey("press", "judge1")
MODES = list(CalibrationMode)


@dataclass
class Truth:
    """A trajectory is its own real outcome; None could not be graded."""

    log: list[str] = field(default_factory=list)
    trust: Trust = Trust.TRUSTED
    version: str = "robot"
    seconds_per_score: float = 30.0

    def score(self, trajectories: Sequence[float | None]) -> Sequence[float | None]:
        self.log.append(f"trusted {len(trajectories)}")
        return list(trajectories)


@dataclass
class Squashed:
    """Monotone in the truth, but not affine."""

    log: list[str] = field(default_factory=list)
    trust: Trust = Trust.CHEAP
    version: str = "judge1"
    seconds_per_score: float = 0.0

    def score(self, trajectories: Sequence[float | None]) -> Sequence[float | None]:
        self.log.append(f"cheap {len(trajectories)}")
        return [None if t is None else math.sqrt(t) for t in trajectories]


def loop(
    mode: CalibrationMode, *, fraction: float = 0.25, min_pairs: int = 16, standardise: bool = False
) -> CorrectionLoop[float | None]:
    return CorrectionLoop(ScorerPair(Squashed(), Truth()), config(mode, fraction, min_pairs, standardise))


def config(
    mode: CalibrationMode, fraction: float = 0.25, min_pairs: int = 16, standardise: bool = False
) -> CorrectionConfig:
    return CorrectionConfig(
        anchors=AnchorConfig(fraction=fraction, min_per_step=0),
        calibration=CalibrationConfig(
            mode=mode,
            standardised=standardise,
            debias=DebiasConfig(min_pairs=min_pairs, refit_every=8),
            hardened=HardenedConfig(pairs_per_bin=8),
            weight=WeightConfig(warmup=2),
            gate=GateConfig(window=64),
        ),
        advantages=AdvantageConfig(standardise=standardise),
    )


def draw(rng: np.random.Generator, groups: int = 4, size: int = 8) -> list[list[float | None]]:
    return rng.random((groups, size)).tolist()


def test_swapped_scorers_are_refused_at_construction() -> None:
    with pytest.raises(ScorerError, match=r"cheap scorer: expected trust=.*Truth declares .*swapped"):
        ScorerPair(cheap=Truth(), trusted=Squashed())
    with pytest.raises(ScorerError, match="trusted scorer"):
        ScorerPair(cheap=Squashed(), trusted=Squashed())
    with pytest.raises(ScorerError, match="costs more than the trusted one"):
        ScorerPair(cheap=Squashed(seconds_per_score=60.0), trusted=Truth())


def test_scores_are_matched_by_position_and_none_is_no_zero() -> None:
    judge = Squashed()
    judge.score = lambda trajectories: [0.5]  # type: ignore[method-assign]
    with pytest.raises(ScorerError, match="expected 2 scores, got 1"):
        scores_of(judge, [0.1, 0.2])
    judge.score = lambda trajectories: [0.5, None, math.nan, -math.inf]  # type: ignore[method-assign]
    assert scores_of(judge, [0.0] * 4).tolist() == pytest.approx(
        [0.5, math.nan, math.inf, math.inf], nan_ok=True
    )


@pytest.mark.parametrize("mode", MODES)
def test_anchors_are_scored_by_both_before_anything_else_is_scored(mode: CalibrationMode) -> None:
    log: list[str] = []
    corrected = CorrectionLoop(ScorerPair(Squashed(log), Truth(log)), config(mode))
    groups = [[0.1, 0.2, 0.9], [0.3, 0.4], [0.5, 0.6], [0.7, 0.8]]
    step = corrected.step(groups, ["press"] * 4)
    size = len(groups[step.anchored[0]])
    assert log[:2] == [f"trusted {size}", f"cheap {size}"]
    assert len(log) == 5 and all(entry.startswith("cheap") for entry in log[2:])
    assert (
        step.rewards[step.anchored[0]].tolist() == groups[step.anchored[0]]
    )  # anchors train on the real outcome


def test_anchors_may_be_chosen_before_there_are_trajectories() -> None:
    at_once, before = loop(CalibrationMode.HARDENED), loop(CalibrationMode.HARDENED)
    rng = np.random.default_rng(5)
    for _ in range(4):
        groups, tasks = draw(rng), ["press"] * 4
        chosen = before.choose(len(groups))
        one, other = at_once.step(groups, tasks), before.step(groups, tasks, anchored=chosen)
        assert one.anchored == other.anchored == chosen
        for first, second in zip(one.advantages, other.advantages, strict=True):
            np.testing.assert_array_equal(first, second)
    assert before.step(groups, tasks, anchored=[]).anchored == []  # not chosen, not executed


def test_published_disagreement_is_measured_on_the_map_that_has_just_seen_the_pairs() -> None:
    """16 pairs arrive at once: the fit at pair 16 comes first, so the disagreement is that of the fitted map."""
    rng = np.random.default_rng(0)
    true = rng.random(16)
    pairs = [AnchorPair(math.sqrt(y), y, i) for i, y in enumerate(true)]
    made = {mode: Calibrator(config(mode).calibration) for mode in MODES}
    for calibrator in made.values():
        calibrator.observe(KEY, pairs)
        assert calibrator.version == 1
    raw = np.sqrt(true)

    def s2(predicted: np.ndarray) -> float:
        return float((predicted - true).var() / true.var())

    calibrated = made[CalibrationMode.WMRL].calibrate(KEY, raw)
    after = made[CalibrationMode.WMRL].metrics(KEY)["calibration/disagreement"]
    assert after == pytest.approx(s2(calibrated)) and s2(calibrated) < 0.5 * s2(raw)
    # Hardened: by the map as it was, here the identity, so that no pair judges a fit that it was part of.
    assert made[CalibrationMode.HARDENED].metrics(KEY)["calibration/disagreement"] == pytest.approx(s2(raw))


def test_the_rest_is_calibrated_by_the_map_after_all_anchors_of_the_step() -> None:
    corrected = loop(CalibrationMode.WMRL, fraction=0.5, min_pairs=16)
    groups = draw(np.random.default_rng(1))
    step = corrected.step(groups, ["press"] * 4)  # 2 anchors of 8: the first fit, in this step
    assert corrected.calibrator.version == 1
    for i in set(range(4)) - set(step.anchored):
        raw = np.sqrt(np.array(groups[i], float))
        assert step.rewards[i].tolist() == corrected.calibrator.calibrate(KEY, raw).tolist() != raw.tolist()


@pytest.mark.parametrize("standardise", [False, True])
def test_published_advantages(standardise: bool) -> None:
    """Anchors times the weight after the normalisation, others times one: no gate, no renormalisation."""
    corrected = loop(CalibrationMode.WMRL, standardise=standardise)
    rng = np.random.default_rng(2)
    for _ in range(6):
        step = corrected.step(draw(rng), ["press"] * 4)
    weight = corrected.calibrator.anchor_weight
    assert 1.0 < weight <= 4.0
    for i, (reward, advantage) in enumerate(zip(step.rewards, step.advantages, strict=True)):
        expected = reward - reward.mean()
        if standardise:
            expected = expected / (reward.std() + 1e-4)
        assert advantage.tolist() == pytest.approx(
            (expected * (weight if i in step.anchored else 1.0)).tolist()
        )


@pytest.mark.parametrize("standardise", [False, True])
def test_hardened_advantages_are_gated_and_renormalised(standardise: bool) -> None:
    corrected = loop(CalibrationMode.HARDENED, standardise=standardise)
    rng = np.random.default_rng(2)
    step = corrected.step(draw(rng), ["press"] * 4)
    for i in set(range(4)) - set(step.anchored):
        assert not step.advantages[i].any()  # nothing is proven yet: only the anchored group teaches
    assert step.advantages[step.anchored[0]].any()
    for _ in range(12):
        step = corrected.step(draw(rng), ["press"] * 4)
    weight, gate = corrected.calibrator.anchor_weight, corrected.gate("press").value
    assert gate == 1.0 and weight > 1.0
    s2 = corrected.metrics("press")["calibration/disagreement"]
    assert weight == pytest.approx(math.sqrt(1.0 + s2) if standardise else 1.0 + s2)
    for i, (reward, advantage) in enumerate(zip(step.rewards, step.advantages, strict=True)):
        scale = reward.std() + 1e-4 if standardise else 1.0
        factor = (weight if i in step.anchored else 1.0) / ((weight + 3.0) / 4.0)
        assert advantage.tolist() == pytest.approx((factor * (reward - reward.mean()) / scale).tolist())


def test_unknown_rewards_are_left_out_of_their_group() -> None:
    nan = math.nan
    rewards = [np.array([1.0, nan, 0.0, nan]), np.array([nan, 0.7, nan]), np.array([0.4, 0.4]), np.empty(0)]
    advantages = group_advantages(rewards, [2.0, 1.0, 1.0, 1.0], AdvantageConfig())
    assert advantages[0].tolist() == pytest.approx(
        [1.0, nan, -1.0, nan], nan_ok=True
    )  # as zeros: .75, -.25 ...
    assert np.isnan(advantages[1]).all()  # one known: nothing to compare with
    assert advantages[2].tolist() == [0.0, 0.0] and advantages[3].shape == (0,)
    standardised = group_advantages(rewards[:1], [1.0], AdvantageConfig(standardise=True))
    assert standardised[0][0] == pytest.approx(0.5 / (0.5 + 1e-4))


scores = st.one_of(st.none(), st.floats(0.0, 1.0), st.sampled_from([math.nan, math.inf, -math.inf]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(scores, scores), max_size=40), st.sampled_from(MODES))
def test_unknown_and_broken_pairs_never_enter(
    pairs: list[tuple[float | None, float | None]], mode: CalibrationMode
) -> None:
    """The calibrator ends exactly where it ends without them, and says how many there were."""
    settings = config(mode).calibration
    all_pairs, known_only = Calibrator(settings), Calibrator(settings)
    sound = [(x, y) for x, y in pairs if None not in (x, y) and math.isfinite(x) and math.isfinite(y)]  # type: ignore[arg-type]
    for calibrator, seen in ((all_pairs, pairs), (known_only, sound)):
        calibrator.observe(KEY, [AnchorPair(x, y, i % 5) for i, (x, y) in enumerate(seen)])
    assert all_pairs.state_dict()["debiaser"] == known_only.state_dict()["debiaser"]
    assert all_pairs.state_dict()["weighter"] == known_only.state_dict()["weighter"]
    values = [value for pair in pairs for value in pair]
    metrics = all_pairs.metrics(KEY)
    assert metrics["calibration/unknown"] == values.count(None)
    assert metrics["calibration/non_finite"] == sum(v is not None and not math.isfinite(v) for v in values)
    broken = any(x is not None and not math.isfinite(x) for x, _ in pairs)
    assert (Closure.NON_FINITE in all_pairs.gate(KEY).closures) is broken


@pytest.mark.parametrize("mode", MODES)
def test_calibrated_unknowns_stay_unknown(mode: CalibrationMode) -> None:
    corrected = loop(mode, fraction=0.5)
    rng = np.random.default_rng(3)
    for _ in range(3):
        corrected.step(draw(rng), ["press"] * 4)
    assert corrected.calibrator.version > 0
    calibrated = corrected.calibrator.calibrate(KEY, np.array([0.2, math.nan, math.inf, 0.8]))
    assert np.isnan(calibrated).tolist() == [False, True, True, False]
    groups: list[list[float | None]] = [[0.1, None, 0.9, 0.4], [0.2, 0.3, None, 0.5]]
    step = corrected.step(groups, ["press"] * 2)
    assert [np.isnan(a).tolist() for a in step.advantages] == [[v is None for v in group] for group in groups]


@pytest.mark.parametrize("mode", MODES)
def test_without_anchors_nothing_is_corrected(mode: CalibrationMode) -> None:
    corrected = loop(mode, fraction=0.0)
    step = corrected.step([[0.04, 0.36]], ["press"])
    assert step.anchored == [] and step.rewards[0].tolist() == pytest.approx([0.2, 0.6])
    assert corrected.calibrator.anchor_weight == 1.0
    wanted = [-0.2, 0.2] if mode is CalibrationMode.WMRL else [0.0, 0.0]  # hardened: closed without evidence
    assert step.advantages[0].tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("mode", MODES)
def test_a_continued_loop_goes_on_alike(mode: CalibrationMode, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    one, other = loop(mode), loop(mode)
    for _ in range(9):
        one.step(draw(rng), ["press", "sort"] * 2)
    state = json.loads(json.dumps(one.state_dict(), allow_nan=False))
    other.load_state_dict(state)
    for _ in range(4):
        groups = draw(rng)
        steps = [each.step(groups, ["press", "sort"] * 2) for each in (one, other)]
        assert steps[0].anchored == steps[1].anchored
        for ours, theirs in zip(steps[0].advantages, steps[1].advantages, strict=True):
            assert ours.tolist() == theirs.tolist()
    assert one.metrics("press") == pytest.approx(other.metrics("press"), nan_ok=True)
    one.calibrator.save(tmp_path / "calibrator.json")
    fresh = Calibrator(config(mode).calibration)
    fresh.load(tmp_path / "calibrator.json")
    assert fresh.state_dict() == one.calibrator.state_dict()


def test_a_torn_state_and_one_of_the_other_mode_are_refused(tmp_path: Path) -> None:
    calibrator = Calibrator(config(CalibrationMode.WMRL).calibration)
    path = tmp_path / "calibrator.json"
    calibrator.save(path)
    with pytest.raises(CalibrationError, match="expected mode hardened, got wmrl"):
        Calibrator(config(CalibrationMode.HARDENED).calibration).load(path)
    path.write_text(path.read_text()[:-9])
    with pytest.raises(CalibrationError, match="expected JSON, got a torn file"):
        calibrator.load(path)


def test_a_state_of_an_older_format_costs_its_evidence_and_no_run(caplog: pytest.LogCaptureFixture) -> None:
    old, settings = loop(CalibrationMode.HARDENED), config(CalibrationMode.HARDENED)
    for _ in range(9):
        old.step(draw(np.random.default_rng(5)), ["press", "sort"] * 2)
    state = old.state_dict()
    state["calibrator"]["format"] = 1
    with pytest.raises(CalibrationError, match=r"expected format 2, got 1.*begin calibration anew"):
        Calibrator(settings.calibration).load_state_dict(state["calibrator"])
    resumed = loop(CalibrationMode.HARDENED)
    resumed.load_state_dict(state)
    assert "begin calibration anew" in caplog.text
    assert resumed.calibrator.state_dict() == Calibrator(settings.calibration).state_dict()
    assert (
        resumed.metrics("press")["calibration/anchor_groups"]
        == old.metrics("press")["calibration/anchor_groups"]
    )


def test_the_law_must_fit_the_advantages() -> None:
    with pytest.raises(ValueError, match="must equal advantages"):
        CorrectionConfig(advantages=AdvantageConfig(standardise=True))


def test_the_sac_path_and_the_vla_path_share_one_calibrator() -> None:
    """Anchors of real segments, observed as they come, calibrate the scores that the group-relative step sees."""
    settings = config(CalibrationMode.HARDENED, fraction=0.0)
    shared = Calibrator(settings.calibration)
    corrected = CorrectionLoop(ScorerPair(Squashed(), Truth()), settings, shared)
    rng = np.random.default_rng(6)
    assert shared.synthetic_weight(KEY) == 0.25  # nothing known: as quiet as can be
    for episode in range(60):
        outcome = float(episode % 2)
        scores = np.clip(0.3 + 0.4 * outcome + 0.1 * rng.standard_normal(4), 0.0, 1.0)
        shared.observe(KEY, [AnchorPair(float(x), outcome, episode, AnchorKind.HINDSIGHT) for x in scores])
    assert shared.gate(KEY).value == 1.0
    assert 0.5 < shared.synthetic_weight(KEY) < 1.0
    step = corrected.step([[0.04, 0.64]], ["press"])
    assert step.rewards[0].tolist() == shared.calibrate(KEY, np.array([0.2, 0.8])).tolist()
    assert step.advantages[0][1] - step.advantages[0][0] > 0.7  # .6 apart as the judge sees it, 1 in truth
