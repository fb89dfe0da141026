"""Why a simulated episode failed, in a few words: what the task says, else how near its job came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from robot.sim.world import SimWorld

NEVER_REACHED, LOST, UNFINISHED = "never reached", "lost again", "not finished"
REACHED = 0.5  # share of the first distance; an episode that never came nearer never reached its job
SLIPPED = 0.25  # share of the first distance by which the last one may exceed the least


@runtime_checkable
class NamesFailure(Protocol):
    """A SimTask that knows its own ways to fail."""

    def failure(self, world: SimWorld) -> str:
        """Why the job is not done at the end of the episode, in a few words such as "jammed"; "" = cannot tell."""


def by_progress(distances: Sequence[float]) -> str:
    """The class of a failed episode from the task's `progress` [m] at each of its steps."""
    if not distances or min(distances) > REACHED * distances[0]:
        return NEVER_REACHED
    return LOST if distances[-1] > min(distances) + SLIPPED * distances[0] else UNFINISHED
