"""Stream: what an arm shows of each recorded episode; between the recording and the replay in the actor's place."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from rl.ablation.recording import Recording
from rl.ablation.relabel import Relabeller
from rl.replay.journal import EndReason, EpisodeOutcome
from robot.types import Observation, Transition


@dataclass(frozen=True)
class ShownEpisode:
    """The first `steps` of an episode that took `length` env steps on the robot; nothing of it where there are none."""

    first: Observation
    steps: tuple[Transition, ...]
    length: int
    outcome: EpisodeOutcome


class Stream:
    """The robot's episodes in their order. An episode that is hidden still takes its time.

    held_out: hidden episodes. corrections: False cuts each episode off before its first correction, since without the
    person nothing behind it would have come about.
    """

    def __init__(
        self,
        recording: Recording,
        held_out: Set[int],
        *,
        corrections: bool,
        relabeller: Relabeller | None = None,
    ) -> None:
        self._recording, self._held_out = recording, held_out
        self._corrections, self._relabeller = corrections, relabeller

    @property
    def num_episodes(self) -> int:
        return len(self._recording.episodes)

    def episode(self, number: int) -> ShownEpisode:
        """What is shown of the recorded episode `number`."""
        info, episode = self._recording.episodes[number], self._recording.real.episode(number)
        first, length = episode.observation(0), len(episode)
        if number in self._held_out:
            return ShownEpisode(first, (), length, EpisodeOutcome(EndReason.DISCARDED, "held out"))
        steps, outcome = list(episode.transitions()), info.outcome
        if self._relabeller is not None and not info.discarded:
            steps, outcome = self._relabeller.apply(episode)
        if not self._corrections:
            corrected = [t for t, step in enumerate(steps) if step.intervened]
            if corrected:
                steps = steps[: corrected[0]]
                outcome = EpisodeOutcome(EndReason.STOPPED, "cut before its first correction")
        if info.discarded or not steps:
            outcome = EpisodeOutcome(EndReason.DISCARDED, outcome.detail)
        return ShownEpisode(first, tuple(steps), length, outcome)
