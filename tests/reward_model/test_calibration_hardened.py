"""The hardened debiaser: strict order, keys that start from what is known, evidence by kind."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_model.calibration.anchors import AnchorKind, ScorerKey
from reward_model.calibration.debias import DebiasConfig
from reward_model.calibration.hardened import HardenedConfig, KeyedDebiaser
from reward_model.calibration.monotone import MonotoneMap, blend, quantile_edges
from robot.types import Array

KEY = ScorerKey("press", "wm1")
NEXT = ScorerKey("press", "wm2")
OTHER = ScorerKey("insert", "wm1")
SMALL = DebiasConfig(min_pairs=4, refit_every=1)
BARE = HardenedConfig(prior_count=0.0, strictness=1e-9, pairs_per_bin=1, narrow_spread=0.0)


def make(debias: DebiasConfig = SMALL, **changes: float) -> KeyedDebiaser:
    settings = {"prior_count": 0.0, "strictness": 1e-9, "pairs_per_bin": 1, "narrow_spread": 0.0}
    return KeyedDebiaser(debias, HardenedConfig(**(settings | changes)))  # type: ignore[arg-type]


def push(
    debiaser: KeyedDebiaser, key: ScorerKey, raw: list[float], true: list[float], weight: float = 1.0
) -> None:
    debiaser.push(key, np.array(raw), np.array(true), np.full(len(raw), weight))


def apply(debiaser: KeyedDebiaser, key: ScorerKey, *raw: float) -> list[float]:
    return [round(value, 6) for value in debiaser.apply(key, np.array(raw)).tolist()]


def test_identity_until_min_pairs_over_all_keys() -> None:
    debiaser = make(DebiasConfig(min_pairs=6, refit_every=1))
    push(debiaser, KEY, [0.1, 0.9], [0.0, 1.0])
    push(debiaser, OTHER, [0.1, 0.9], [0.0, 1.0])
    assert not debiaser.fitted(KEY) and apply(debiaser, KEY, 0.3) == [0.3]
    push(debiaser, OTHER, [0.1, 0.9], [0.0, 1.0])
    assert debiaser.fitted(KEY) and debiaser.fitted(OTHER) and debiaser.fits == 1


def test_flat_parts_and_clamped_ends_keep_the_order_of_the_scores() -> None:
    debiaser = make(strictness=0.02)
    push(debiaser, KEY, [0.1, 0.3, 0.5, 0.7], [1.0, 0.0, 1.0, 0.0])  # pooled to one flat .5
    scores = np.linspace(0.0, 1.0, 201)
    mapped = debiaser.apply(KEY, scores)
    assert mapped.tolist() == pytest.approx((0.98 * 0.5 + 0.02 * scores).tolist())
    assert (np.diff(mapped) > 0).all()


def test_the_prior_pulls_every_bin_to_the_overall_mean() -> None:
    """Two pairs per bin, four prior ones of mean .5: (0 + 2) / 6 and (2 + 2) / 6."""
    debiaser = make(prior_count=4.0)
    push(debiaser, KEY, [0.1, 0.1, 0.9, 0.9], [0.0, 0.0, 1.0, 1.0])
    assert apply(debiaser, KEY, 0.1, 0.9) == pytest.approx([1 / 3, 2 / 3], abs=1e-5)


def test_executed_anchors_count_three_times_and_replays_half() -> None:
    config = HardenedConfig()
    assert [config.evidence(kind) for kind in AnchorKind] == [0.5, 1.0, 3.0]
    debiaser = make()
    push(debiaser, KEY, [0.1, 0.9], [0.0, 1.0], weight=0.5)
    push(debiaser, KEY, [0.1, 0.9], [1.0, 1.0], weight=3.0)
    assert apply(debiaser, KEY, 0.1) == pytest.approx([3.0 / 3.5], abs=1e-5)


def test_a_new_version_starts_from_the_old_map_and_leaves_it_by_n_over_n_plus_100() -> None:
    debiaser = make()
    push(debiaser, KEY, [0.1, 0.9], [0.2, 0.6])
    push(debiaser, KEY, [0.1, 0.9], [0.2, 0.6])
    assert apply(debiaser, NEXT, 0.1, 0.9) == [0.2, 0.6]  # nothing known of it: the old map
    push(debiaser, NEXT, [0.1] * 50 + [0.9] * 50, [0.0] * 50 + [1.0] * 50)
    assert apply(debiaser, NEXT, 0.1, 0.9) == [0.1, 0.8]  # n = 100: half way
    push(debiaser, NEXT, [0.1] * 100 + [0.9] * 100, [0.0] * 100 + [1.0] * 100)
    assert apply(debiaser, NEXT, 0.1, 0.9) == [0.05, 0.9]  # n = 300: three quarters
    assert apply(debiaser, KEY, 0.1, 0.9) == [0.2, 0.6]


def test_a_task_with_few_pairs_leans_on_all_tasks_of_its_version() -> None:
    debiaser = make(shrinkage=6.0)
    push(debiaser, OTHER, [0.1, 0.9] * 4, [0.0, 1.0] * 4)
    push(debiaser, KEY, [0.1, 0.9], [0.5, 0.5])
    # all tasks: low bin mean .5 / 5 = .1, high 4.5 / 5 = .9; own share 2 / (2 + 6)
    assert apply(debiaser, KEY, 0.1, 0.9) == pytest.approx([0.25 * 0.5 + 0.75 * 0.1, 0.25 * 0.5 + 0.75 * 0.9])
    assert apply(debiaser, ScorerKey("press", "wm7"), 0.1) == apply(debiaser, KEY, 0.1)
    assert apply(debiaser, ScorerKey("sort", "wm1"), 0.1) == [0.1]  # a task never seen: the identity


def test_narrow_scores_get_quantile_bins() -> None:
    raw = np.linspace(0.40, 0.49, 100).tolist()
    true = [float(x > 0.445) for x in raw]
    config = DebiasConfig(min_pairs=100, refit_every=100)
    equal, quantile = make(config), make(config, narrow_spread=0.5)
    push(equal, KEY, raw, true)
    push(quantile, KEY, raw, true)
    assert not equal.fitted(KEY)  # one equal-width bin holds them all
    assert apply(quantile, KEY, 0.41, 0.48) == [0.0, 1.0]
    assert quantile_edges(np.array([0.5] * 9 + [0.6]), 10).tolist() == pytest.approx([0.5, 0.51])


def test_few_pairs_make_few_bins() -> None:
    raw, true = [0.05, 0.25, 0.45, 0.95], [0.0, 0.2, 0.4, 1.0]
    debiaser = make(pairs_per_bin=10)
    push(debiaser, KEY, raw * 4, true * 4)
    # 16 pairs: two bins, below and above .5; the low one has mean score .25 and mean outcome .2
    assert apply(debiaser, KEY, 0.05, 0.25, 0.95) == pytest.approx([0.2, 0.2, 1.0], abs=1e-5)
    push(debiaser, KEY, raw * 9, true * 9)
    # 52 pairs: five bins, so that .05, .25 and .45 stand apart
    assert apply(debiaser, KEY, 0.05, 0.25, 0.95) == pytest.approx([0.0, 0.2, 1.0], abs=1e-5)


def test_reset_returns_to_the_identity_even_after_an_older_version() -> None:
    debiaser = make()
    push(debiaser, KEY, [0.1, 0.9] * 2, [0.2, 0.6] * 2)
    push(debiaser, NEXT, [0.1], [0.0])
    debiaser.reset(NEXT)
    assert not debiaser.fitted(NEXT) and apply(debiaser, NEXT, 0.1, 0.9) == [0.1, 0.9]
    assert apply(debiaser, KEY, 0.1) == [0.2]
    push(debiaser, NEXT, [0.1, 0.9, 0.1], [1.0, 1.0, 1.0])
    assert not debiaser.fitted(NEXT)  # it has nothing to lean on, so it needs four pairs of its own
    push(debiaser, NEXT, [0.9], [1.0])
    assert apply(debiaser, NEXT, 0.1, 0.9) == [1.0, 1.0]


def test_two_versions_of_a_task_are_kept() -> None:
    debiaser = make()
    for version in range(5):
        push(debiaser, ScorerKey("press", f"wm{version}"), [0.1, 0.9] * 2, [0.0, 1.0] * 2)
    kept = [entry["version"] for entry in debiaser.state_dict()["keys"]]
    assert kept == ["wm3", "wm4"]


def test_mixtures_forget_what_is_negligible() -> None:
    step = MonotoneMap(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    mixture = blend(1.0, step, None)
    for _ in range(200):
        mixture = blend(0.3, step, mixture)
    assert len(mixture.parts) < 20 and sum(share for share, _ in mixture.parts) == pytest.approx(1.0)


def test_a_continued_debiaser_goes_on_alike() -> None:
    rng = np.random.default_rng(1)
    one = KeyedDebiaser(DebiasConfig(min_pairs=40, refit_every=8), HardenedConfig())
    other = KeyedDebiaser(DebiasConfig(min_pairs=40, refit_every=8), HardenedConfig())

    def feed(debiaser: KeyedDebiaser, raw: Array) -> None:
        for key in (KEY, OTHER, NEXT):
            push(debiaser, key, raw.tolist(), (raw**2).tolist())

    feed(one, rng.random(30))
    other.load_state_dict(json.loads(json.dumps(one.state_dict(), allow_nan=False)))
    later = rng.random(13)
    feed(one, later)
    feed(other, later)
    grid = np.linspace(0.0, 1.0, 50)
    assert all((one.apply(key, grid) == other.apply(key, grid)).all() for key in (KEY, OTHER, NEXT))
    assert one.metrics(NEXT) == other.metrics(NEXT)


finite = st.floats(0.0, 1.0)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([KEY, NEXT, OTHER]), finite, finite, st.sampled_from([0.5, 1.0, 3.0])),
        min_size=20,
        max_size=80,
    )
)
def test_every_map_is_strictly_increasing(pairs: list[tuple[ScorerKey, float, float, float]]) -> None:
    debiaser = KeyedDebiaser(DebiasConfig(min_pairs=10, refit_every=5), HardenedConfig(pairs_per_bin=2))
    for key, x, y, weight in pairs:
        push(debiaser, key, [x], [y], weight)
    grid = np.linspace(0.0, 1.0, 41)
    for key in (KEY, NEXT, OTHER):
        mapped = debiaser.apply(key, grid)
        assert (np.diff(mapped) >= 0.02 * 0.025 - 1e-12).all()
        assert mapped.min() >= -1e-12 and mapped.max() <= 1.0 + 1e-12
