"""The success and the failure queue: which synthetic transitions may still be drawn, and a sampler over both."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl.batch import Batch
from rl.replay.arrays import empty_batch, slice_batch
from rl.replay.errors import EmptyShareError
from rl.replay.journal import EndReason
from rl.replay.reader import ONE_STEP, Lookahead, Rows, StoreReader
from robot.types import Label, Source

MAX_USES = 1 << 15  # far below where the counter of draws would overflow
CHUNK = 4096  # rows that are read at once, so that a long store is not taken in as a whole

# What is kept of each row: its draws, and what it was imagined with.
_ENTRY = np.dtype([("uses", "<u2"), ("model", "<i4"), ("policy", "<i4")])


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
        if self.max_uses > MAX_USES:
            raise ValueError(f"queues.max_uses: expected at most {MAX_USES}, got {self.max_uses}")


class SyntheticQueues:
    """Draws from a synthetic store in a given share of successes; a Mixer takes it as one of its samplers.

    Only whole clips count, each with one label in all of its transitions: one that a dying worker left behind is half a
    clip. Either queue empty means that nothing may be drawn (`size` is 0): successes alone, or failures alone, would
    shift the critic. balanced False is for comparisons without selection: one queue, drawn from uniformly. kept: the
    labels of the clips that may be drawn. ahead: how far their returns look, at most to the end of their clip. Raises
    ValueError where a transition does not say that it is synthetic.
    """

    def __init__(
        self,
        reader: StoreReader,
        config: QueueConfig,
        ahead: Lookahead = ONE_STEP,
        *,
        kept: Collection[Label] = (Label.SUCCESS, Label.FAILURE),
        balanced: bool = True,
    ) -> None:
        self._reader, self._config, self._ahead = reader, config, ahead
        self._kept, self._balanced = kept, balanced
        self.schema = reader.schema
        self.success_share = 0.5
        self._entries: NDArray[np.void] = np.zeros(0, _ENTRY)  # by row
        self._open: dict[Label, Rows] = {
            Label.SUCCESS: np.empty(0, np.int64),
            Label.FAILURE: np.empty(0, np.int64),
        }
        self._newest_model = self._newest_policy = -1
        self._oldest_model = 0
        self._settled = self._episodes = 0
        self._torn: list[int] = []
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
        fresh = self._reader.valid_starts[self._settled : settled].copy()
        self._settled = settled
        self._note_torn()
        for begin in range(0, len(fresh), CHUNK):
            self._take(fresh[begin : begin + CHUNK])
        if len(fresh):
            self._drop()

    def policy_is(self, version: int) -> None:
        """The learner's newest policy: clips grow old also while nothing new is imagined."""
        if version > self._newest_policy:
            self._newest_policy = version
            self._drop()

    def drop_models_before(self, version: int) -> None:
        """Never draw again what world models before `version` imagined: their labels were not trusted."""
        if version > self._oldest_model:
            self._oldest_model = version
            self._drop()

    def _take(self, rows: Rows) -> None:
        records = self._reader.records(rows)
        transition = records["transition"]
        if (transition["source"] != Source.SYNTHETIC).any():
            raise ValueError(
                "synthetic store: it holds transitions that are not synthetic; keep real data apart"
            )
        self._make_room(int(rows[-1]) + 1)
        model, policy = transition["provenance"]["world_model_version"], transition["policy_version"]
        self._entries["model"][rows], self._entries["policy"][rows] = model, policy
        self._newest_model = max(self._newest_model, int(model.max()))
        self._newest_policy = max(self._newest_policy, int(policy.max()))
        whole = ~np.isin(records["observation"]["episode"], self._torn)
        for label, open_rows in self._open.items():
            fits = whole & (transition["label"] == label) & (label in self._kept)
            self._open[label] = np.concatenate([open_rows, rows[fits]])

    def _note_torn(self) -> None:
        """Remember the clips whose writer ended in the middle of them."""
        finished = self._reader.episodes()[self._episodes :]
        self._episodes += len(finished)
        torn = (EndReason.RECOVERED, EndReason.STOPPED)
        self._torn += [info.episode for info in finished if info.outcome.reason in torn]

    def _make_room(self, rows: int) -> None:
        if rows > len(self._entries):
            grown = np.zeros(max(rows, 2 * len(self._entries)), _ENTRY)
            grown[: len(self._entries)] = self._entries
            self._entries = grown

    def _drop(self) -> None:
        """Keep those that are neither too old nor used up, the newest `capacity` of each sign."""
        config = self._config
        for label, rows in self._open.items():
            entries = self._entries[rows]
            fresh = self._is_young(entries) & (entries["uses"] < config.max_uses)
            self._open[label] = rows[fresh][-config.capacity :]
        oldest = [rows[0] for rows in self._open.values() if len(rows)]
        self._reader.forget(int(min(oldest)) if oldest else self._reader.num_rows)

    def _is_young(self, entries: NDArray[np.void]) -> NDArray[np.bool_]:
        """Whether neither world model nor policy of each of `entries` is too old."""
        oldest_model = max(self._oldest_model, self._newest_model - self._config.max_model_age)
        young: NDArray[np.bool_] = entries["model"] >= oldest_model
        young &= entries["policy"] >= self._newest_policy - self._config.max_policy_age
        return young

    def sample(self, n: int, rng: np.random.Generator, out: Batch | None = None) -> Batch:
        """`n` transitions with replacement, success_share of them from the success queue on average.

        n * success_share is rounded up or down at random: to the nearest, small batches would never see the rarer sign.
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
        successes = int(n * share + rng.random())
        drawn = [
            rng.choice(self._open[label], count)
            for label, count in ((Label.SUCCESS, successes), (Label.FAILURE, n - successes))
            if count
        ]
        rows = np.concatenate(drawn)
        self._reader.gather(rows, slice_batch(batch, 0, n), self._ahead)
        np.add.at(self._entries["uses"], rows, 1)
        self.drawn += n
        if (self._entries["uses"][rows] >= self._config.max_uses).any():
            self._drop()
        return batch

    def state(self) -> dict[str, Any]:
        """JSON-able: what has been drawn, and how often each transition that is not too old, used up or not."""
        used = np.flatnonzero((self._entries["uses"] > 0) & self._is_young(self._entries))
        return {"drawn": self.drawn, "rows": used.tolist(), "uses": self._entries["uses"][used].tolist()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Count on from `state()`."""
        self.refresh()
        self.drawn = int(state["drawn"])
        rows, uses = np.array(state["rows"], np.int64), np.array(state["uses"], np.uint16)
        known = rows < len(self._entries)  # a store that was put away takes its draws along
        self._entries["uses"][rows[known]] = uses[known]
        self._drop()
