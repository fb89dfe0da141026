"""ClipMixer: clips of several samplers in fixed shares, such as newest, older and demonstrations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rl.replay.mixer import exact_counts
from rl.replay.sampler import ClipSampler, concatenate_clips
from robot.types import Clip


class ClipMixer:
    """A ClipSource. shares: part -> (sampler, share); the share of a part that is empty goes to the others."""

    def __init__(self, shares: Mapping[str, tuple[ClipSampler, float]]) -> None:
        exact_counts(
            1, {name: share for name, (_, share) in shares.items()}
        )  # raises where they do not sum to 1
        self._shares = dict(shares)

    @property
    def size(self) -> int:
        """Start positions to draw from; one that lies in two parts counts twice."""
        return sum(sampler.size for sampler, _ in self._shares.values())

    def refresh(self) -> None:
        """Take in what the stores have published since."""
        for sampler, _ in self._shares.values():
            sampler.refresh()

    def sample(self, n: int, length: int, rng: np.random.Generator, history: int = 0) -> Clip:
        """`n` clips, exactly in the shares; raises EmptyShareError where all parts are empty."""
        filled = {name: pair for name, pair in self._shares.items() if pair[0].size} or self._shares
        total = sum(share for _, share in filled.values()) or 1.0
        counts = exact_counts(n, {name: share / total for name, (_, share) in filled.items()})
        clips = [filled[name][0].sample(k, length, rng, history) for name, k in counts.items() if k]
        return concatenate_clips(clips)
