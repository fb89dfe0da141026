"""Lessons: which real episodes the models of a run have learned from, so that their replays prove little."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from rl.imagination.clip import Origin, Start
from rl.replay.fingerprint import fingerprint
from rl.replay.reader import StoreReader
from rl.replay.sampler import Holdout


@dataclass
class Lessons:
    """What the world model that imagines, and the judge of what it shows, have learned from.

    readers: of the demonstrations and of the online episodes. holdout: of both, what the run's own world model never
    learns from. given: this version was given to the run and has learned nothing here. online: else, from so many
    online episodes at most, the first of the run. inherited: fingerprints of what a given world model, or the one that
    this one descends from, had learned from before. judge: the same of the judge. None: not known.
    """

    readers: Mapping[Origin, StoreReader]
    holdout: Holdout
    given: bool
    online: int
    inherited: Collection[str] | None
    judge: Collection[str] | None = None
    _names: dict[Start, str] = field(default_factory=dict, init=False)

    def replaced(self, online: int) -> None:
        """A version that the run trained imagines from now on, after `online` online episodes."""
        self.given, self.online = False, online

    def unseen(self, start: Start) -> bool:
        """Whether neither has learned from the episode of `start`; False where nobody knows."""
        held_out = bool(self.holdout.contains(np.array([start.episode]))[0])
        match start.origin:
            case Origin.ANCHOR:
                return True  # compared with what both have learned from before the run began
            case Origin.DEMO:
                told = self.inherited is not None and self.judge is not None
                return told and (self.given or held_out) and not self._before(start)
            case Origin.ONLINE:
                return (held_out or start.episode >= self.online) and not self._before(start)

    def _before(self, start: Start) -> bool:
        """Whether one of them says that it had learned from it before the run."""
        episode = Start(start.origin, start.episode, 0)
        if episode not in self._names:
            self._names[episode] = fingerprint(self.readers[start.origin], start.episode)
        name = self._names[episode]
        return name in (self.inherited or ()) or name in (self.judge or ())
