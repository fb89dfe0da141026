"""Mixer: batches with exact shares of demonstrations, online and synthetic data, for the learner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from rl.batch import Batch
from rl.replay.arrays import empty_batch, slice_batch
from rl.replay.schema import StoreSchema


@dataclass(frozen=True, slots=True)
class Waiting:
    """No batch yet: `share` has `have` transitions and needs `need`."""

    share: str
    have: int
    need: int

    def __str__(self) -> str:
        return f"waiting for '{self.share}': {self.have} of {self.need} transitions"


@dataclass(frozen=True)
class MixerConfig:
    """min_transitions: what each share with a count > 0 must hold before there is a batch [transitions]."""

    min_transitions: int = 1

    def __post_init__(self) -> None:
        if self.min_transitions < 1:
            raise ValueError(f"min_transitions: expected >= 1, got {self.min_transitions}")


class Sampler(Protocol):
    """Draws transitions of one kind."""

    schema: StoreSchema

    @property
    def size(self) -> int:
        """Transitions to draw from."""

    def refresh(self) -> None:
        """Take in what was published since."""

    def sample(self, n: int, rng: np.random.Generator, out: Batch | None = None) -> Batch:
        """`n` transitions, into `out` if given; draws no random number where n is 0."""


class Mixer:
    """Fills batches from named samplers; a batch has exactly the size and shares asked for."""

    def __init__(self, samplers: Mapping[str, Sampler], config: MixerConfig | None = None) -> None:
        if not samplers:
            raise ValueError("a mixer needs at least one sampler, got none")
        self._samplers = dict(samplers)
        self._config = config or MixerConfig()
        self.schema = next(iter(self._samplers.values())).schema
        for sampler in self._samplers.values():
            self.schema.check_compatible(sampler.schema)

    def sizes(self) -> dict[str, int]:
        """Transitions in each share."""
        return {name: sampler.size for name, sampler in self._samplers.items()}

    def refresh(self) -> None:
        """Take in what the stores have published since."""
        for sampler in self._samplers.values():
            sampler.refresh()

    def sample(
        self, batch_size: int, shares: Mapping[str, float], rng: np.random.Generator, out: Batch | None = None
    ) -> Batch | Waiting:
        """A batch with its shares one behind the other in the order given, in the arrays of `out` if given.

        shares: name -> fraction, summing to 1; turned into counts by largest remainder. Returns Waiting, and
        draws nothing, while a share with a count > 0 holds too little. Raises ValueError for unknown shares.
        """
        counts = exact_counts(batch_size, shares)
        for name, count in counts.items():
            if name not in self._samplers:
                raise ValueError(f"shares: unknown share {name!r}; this mixer has {sorted(self._samplers)}")
            have = self._samplers[name].size
            if count and have < self._config.min_transitions:
                return Waiting(name, have, self._config.min_transitions)
        batch = empty_batch(self.schema, batch_size) if out is None else out
        if len(batch) != batch_size:
            raise ValueError(f"out: expected a batch of {batch_size} transitions, got {len(batch)}")
        filled = 0
        for name, count in counts.items():
            self._samplers[name].sample(count, rng, slice_batch(batch, filled, filled + count))
            filled += count
        return replace(batch, shares=counts)


def exact_counts(batch_size: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Whole counts that sum to `batch_size`, by largest remainder; ties go to the share named first."""
    values = list(shares.values())
    if not all(math.isfinite(value) and value >= 0 for value in values) or abs(sum(values) - 1.0) > 1e-6:
        raise ValueError(f"shares: expected fractions >= 0 that sum to 1, got {dict(shares)}")
    # Rounded first, so that 0.3 * 10 does not lose a transition to binary fractions.
    quotas = {name: round(batch_size * value, 6) for name, value in shares.items()}
    counts = {name: math.floor(quota) for name, quota in quotas.items()}
    by_remainder = sorted(
        shares, key=lambda name: counts[name] - quotas[name]
    )  # stable: ties keep their order
    for name in by_remainder[: batch_size - sum(counts.values())]:
        counts[name] += 1
    return counts
