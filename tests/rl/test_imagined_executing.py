"""Imagined clips that are carried out: the truth becomes a label or an anchor, and robot steps are counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from replay_data import schema

from rl.config import ConfigError, load
from rl.imagination.clip import Futures, ImaginedClip, Origin, Start
from rl.imagination.executing import ExecutingLabeller
from rl.imagination.labels import LabelledClip, TruthLabeller
from rl.runtime.imagining import check_synthetic
from rl.selection.pacing import EntropyPacingConfig
from rl.selection.ratio import EffectiveRatio, Gates
from robot.types import Float32, Label, Observation
from worldmodel.counterfactual import BranchKind

UNKNOWN = Label.UNKNOWN
HERE = Observation(images={}, proprio=np.zeros(2, np.float32), timestamp=0.0)


class Simulator:
    """Success at step `at`, counted from 1; a start at step 9 is lost."""

    version = 0

    def __init__(self, at: int) -> None:
        self._at = at

    def begin(self, starts: Sequence[Start], seed: int) -> Simulator:
        self._step, self._lost = 0, starts[0].step == 9
        return self

    @property
    def observations(self) -> Sequence[Observation]:
        return [HERE]

    def step(self, actions: Float32) -> Futures:
        self._step += 1
        reached = self._step == self._at
        truth = [Label.SUCCESS if reached else Label.FAILURE]
        return Futures([HERE], actions, np.zeros(1, np.float32), truth, over=[reached], lost=[self._lost])


def clip(kind: BranchKind = BranchKind.POLICY, step: int = 0) -> ImaginedClip:
    return ImaginedClip(
        Start(Origin.DEMO, 0, step),
        kind,
        1,
        [HERE] * 5,
        np.zeros((4, 7), np.float32),
        np.zeros(4, np.float32),
        [UNKNOWN] * 4,
        3,
    )


def executing(at: int, share: float = 1.0) -> ExecutingLabeller:
    return ExecutingLabeller(TruthLabeller(), Simulator(at), share, np.random.default_rng(0))


def test_true_labels() -> None:
    one = executing(at=2)
    (label,) = one.label([clip()])
    assert (label.label, label.length) == (Label.SUCCESS, 2)
    assert executing(at=9).label([clip()])[0].label is Label.FAILURE
    assert one.metrics()["calibration/executed_steps"] == 2.0
    again = executing(at=9)
    again.load_state(one.state())
    assert again.executed_steps == 2


def test_replays_and_lost_starts_are_left_alone() -> None:
    one = executing(at=2)
    labels: list[LabelledClip] = one.label([clip(BranchKind.REPLAY), clip(step=9)])
    assert [label.label for label in labels] == [UNKNOWN, UNKNOWN] and one.executed_steps == 0


def test_only_a_share_is_carried_out() -> None:
    one = executing(at=9, share=0.25)
    known = sum(label.label is not UNKNOWN for label in one.label([clip() for _ in range(200)]))
    assert 25 < known < 80


@pytest.mark.parametrize(
    ("settings", "wanted"), [({"ratio_max": 0.95, "beyond_cap": True}, 0.95), ({"ratio_max": 0.3}, 0.3)]
)
def test_only_who_says_so_goes_beyond_the_cap(settings: dict[str, Any], wanted: float) -> None:
    config = EntropyPacingConfig(**settings)
    ratio = EffectiveRatio(100.0, config.cap)
    ratio.update(0.95, Gates(1.0, 1.0, 1.0, True), 0)
    assert ratio.update(0.95, Gates(1.0, 1.0, 1.0, True), 100) == pytest.approx(wanted)


def test_the_cap_stands() -> None:
    with pytest.raises(ValueError, match=r"ratio_max in \[0, 0.3\]"):
        EntropyPacingConfig(ratio_max=0.95)


def test_an_arm_that_is_not_simulated_refuses_to_go_beyond_the_cap() -> None:
    arguments = ["experiment=robosuite_lift_state", "synthetic.share.pacing.beyond_cap=true"]
    config = load("train", arguments)
    with pytest.raises(ConfigError, match="beyond_cap"):
        check_synthetic(config, schema())
