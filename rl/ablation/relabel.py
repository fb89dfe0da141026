"""Relabeller: a reward model in the place of the recorded outcome, and how often the two agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from reward_model.classifier import SuccessClassifier
from reward_model.interface import RewardModel, by_name
from reward_model.labels import Thresholds, label_clips
from rl.config import ConfigError
from rl.replay.journal import EndReason, EpisodeInfo, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.reward_models.data import outcome_of
from robot.types import Episode, Label, Transition


@dataclass(frozen=True)
class Verdict:
    """What the model says of an episode. steps: after so many it had succeeded; 0 where it never did."""

    label: Label
    steps: int


@dataclass(frozen=True)
class Agreement:
    """Episodes of known outcome, by label and outcome; a label may be unknown."""

    true_successes: int
    false_successes: int
    missed_successes: int
    true_failures: int
    unknown_labels: int

    def as_json(self) -> dict[str, Any]:
        """All counts, with precision and recall."""
        return asdict(self) | {"precision": self.precision, "recall": self.recall}

    @property
    def precision(self) -> float | None:
        """Of those that it calls a success, the share that were; None where it calls none so."""
        called = self.true_successes + self.false_successes
        return self.true_successes / called if called else None

    @property
    def recall(self) -> float | None:
        """Of the successes the share that it calls one; an unknown label misses, too."""
        were = self.true_successes + self.missed_successes
        return self.true_successes / were if were else None


class Relabeller:
    """Judges whole recorded episodes, frame by frame: what it says at a step rests on frames up to there."""

    def __init__(self, model: RewardModel, thresholds: Thresholds, reader: StoreReader) -> None:
        self._model, self._thresholds, self._reader = model, thresholds, reader
        self._verdicts: dict[int, Verdict] = {}
        needed, recorded = (
            (*model.views, *model.readings),
            (*reader.schema.views, *reader.schema.proprio.names),
        )
        if not set(needed) <= set(recorded) or model.task != reader.schema.task:
            raise ConfigError(
                f"stream.reward_model: it judges {model.task} by the views and readings {list(needed)}, the run "
                f"recorded {reader.schema.task} with {list(recorded)}; take one that was trained on such recordings"
            )
        if thresholds.success is None:
            raise ConfigError(
                "stream.reward_model: it has no threshold of success, too few episodes were held out for one; "
                "say stream.success_threshold=<0..1>, or train it on more"
            )

    @classmethod
    def of(cls, model: SuccessClassifier, threshold: float | None, reader: StoreReader) -> Relabeller:
        """With the thresholds that were chosen when the model was trained, or another one of success."""
        thresholds = model.thresholds or Thresholds(None, None)
        if threshold is not None:
            failure = thresholds.failure if (thresholds.failure or 0.0) < threshold else None
            thresholds = replace(thresholds, success=threshold, failure=failure)
        return cls(model, thresholds, reader)

    def verdict(self, number: int) -> Verdict:
        """Of the recorded episode `number`."""
        if number not in self._verdicts:
            episode = self._reader.episode(number)
            prob = self._model.score(
                {view: episode.images[view][None] for view in self._model.views},
                by_name(episode.proprio[None], self._reader.schema.proprio.names),
            )
            found = label_clips(prob, self._thresholds)
            # Frame k is behind step k - 1; a success at frame 0 was there before anything was done.
            step = int(found.step[0])
            steps = max(1, step) if step >= 0 else 0
            self._verdicts[number] = Verdict(Label(int(found.label[0])), steps)
        return self._verdicts[number]

    def apply(self, episode: Episode) -> tuple[list[Transition], EpisodeOutcome]:
        """The episode's steps with its own rewards, to its own end; where it sees no success they are cut off.

        Unknown is not failure, and a failure is no terminal one: the critic goes on from the last state.
        """
        verdict = self.verdict(episode.episode)
        steps = list(episode.transitions())
        success = verdict.label is Label.SUCCESS
        kept = steps[: verdict.steps] if success else steps
        shown = [
            replace(step, reward=0.0, terminated=False, truncated=False, label=Label.UNKNOWN) for step in kept
        ]
        if shown:
            shown[-1] = replace(
                shown[-1],
                reward=float(success),
                terminated=success,
                truncated=not success,
                label=verdict.label,
            )
        return shown, EpisodeOutcome(EndReason.SUCCESS if success else EndReason.TIMEOUT, "relabelled")

    def agreement(self, episodes: Sequence[EpisodeInfo]) -> Agreement:
        """Labels against recorded outcomes, over the episodes whose outcome is known."""
        pairs = [
            (self.verdict(info.episode).label, outcome)
            for info in episodes
            if (outcome := outcome_of(info.outcome.reason)) is not Label.UNKNOWN and info.num_transitions
        ]
        succeeded = [label for label, outcome in pairs if outcome is Label.SUCCESS]
        failed = [label for label, outcome in pairs if outcome is Label.FAILURE]
        return Agreement(
            true_successes=succeeded.count(Label.SUCCESS),
            false_successes=failed.count(Label.SUCCESS),
            missed_successes=len(succeeded) - succeeded.count(Label.SUCCESS),
            true_failures=failed.count(Label.FAILURE),
            unknown_labels=[label for label, _ in pairs].count(Label.UNKNOWN),
        )
