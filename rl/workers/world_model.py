"""World model: relives real experience, so that the learner sees what would have happened under other actions.

Flow of `step()`: real clips -> adapt -> imagine -> label and calibrate -> select by Q -> synthetic store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rl.imagination.clip import ImaginedClip
from rl.imagination.imagine import source_kind
from rl.imagination.labels import LabelledClip, Labeller
from rl.imagination.valuing import ClipValue
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.writer import StoreWriter
from rl.selection.admission import Admission, Candidate, Selection
from rl.selection.pruning import Pruning
from rl.workers.ports import (
    ADMITTED,
    CALIBRATION_GATE,
    COLLECTED,
    GENERATED,
    MILLIONTHS,
    OLDEST_MODEL,
    SELECTION_GATE,
    STOP,
    SUCCESS_SHARE,
    UPDATES,
    CountersPort,
    StepResult,
    WeightsPort,
)
from robot.types import Label, Observation, Provenance, Source, Transition
from worldmodel.counterfactual import BranchKind

GENERATED_METRIC = "world_model/generated"  # every batch of clips reports it
TESTED_METRIC = "world_model/tested"  # every batch of replays that are a test
ADMITTED_METRIC = "world_model/admitted"  # both do
OLDEST_METRIC = "world_model/oldest_drawn"  # both do


@dataclass(frozen=True)
class WorldModelWorkerConfig:
    """Pace of imagination. per_update: imagined transitions for each update of the learner.

    before_first_step: begin with the critic's warm start, from demonstrations, before the robot has moved.
    tests: batches of nothing but replays, one after the other, by which a new world model or reward model shows what
    its labels are worth; they come on top of `per_update`.
    """

    per_update: float = 1.0
    before_first_step: bool = True
    tests: int = 40

    def __post_init__(self) -> None:
        if not 0.0 < self.per_update <= 64.0 or self.tests < 0:
            raise ValueError(
                f"world model worker: expected per_update in (0, 64] and tests >= 0, got {self.per_update}, "
                f"{self.tests}"
            )


class Imagining(Protocol):
    """Makes imagined clips with a policy, and replays of what was really done."""

    @property
    def version(self) -> int:
        """Of the world model."""

    @property
    def num_episodes(self) -> int:
        """Real episodes that could be replayed."""

    def imagine(self, policy: Any) -> list[ImaginedClip]: ...

    def replay(self, policy: Any) -> list[ImaginedClip]: ...


class Valuing(Protocol):
    """Knows what the critic thinks of clips."""

    @property
    def success_share(self) -> float:
        """Of the real clips that imagined ones branched from, how many reached success."""

    @property
    def td_rms(self) -> float:
        """Root mean square TD error on those real clips."""

    def of(self, clips: Sequence[LabelledClip]) -> Sequence[ClipValue]:
        """The values of each clip."""


class WorldModelWorker:
    """One batch of imagined clips, or a few updates of the world model, per `step()`; nobody ever waits for it.

    critics: take over the critics that were published after so many updates; False where others are there by now.
    gripper_command: index of the held gripper command in the proprio, None without a gripper. adapt: a few updates
    where they are due, and their metrics; {} where none are. lacks: what is missing before anything can be imagined, ""
    where nothing is. pruning: what keeps the store bounded.
    """

    def __init__(
        self,
        imagination: Imagining,
        labeller: Labeller,
        selection: Selection,
        valuing: Valuing | None,
        policy: Any,
        writer: StoreWriter,
        weights: WeightsPort,
        counters: CountersPort,
        config: WorldModelWorkerConfig,
        *,
        first_update: int,
        discount: float,
        refresh: Callable[[], None],
        critics: Callable[[int], bool],
        gripper_command: int | None,
        pruning: Pruning,
        adapt: Callable[[], Mapping[str, float]] = dict,
        lacks: Callable[[], str] = str,
    ) -> None:
        self._imagination, self._labeller, self._selection, self._valuing = (
            imagination,
            labeller,
            selection,
            valuing,
        )
        self._policy, self._writer, self._weights, self._counters = policy, writer, weights, counters
        self._config, self._first_update, self._discount = config, first_update, discount
        self._adapt, self._lacks, self._pruning = adapt, lacks, pruning
        self._refresh, self._critics, self._gripper_command = refresh, critics, gripper_command
        self._version = -1
        # The store outlives a lost board: what it holds was generated.
        self._generated = max(counters.get(GENERATED), writer.num_transitions)
        self._tests_left, self._tested_version, self._tested = config.tests, -1, 0
        self._imagines = -1  # the world-model version of the last step
        self._bar(counters.get(OLDEST_MODEL))

    def step(self) -> StepResult:
        """Imagine once, or say what is waited for."""
        if self._counters.get(STOP) or self._counters.get(COLLECTED):
            return StepResult(finished=True)
        self._refresh()
        adapted = self._adapt()
        self._note_version()
        if adapted:
            return StepResult(metrics=adapted)
        if lacking := self._lacks():
            return StepResult(waiting=lacking)
        due = self._config.per_update * max(0, self._counters.get(UPDATES) - self._first_update)
        if self._generated >= due:
            return StepResult(waiting=f"learner: update {self._counters.get(UPDATES)}")
        if not self._take_newest_policy():
            return StepResult(waiting="learner: first policy")
        if self._tests_scorer():
            return self._test()
        clips = self._imagination.imagine(self._policy)
        labelled = self._labeller.label(clips)
        admitted = self._select([one for one in labelled if one.clip.kind is not BranchKind.REPLAY])
        self._store(admitted)
        return StepResult(metrics=self._report(clips, labelled))

    def _note_version(self) -> None:
        """At a swap: bar what the version before imagined if its labels are not trusted by now, for whatever reason.

        The evidence that opens the gate of its successor says nothing of it. A surge may be chance, but it is also the
        first and for some episodes the only sign of a real fault, and nothing replays with the version before any more.
        """
        version, stored = self._imagination.version, self._pruning.newest_model
        if version == self._imagines:
            return
        self._imagines = version
        if self._counters.get(OLDEST_MODEL) <= stored < version and self._labeller.trust(stored) == 0.0:
            self._bar(version)

    def _bar(self, version: int) -> None:
        """What world models before `version` imagined is never drawn again."""
        self._counters.set(OLDEST_MODEL, version)
        self._pruning.drop_models_before(version)

    def _tests_scorer(self) -> bool:
        """Whether the next batch only tells what labels are worth.

        A world model gets `tests` of them in a row, and again each time that it has to be proven anew.
        """
        version = self._imagination.version
        wanted = self._labeller.wants_replays(version, self._imagination.num_episodes)
        if version != self._tested_version or not wanted:
            self._tests_left, self._tested_version = self._config.tests, version
        if not wanted or self._tests_left == 0:
            return False
        self._tests_left -= 1
        return True

    def _test(self) -> StepResult:
        """Replay. What the scorer before a new one has labelled is used meanwhile, as far as that one was trusted."""
        clips = self._imagination.replay(self._policy)
        self._labeller.label(clips)
        self._tested += sum(len(clip) for clip in clips)
        if not self._labeller.newcomer:
            self._counters.set(CALIBRATION_GATE, round(MILLIONTHS * self._labeller.gate))
        metrics = {TESTED_METRIC: float(self._tested), **self._drawable()}
        return StepResult(metrics=self._labeller.metrics() | metrics)

    def close(self) -> None:
        """Leave what was imagined readable."""
        self._writer.close()

    def state(self) -> dict[str, Any]:
        """JSON-able: what it has learned of its clips and labels; the clips themselves are in the store."""
        return {
            "selection": self._selection.state(),
            "labeller": self._labeller.state(),
            "oldest_model": self._counters.get(OLDEST_MODEL),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`."""
        self._selection.load_state(state["selection"])
        # The board knows it too, unless it was lost; states from before it was kept do not.
        self._bar(max(self._counters.get(OLDEST_MODEL), int(state.get("oldest_model", 0))))
        self._labeller.load_state(state["labeller"])

    def _take_newest_policy(self) -> bool:
        """False before the first one. Policy and critics are taken as a pair or not at all."""
        newest = self._weights.latest_version()
        if newest != self._version and newest >= 0:
            weights = self._weights.load(newest)
            if self._critics(weights.updates):
                self._policy.load_tensors(weights.tensors)
                self._version = weights.version
        return self._version >= 0

    def _select(self, labelled: Sequence[LabelledClip]) -> list[tuple[LabelledClip, Candidate]]:
        """The clips that enter the queues, with what the decision rested on."""
        values: Sequence[ClipValue] = [ClipValue(math.nan, math.nan, math.nan)] * len(labelled)
        if self._valuing is not None and labelled:
            values = self._valuing.of(labelled)
            self._selection.observe_real(self._valuing.success_share, self._valuing.td_rms)
        admitted = []
        for clip, value in zip(labelled, values, strict=True):
            candidate = Candidate(
                label=clip.label,
                q=value.q,
                source_q=value.source_q,
                first_q=value.first_q,
                label_return=clip.discounted_return(self._discount),
                risk=float(clip.clip.risk[: clip.length].max()),
                agreed=clip.agreed,
            )
            if self._selection.consider(candidate) is Admission.ADMITTED:
                admitted.append((clip, candidate))
        return admitted

    def _store(self, admitted: Sequence[tuple[LabelledClip, Candidate]]) -> None:
        for labelled, candidate in admitted:
            self._writer.begin_episode(labelled.clip.observations[0])
            for t in range(labelled.length):
                self._writer.add(self._transition(labelled, candidate, t))
            success = labelled.label is Label.SUCCESS
            info = self._writer.end_episode(
                EpisodeOutcome(EndReason.SUCCESS if success else EndReason.TIMEOUT)
            )
            self._pruning.add(
                info.end_row,
                labelled.length,
                labelled.label,
                labelled.clip.world_model_version,
                self._version,
            )
        self._pruning.step()

    def _transition(self, labelled: LabelledClip, candidate: Candidate, t: int) -> Transition:
        clip, last = labelled.clip, t == labelled.length - 1
        success = last and labelled.label is Label.SUCCESS
        before, after = clip.observations[t], clip.observations[t + 1]
        return Transition(
            observation=before,
            action=clip.action[t],
            requested_action=clip.action[t],
            reward=float(success),
            next_observation=after,
            terminated=success,
            truncated=last and not success,
            source=Source.SYNTHETIC,
            gripper_changed=self._gripper_changed(before, after),
            policy_version=self._version,
            label=labelled.label,
            provenance=Provenance(
                source_origin=int(clip.start.origin),
                source_episode=clip.start.episode,
                source_step=clip.start.step,
                kind=source_kind(clip.kind),
                perturbation_seed=clip.seed,
                world_model_version=clip.world_model_version,
                reward_model_version=labelled.reward_model_version,
                calibrator_version=labelled.calibrator_version,
                success_prob=labelled.success_prob,
                calibrated=labelled.calibrated,
                risk=float(clip.risk[t]),
                q=candidate.q,
                source_q=candidate.source_q,
                admission=int(Admission.ADMITTED),
            ),
        )

    def _gripper_changed(self, before: Observation, after: Observation) -> bool:
        """Whether the held command differs: imagined changes cost what real ones do."""
        index = self._gripper_command
        return index is not None and bool(abs(after.proprio[index] - before.proprio[index]) > 0.5)

    def _report(self, clips: Sequence[ImaginedClip], labelled: Sequence[LabelledClip]) -> dict[str, float]:
        """Publish the counts and the gate of the selection; returns what is logged."""
        # A batch of which nothing is left counts too, or this worker would try again without end.
        self._generated += sum(len(clip) for clip in clips) or 1
        self._counters.set(GENERATED, self._generated)
        self._counters.set(ADMITTED, self._writer.num_transitions)
        self._counters.set(CALIBRATION_GATE, round(MILLIONTHS * self._labeller.gate))
        self._counters.set(SUCCESS_SHARE, round(MILLIONTHS * self._selection.success_share))
        self._counters.set(
            SELECTION_GATE, round(MILLIONTHS * self._selection.gate)
        )  # the share is there by then
        shares: dict[str, float] = {}
        if clips:
            shares = {
                f"world_model/labelled_{label.name.lower()}": sum(c.label is label for c in labelled)
                / len(clips)
                for label in Label
            } | {"world_model/risk": float(np.mean([clip.risk.mean() for clip in clips]))}
        return (
            shares
            | self._selection.metrics()
            | dict(self._labeller.metrics())
            | {GENERATED_METRIC: float(self._generated), **self._drawable()}
        )

    def _drawable(self) -> dict[str, float]:
        """Transitions in the store, and from which world-model version on they may be drawn."""
        return {
            ADMITTED_METRIC: float(self._writer.num_transitions),
            OLDEST_METRIC: float(self._counters.get(OLDEST_MODEL)),
        }
