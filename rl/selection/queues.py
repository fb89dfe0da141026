"""The success and the failure queue: which synthetic transitions may still be drawn, and a sampler over both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rl.batch import Batch
from rl.replay.arrays import empty_batch, slice_batch
from rl.replay.errors import EmptyShareError
from rl.replay.reader import Rows, StoreReader
from robot.types import Label, Source


@dataclass(frozen=True)
class QueueConfig:
    """Limits of each queue.

    capacity: newest transitions of each sign. max_model_age: world-model versions behind the newest one.
    max_policy_age: published policy versions behind the newest one. max_uses: draws of one transition; a share r of
    batches of B asks for r B / per_update of them on average.
    """

    capacity: int = 5000
    max_model_age: int = 1
    max_policy_age: int = 400
    max_uses: int = 64

    def __post_init__(self) -> None:
        if min(self.capacity, self.max_uses) < 1 or min(self.max_model_age, self.max_policy_age) < 0:
            raise ValueError(f"queues: expected capacity and max_uses >= 1 and ages >= 0, got {self}")


class SyntheticQueues:
    """Draws from a synthetic store in a given share of successes; a Mixer takes it as one of its samplers.

    Only finished clips count, each with one label in all of its transitions. Either queue empty means that nothing may
    be drawn (`size` is 0): successes alone, or failures alone, would shift the critic. balanced False is for the
    comparison without selection: one queue, drawn from uniformly. Raises ValueError where a transition does not say
    that it is synthetic.
    """

    def __init__(self, reader: StoreReader, config: QueueConfig, *, balanced: bool = True) -> None:
        self._reader, self._config, self._balanced = reader, config, balanced
        self.schema = reader.schema
        self.success_share = 0.5
        self._uses: NDArray[np.uint16] = np.zeros(0, np.uint16)
        self._open: dict[Label, Rows] = {
            Label.SUCCESS: np.empty(0, np.int64),
            Label.FAILURE: np.empty(0, np.int64),
        }
        self._newest_model = self._newest_policy = -1
        self._settled = 0
        self.drawn = 0

    @property
    def size(self) -> int:
        """Transitions that may be drawn; 0 while one of the queues is empty."""
        sizes = [len(rows) for rows in self._open.values()]
        return sum(sizes) if min(sizes) or not self._balanced else 0

    def sizes(self) -> dict[Label, int]:
        """Transitions that may be drawn from each queue."""
        return {label: len(rows) for label, rows in self._open.items()}

    def refresh(self) -> None:
        """Take in new clips; drop what is too old, used up or beyond the capacity."""
        self._reader.refresh()
        settled = self._reader.num_settled
        fresh = self._reader.valid_starts[self._settled : settled]
        self._settled = settled
        if len(fresh):
            self._take(fresh.copy())

    def _take(self, rows: Rows) -> None:
        transition = self._reader.records(rows)["transition"]
        if (transition["source"] != Source.SYNTHETIC).any():
            raise ValueError(
                "synthetic store: it holds transitions that are not synthetic; keep real data apart"
            )
        grown = np.zeros(int(rows[-1]) + 1, np.uint16)
        grown[: len(self._uses)] = self._uses
        self._uses = grown
        self._newest_model = max(
            self._newest_model, int(transition["provenance"]["world_model_version"].max())
        )
        self._newest_policy = max(self._newest_policy, int(transition["policy_version"].max()))
        for label in self._open:
            joined = np.concatenate([self._open[label], rows[transition["label"] == label]])
            self._open[label] = self._fresh(joined)[-self._config.capacity :]

    def _fresh(self, rows: Rows) -> Rows:
        """Those of `rows` that are neither too old nor used up."""
        config, transition = self._config, self._reader.records(rows)["transition"]
        model = transition["provenance"]["world_model_version"] >= self._newest_model - config.max_model_age
        policy = transition["policy_version"] >= self._newest_policy - config.max_policy_age
        fresh: Rows = rows[model & policy & (self._uses[rows] < config.max_uses)]
        return fresh

    def sample(self, n: int, rng: np.random.Generator, out: Batch | None = None) -> Batch:
        """`n` transitions, round(n * success_share) of them from the success queue, with replacement.

        Raises EmptyShareError where a queue is empty and n > 0; with n = 0 no random number is drawn.
        """
        batch = empty_batch(self.schema, n) if out is None else out
        if len(batch) != n:
            raise ValueError(f"out: expected a batch of {n} transitions, got {len(batch)}")
        if n == 0:
            return batch
        if self.size == 0:
            raise EmptyShareError(
                "synthetic queues: one of them is empty; use no synthetic data until both are filled"
            )
        share = self.success_share if self._balanced else len(self._open[Label.SUCCESS]) / self.size
        successes = round(n * share)
        drawn = [
            rng.choice(self._open[label], count)
            for label, count in ((Label.SUCCESS, successes), (Label.FAILURE, n - successes))
            if count
        ]
        rows = np.concatenate(drawn)
        self._reader.gather(rows, slice_batch(batch, 0, n))
        np.add.at(self._uses, rows, 1)
        self.drawn += n
        if (self._uses[rows] >= self._config.max_uses).any():
            self._open = {label: self._fresh(kept) for label, kept in self._open.items()}
        return batch
