"""The world-model worker: what it stores, when it waits, and that policy and critics come as a pair."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from replay_data import action, observation, schema

from rl.imagination.clip import ImaginedClip, Origin, Start
from rl.imagination.labels import LabelledClip, TruthLabeller
from rl.imagination.valuing import ClipValue
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from rl.selection.admission import Selection, SelectionConfig, SelectionMode
from rl.selection.pruning import Pruning
from rl.selection.queues import QueueConfig, SyntheticQueues
from rl.workers.ports import (
    CALIBRATION_GATE,
    COLLECTED,
    GENERATED,
    MILLIONTHS,
    OLDEST_MODEL,
    SELECTION_GATE,
    SUCCESS_SHARE,
    UPDATES,
    PolicyWeights,
)
from rl.workers.world_model import WorldModelWorker, WorldModelWorkerConfig
from robot.types import Label
from worldmodel.counterfactual import BranchKind


class Counters(dict[str, int]):
    def get(self, name: str) -> int:  # type: ignore[override]
        return super().get(name, 0)

    def set(self, name: str, value: int) -> None:
        self[name] = value


class Weights:
    """A policy that was published as `version` after `updates` updates; -1: none yet."""

    def __init__(self) -> None:
        self.version, self.updates = -1, 0

    def publish(self, tensors: Mapping[str, torch.Tensor], updates: int) -> int:
        raise AssertionError("the worker publishes nothing")

    def latest_version(self) -> int:
        return self.version

    def load(self, version: int | None = None) -> PolicyWeights:
        return PolicyWeights(self.version, self.updates, {})


class Policy:
    def __init__(self) -> None:
        self.loaded = 0

    def load_tensors(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.loaded += 1


class Values:
    """Successes are worth a little more than their sources, failures a little less."""

    success_share, td_rms = 0.4, 0.1

    def of(self, clips: Sequence[LabelledClip]) -> list[ClipValue]:
        return [ClipValue(0.52 if c.label is Label.SUCCESS else 0.48, 0.5, 0.5) for c in clips]


def clip(*truth: Label, kind: BranchKind = BranchKind.POLICY) -> ImaginedClip:
    steps = len(truth)
    return ImaginedClip(
        start=Start(Origin.DEMO, 0, 3),
        kind=kind,
        seed=7,
        observations=[observation(0, t) for t in range(steps + 1)],
        action=np.stack([action(0, t) for t in range(steps)]),
        risk=np.zeros(steps, np.float32),
        truth=list(truth),
        world_model_version=2,
    )


SUCCESS = clip(Label.FAILURE, Label.SUCCESS, Label.FAILURE)
FAILURE = clip(Label.FAILURE, Label.FAILURE)


class Doubtful(TruthLabeller):
    """Wants `wanted` batches of replays before it trusts itself, and again whenever told so."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.seen = wanted, 0
        self.trusted: dict[int, float] = {}  # by world-model version

    def trust(self, version: int) -> float:
        return self.trusted.get(version, 1.0)

    def wants_replays(self, version: int, episodes: int) -> bool:
        return version >= 2 and episodes >= 5 and self.wanted > 0

    def label(self, clips: Sequence[ImaginedClip]) -> list[LabelledClip]:
        self.wanted -= 1
        self.seen += len(clips)
        return super().label(clips)


class Bench:
    """A worker that imagines `clips` over and over."""

    def __init__(
        self,
        path: Path,
        clips: list[ImaginedClip],
        mode: SelectionMode,
        labeller: TruthLabeller | None = None,
        tests: int = 40,
    ) -> None:
        self.version, self.num_episodes = 2, 5
        self.clips, self.policy, self.weights, self.counters = clips, Policy(), Weights(), Counters()
        self.critics_at = 0
        self.adapted: dict[str, float] = {}
        self.lacking = ""
        self.path = path
        writer = StoreWriter(path, schema())
        self.worker = WorldModelWorker(
            self,
            labeller or TruthLabeller(),
            Selection(SelectionConfig(mode=mode, min_clips=2)),
            None if mode is SelectionMode.NONE else Values(),
            self.policy,
            writer,
            self.weights,
            self.counters,
            WorldModelWorkerConfig(tests=tests),
            first_update=10,
            discount=0.9,
            refresh=lambda: None,
            critics=lambda updates: updates == self.critics_at,
            gripper_command=1,  # of the test observations: the step, so it changes at each
            pruning=Pruning(path, writer, QueueConfig()),
            adapt=lambda: self.adapted,
            lacks=lambda: self.lacking,
        )

    def imagine(self, policy: object) -> list[ImaginedClip]:
        return [replace(one, world_model_version=self.version) for one in self.clips]

    def replay(self, policy: object) -> list[ImaginedClip]:
        return [replace(one, kind=BranchKind.REPLAY) for one in self.clips]

    def publish(self, version: int, updates: int) -> None:
        self.weights.version, self.weights.updates = version, updates
        self.critics_at = self.counters[UPDATES] = updates

    def stored(self) -> np.ndarray[Any, Any]:
        reader = StoreReader(self.path)
        return reader.records(reader.valid_starts)["transition"]


@pytest.fixture(params=[SelectionMode.MIXTURE_PAIRED, SelectionMode.NONE])
def mode(request: pytest.FixtureRequest) -> SelectionMode:
    found: SelectionMode = request.param
    return found


def test_a_clip_is_stored_up_to_its_success_and_a_failure_is_cut_off(
    tmp_path: Path, mode: SelectionMode
) -> None:
    bench = Bench(tmp_path, [FAILURE, SUCCESS], mode)
    bench.publish(version=4, updates=11)
    bench.worker.step()
    rows = bench.stored()
    assert rows["reward"].tolist() == [0, 0, 0, 1]
    assert rows["terminated"].tolist() == [False, False, False, True]
    assert rows["truncated"].tolist() == [False, True, False, False], "a failure is no terminal one"
    assert rows["label"].tolist() == [Label.FAILURE] * 2 + [Label.SUCCESS] * 2
    assert (rows["policy_version"] == 4).all() and rows["gripper_changed"].all()
    q = rows["provenance"]["q"]
    assert np.isnan(q).all() if mode is SelectionMode.NONE else (q > 0).all()


def test_unknown_clips_and_replays_are_not_stored(tmp_path: Path, mode: SelectionMode) -> None:
    replay = replace(SUCCESS, kind=BranchKind.REPLAY)
    bench = Bench(tmp_path, [replay, clip(Label.FAILURE, Label.UNKNOWN)], mode)
    bench.publish(0, 11)
    metrics = bench.worker.step().metrics
    assert metrics["world_model/generated"] == 5 and metrics["world_model/admitted"] == 0
    assert len(bench.stored()) == 0


def test_it_waits_for_updates_and_counts_on_from_what_was_generated(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [FAILURE, SUCCESS], SelectionMode.NONE)
    assert bench.worker.step().waiting
    bench.counters[UPDATES] = 12
    assert "policy" in bench.worker.step().waiting
    bench.publish(0, 12)
    bench.critics_at = 0
    assert bench.worker.step().waiting and bench.policy.loaded == 0, "these critics are of another policy"
    bench.critics_at = 12
    assert bench.worker.step().metrics and bench.counters[GENERATED] == 5
    assert bench.worker.step().waiting == "learner: update 12"
    bench.worker.close()
    again = Bench(tmp_path, [FAILURE], SelectionMode.NONE)
    again.publish(1, 13)
    assert again.worker.step().waiting, "a lost board is no reason to imagine everything again"
    again.counters[COLLECTED] = 1
    assert again.worker.step().finished


def test_an_old_pair_is_kept_while_the_learner_publishes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [FAILURE], SelectionMode.MIXTURE_PAIRED)
    bench.publish(0, 11)
    bench.worker.step()
    bench.publish(1, 30)
    bench.critics_at = 55  # the next critics are there already, their policy is not
    bench.worker.step()
    assert bench.policy.loaded == 1 and bench.stored()["policy_version"].tolist() == [0] * 4


def test_a_batch_of_which_nothing_is_left_ends(tmp_path: Path, mode: SelectionMode) -> None:
    bench = Bench(tmp_path, [], mode)
    bench.publish(0, 12)
    assert bench.worker.step().metrics and bench.worker.step().metrics
    assert bench.worker.step().waiting


def test_the_gate_opens_with_real_evidence_and_state_continues(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "one", [FAILURE, SUCCESS], SelectionMode.MIXTURE_PAIRED)
    bench.publish(0, 500)
    bench.worker.step()
    assert bench.counters[SELECTION_GATE] == 0, "one clip of each sign is too little"
    metrics = bench.worker.step().metrics
    assert bench.counters[SELECTION_GATE] == MILLIONTHS
    assert metrics["selection/real_success_share"] == 0.4 and metrics["selection/delta"] == pytest.approx(
        0.05
    )
    assert bench.counters[SUCCESS_SHARE] == pytest.approx(0.5 * MILLIONTHS, rel=0.01)
    again = Bench(tmp_path / "two", [FAILURE, SUCCESS], SelectionMode.MIXTURE_PAIRED)
    again.worker.load_state(json.loads(json.dumps(bench.worker.state())))
    again.publish(0, 500)
    again.worker.step()
    assert again.counters[SELECTION_GATE] == MILLIONTHS


def test_adapting_goes_before_imagining(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [FAILURE], SelectionMode.NONE)
    bench.publish(0, 500)
    bench.adapted = {"world_model/loss_1": 0.5}
    assert bench.worker.step().metrics == bench.adapted and len(bench.stored()) == 0


def test_a_scorer_that_has_shown_nothing_replays_first_and_that_counts_as_nothing_imagined(
    tmp_path: Path,
) -> None:
    labeller = Doubtful(wanted=3)
    bench = Bench(tmp_path, [FAILURE, SUCCESS], SelectionMode.NONE, labeller)
    bench.publish(0, 500)
    tested = [bench.worker.step().metrics["world_model/tested"] for _ in range(3)]
    assert tested == [5.0, 10.0, 15.0] and bench.counters.get(GENERATED) == 0 and len(bench.stored()) == 0
    bench.worker.step()
    assert bench.counters[GENERATED] == 5 and len(bench.stored()) > 0


def test_tests_are_bounded_for_each_scorer_and_need_enough_real_episodes(tmp_path: Path) -> None:
    labeller = Doubtful(wanted=1000)
    bench = Bench(tmp_path, [FAILURE], SelectionMode.NONE, labeller, tests=2)
    bench.publish(0, 500)
    generated = []
    for _ in range(4):
        bench.worker.step()
        generated.append(bench.counters.get(GENERATED))
    assert generated == [0, 0, 2, 4], "it goes on imagining, though not proven"
    bench.version = 3
    bench.worker.step()
    bench.worker.step()
    assert bench.counters[GENERATED] == 4, "another world model has tests of its own"
    bench.worker.step()
    assert bench.counters[GENERATED] == 6
    few = Bench(tmp_path / "few", [FAILURE], SelectionMode.NONE, Doubtful(wanted=1000))
    few.num_episodes = 4
    few.publish(0, 500)
    few.worker.step()
    assert few.counters[GENERATED] == 2


@pytest.mark.parametrize(("newcomer", "left_at"), [(True, 800_000), (False, 0)])
def test_what_the_version_before_has_labelled_is_used_while_a_new_one_is_tested(
    tmp_path: Path, newcomer: bool, left_at: int
) -> None:
    labeller = Doubtful(wanted=2)
    labeller.newcomer, labeller.gate = newcomer, 0.0
    bench = Bench(tmp_path, [FAILURE], SelectionMode.NONE, labeller)
    bench.counters[CALIBRATION_GATE] = 800_000
    bench.publish(0, 500)
    bench.worker.step()
    assert bench.counters[CALIBRATION_GATE] == left_at
    bench.worker.step()
    bench.worker.step()  # the tests are over, and proved nothing
    assert bench.counters[CALIBRATION_GATE] == 0


def test_it_waits_for_what_it_lacks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [FAILURE], SelectionMode.NONE)
    bench.publish(0, 500)
    bench.lacking = "actor: 54 transitions"
    assert bench.worker.step().waiting == bench.lacking and bench.counters.get(GENERATED) == 0
    bench.lacking = ""
    bench.worker.step()
    assert bench.counters[GENERATED] == 2


def drawable(bench: Bench) -> int:
    """Of the clips stored so far: transitions that a learner may draw."""
    queues = SyntheticQueues(StoreReader(bench.path), QueueConfig())
    queues.refresh()
    queues.drop_models_before(bench.counters.get(OLDEST_MODEL))
    return queues.size


@pytest.mark.parametrize("trust", [0.0, 0.1])
def test_what_an_untrusted_version_imagined_is_never_drawn_once_its_successor_is_there(
    tmp_path: Path, trust: float
) -> None:
    labeller = Doubtful(wanted=0)
    bench = Bench(tmp_path, [FAILURE, SUCCESS], SelectionMode.NONE, labeller)
    bench.publish(0, 500)
    labeller.trusted[2] = trust
    bench.worker.step()
    assert drawable(bench) == 4, "its gate may still open while it imagines"
    bench.version, labeller.wanted = 3, 1
    bench.worker.step()
    assert drawable(bench) == (0 if trust == 0.0 else 4)
    labeller.trusted[2] = 0.0
    bench.worker.step()
    assert drawable(bench) == (4 if trust == 0.0 else 8), "it is asked once, at the swap; the new clips count"


def test_a_newcomer_that_is_replaced_while_it_is_tested_bars_nothing(tmp_path: Path) -> None:
    labeller = Doubtful(wanted=0)
    bench = Bench(tmp_path, [FAILURE, SUCCESS], SelectionMode.NONE, labeller)
    bench.publish(0, 500)
    bench.worker.step()
    labeller.trusted[3] = 0.0
    bench.version, labeller.wanted = 3, 100
    bench.worker.step()
    bench.version = 4
    bench.worker.step()
    assert drawable(bench) == 4, "it has imagined nothing, and the one before it was trusted"


def test_a_bar_survives_a_restart_and_a_lost_board_and_a_death_before_it_was_set(tmp_path: Path) -> None:
    labeller = Doubtful(wanted=0)
    labeller.trusted[2] = 0.0
    bench = Bench(tmp_path, [FAILURE, SUCCESS], SelectionMode.NONE, labeller)
    bench.publish(0, 500)
    bench.worker.step()
    before = bench.worker.state()
    bench.worker.close()
    again = Bench(tmp_path, [FAILURE, SUCCESS], SelectionMode.NONE, labeller)
    again.version = 3  # published by the one that died
    again.publish(0, 500)
    again.worker.load_state(json.loads(json.dumps(before)))
    again.worker.step()
    assert again.counters[OLDEST_MODEL] == 3 and drawable(again) == 4
    state = json.loads(json.dumps(again.worker.state()))
    again.worker.close()
    lost = Bench(tmp_path, [FAILURE, SUCCESS], SelectionMode.NONE, labeller)
    lost.worker.load_state(state)
    assert lost.counters[OLDEST_MODEL] == 3
    del before["oldest_model"]  # as saved by older workers
    lost.worker.load_state(before)
    assert lost.counters[OLDEST_MODEL] == 3, "it only rises"
