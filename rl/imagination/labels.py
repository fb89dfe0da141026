"""Labels: imagined clips -> what the critic may learn from them; a clip is cut at its success."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rl.imagination.clip import ImaginedClip
from robot.types import Label


@dataclass(frozen=True)
class LabelledClip:
    """An imagined clip with its outcome. length: steps that count; behind a success nothing does.

    SUCCESS: the last of them reaches it, reward 1, terminal. FAILURE: none does; the clip is cut off and goes on in
    the critic's mind, it is no terminal failure. success_prob, calibrated: scores, NaN where nobody scored.
    agreed: every judgement gave this label.
    """

    clip: ImaginedClip
    label: Label
    length: int
    success_prob: float = float("nan")
    calibrated: float = float("nan")
    reward_model_version: int = -1
    calibrator_version: int = -1
    agreed: bool = True

    def discounted_return(self, discount: float) -> float:
        """Of the labels, from the first step on."""
        return discount ** (self.length - 1) if self.label is Label.SUCCESS else 0.0


class Labeller(Protocol):
    """Judges imagined clips."""

    def label(self, clips: Sequence[ImaginedClip]) -> list[LabelledClip]:
        """One label per clip, UNKNOWN where it is not known; unknown is never failure."""


class TruthLabeller:
    """Takes the simulator's word: for the ceiling, and to find out what labels cost."""

    def label(self, clips: Sequence[ImaginedClip]) -> list[LabelledClip]:
        """SUCCESS at the first step that reached it; UNKNOWN where the simulator said nothing of some step."""
        return [self._one(clip) for clip in clips]

    @staticmethod
    def _one(clip: ImaginedClip) -> LabelledClip:
        reached = np.flatnonzero([truth is Label.SUCCESS for truth in clip.truth])
        if len(reached):
            return LabelledClip(clip, Label.SUCCESS, int(reached[0]) + 1)
        known = all(truth is Label.FAILURE for truth in clip.truth)
        return LabelledClip(clip, Label.FAILURE if known else Label.UNKNOWN, len(clip))
