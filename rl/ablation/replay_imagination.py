"""ReplayImagination: in the world model's place, shows the clips that the recorded run imagined, when it had them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rl.replay.copying import copy_episode
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from rl.workers.ports import (
    ADMITTED,
    CALIBRATION_GATE,
    COLLECTED,
    ENV_STEPS,
    GENERATED,
    MILLIONTHS,
    OLDEST_MODEL,
    SELECTION_GATE,
    STOP,
    SUCCESS_SHARE,
    UPDATES,
    WORLD_MODEL_GATE,
    CountersPort,
    StepResult,
)
from rl.workers.world_model import ADMITTED_METRIC, GENERATED_METRIC, OLDEST_METRIC

GATES = {  # what the run logged of a gate -> the counter by which the learner hears of it
    "selection/gate_world_model": WORLD_MODEL_GATE,
    "selection/gate": SELECTION_GATE,
    "selection/gate_calibration": CALIBRATION_GATE,
    "selection/success_share": SUCCESS_SHARE,
}


@dataclass(frozen=True)
class Moment:
    """What a line of the run's metrics says. admitted, generated: transitions by then; oldest: the first world-model
    version that may still be drawn; None where it says nothing.
    """

    env_steps: int
    updates: int
    admitted: int | None
    generated: int | None
    oldest: int | None
    gates: Mapping[str, int]


def moments(records: Sequence[Mapping[str, float]]) -> list[Moment]:
    """The course of imagination in a run's metrics, in their order."""
    found = [
        Moment(
            env_steps=int(record["env_steps"]),
            updates=int(record["updates"]),
            admitted=_count(record.get(ADMITTED_METRIC)),
            generated=_count(record.get(GENERATED_METRIC)),
            oldest=_count(record.get(OLDEST_METRIC)),
            gates={
                counter: round(MILLIONTHS * value)
                for name, counter in GATES.items()
                if (value := record.get(name)) is not None
            },
        )
        for record in records
    ]
    return [m for m in _without_removed(found) if m.gates or m.admitted is not None or m.oldest is not None]


def _without_removed(course: Sequence[Moment]) -> list[Moment]:
    """The same without counts of clips that the run has removed, since another judge took over or they were damaged.

    The store, and with it the count of what was admitted, began anew there.
    """
    begins = admitted = 0
    for index, moment in enumerate(course):
        if moment.admitted is not None:
            begins = index if moment.admitted < admitted else begins
            admitted = moment.admitted
    return [replace(moment, admitted=None) for moment in course[:begins]] + list(course[begins:])


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)


class ReplayImagination:
    """Copies recorded clips with their provenance into a store of its own, none before its time.

    Its time is told by env steps, and by updates while the robot has not moved: an arm with other updates per env step
    sees a clip at the env step at which the recorded learner did.
    """

    def __init__(
        self, recorded: StoreReader, course: Sequence[Moment], writer: StoreWriter, counters: CountersPort
    ) -> None:
        self._recorded, self._course, self._writer, self._counters = recorded, course, writer, counters
        self._next_moment = self._next_episode = 0
        self._shown = self._due = 0

    def step(self) -> StepResult:
        """Show what is due, one clip at a time."""
        if self._counters.get(STOP) or self._counters.get(COLLECTED):
            return StepResult(finished=True)
        now = (self._counters.get(ENV_STEPS), self._counters.get(UPDATES))
        while self._next_moment < len(self._course):
            moment = self._course[self._next_moment]
            if (moment.env_steps, moment.updates) > now:
                break
            self._next_moment += 1
            self._pass(moment)
        episodes = self._recorded.episodes()
        if self._shown >= self._due or self._next_episode == len(episodes):
            return StepResult(waiting=f"actor: env step {now[0]}")
        info = episodes[self._next_episode]
        self._next_episode += 1
        self._shown += info.num_transitions
        if not info.discarded and info.first_row >= self._first_row:
            copy_episode(self._recorded, info, self._writer)
        return StepResult(
            metrics={
                ADMITTED_METRIC: float(self._shown),
                GENERATED_METRIC: float(self._counters.get(GENERATED)),
            }
        )

    def close(self) -> None:
        """Leave what was shown readable."""
        self._writer.close()

    @property
    def _first_row(self) -> int:
        """The first row that the run has not put away."""
        starts = self._recorded.valid_starts
        return int(starts[0]) if len(starts) else self._recorded.num_rows

    def _pass(self, moment: Moment) -> None:
        if moment.admitted is not None:
            self._due = max(self._due, moment.admitted)
            self._counters.set(ADMITTED, moment.admitted)
        if moment.generated is not None:
            self._counters.set(GENERATED, moment.generated)
        if moment.oldest is not None:
            self._counters.set(OLDEST_MODEL, moment.oldest)
        for counter, value in moment.gates.items():
            self._counters.set(counter, value)
