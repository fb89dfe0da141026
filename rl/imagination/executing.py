"""Executing: imagined clips are carried out in the simulator, which tells what would really have become of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rl.imagination.clip import ImaginedClip, Imaginer
from rl.imagination.labels import LabelledClip, Labeller
from robot.types import Label
from worldmodel.counterfactual import BranchKind


class ExecutingLabeller:
    """Labels as `inner` does, once the truth of a share of the clips is known; replays know theirs.

    With a reward model inside, those clips are anchors of what was really executed, the only unbiased ones; with the
    truth inside and a share of 1, the labels are the true ones. simulator: an Imaginer that is right.
    """

    def __init__(self, inner: Labeller, simulator: Imaginer, share: float, rng: np.random.Generator) -> None:
        self._inner, self._simulator, self._share, self._rng = inner, simulator, share, rng
        self.executed_steps = 0

    @property
    def gate(self) -> float:
        """How far labels are trusted, in [0, 1]."""
        return self._inner.gate

    @property
    def newcomer(self) -> bool:
        """As of `inner`."""
        return self._inner.newcomer

    def trust(self, version: int) -> float:
        """As `inner` does."""
        return self._inner.trust(version)

    def wants_replays(self, version: int, episodes: int) -> bool:
        """As `inner` does."""
        return self._inner.wants_replays(version, episodes)

    def metrics(self) -> dict[str, float]:
        """Those of `inner`, and the control steps that a robot would have spent on it."""
        return self._inner.metrics() | {"calibration/executed_steps": float(self.executed_steps)}

    def label(self, clips: Sequence[ImaginedClip]) -> list[LabelledClip]:
        """One label per clip."""
        return self._inner.label([self._told(clip) for clip in clips])

    def state(self) -> dict[str, Any]:
        """JSON-able."""
        return {"inner": self._inner.state(), "executed_steps": self.executed_steps}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`."""
        self._inner.load_state(state["inner"])
        self.executed_steps = int(state["executed_steps"])

    def _told(self, clip: ImaginedClip) -> ImaginedClip:
        """Drawn before any score is seen."""
        if clip.kind is BranchKind.REPLAY or self._rng.random() >= self._share:
            return clip
        session = self._simulator.begin([clip.start], clip.seed)
        truth: list[Label] = []
        for action in clip.action:
            futures = session.step(action[None])
            if futures.lost[0]:
                return clip
            truth.append(futures.truth[0])
            self.executed_steps += 1
            if futures.over[0]:
                break
        # Behind a success nothing counts; behind a time limit nothing is known.
        return replace(clip, truth=truth + [Label.UNKNOWN] * (len(clip) - len(truth)))
