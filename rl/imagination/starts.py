"""Starts: the real states from which clips are imagined, and what was really done there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from rl.imagination.clip import Origin, Start
from rl.replay.errors import EmptyShareError
from rl.replay.journal import EpisodeInfo
from rl.replay.reader import StoreReader
from rl.replay.sampler import gather_clips
from robot.types import Clip


class OnlineStarts(Enum):
    """From which online episodes."""

    ALL = "all"
    FAILED = "failed"  # those that did not end in success


@dataclass(frozen=True)
class StartConfig:
    """Which real states.

    demo_share: of the starts, the others are online states; demonstrations alone until there are any.
    online: which online episodes count. newest_episodes: online starts come from so many of the newest finished ones;
    None from all.
    """

    demo_share: float = 0.5
    online: OnlineStarts = OnlineStarts.ALL
    newest_episodes: int | None = 20

    def __post_init__(self) -> None:
        if not 0.0 <= self.demo_share <= 1.0:
            raise ValueError(f"starts.demo_share: expected 0..1, got {self.demo_share}")
        if self.newest_episodes is not None and self.newest_episodes < 1:
            raise ValueError(f"starts.newest_episodes: expected >= 1 or none, got {self.newest_episodes}")


class StartPool:
    """Draws starts from two stores; only finished episodes that were not discarded.

    anchors: recordings that are replayed and nothing else. Raises SchemaMismatchError where they do not match.
    """

    def __init__(
        self, demo: StoreReader, online: StoreReader, config: StartConfig, anchors: StoreReader | None = None
    ) -> None:
        self.readers = {Origin.DEMO: demo, Origin.ONLINE: online}
        self.schema = demo.schema
        if anchors is not None:
            self.schema.check_compatible(anchors.schema)
        self.anchors, self._config = anchors, config

    @property
    def num_episodes(self) -> int:
        """Episodes that `draw_replays` may choose, so far as they were visible at the last refresh."""
        share = self._config.demo_share
        online = len(self._online()) if share < 1.0 else 0
        demos = len(_kept(self.readers[Origin.DEMO])) if share > 0.0 or not online else 0
        return demos + online + (len(_kept(self.anchors)) if self.anchors is not None else 0)

    def refresh(self) -> None:
        """Take in what was recorded since."""
        for reader in self.readers.values():
            reader.refresh()

    def draw(self, n: int, rng: np.random.Generator) -> list[Start]:
        """`n` starts, with replacement. Raises EmptyShareError where no episode is finished."""
        rows = {origin: self._rows(origin) for origin in self.readers}
        if not any(len(of) for of in rows.values()):
            raise EmptyShareError(
                "nothing to imagine from: no finished episode yet; record demonstrations first"
            )
        starts = []
        for _ in range(n):
            wanted = Origin.DEMO if rng.random() < self._config.demo_share else Origin.ONLINE
            origin = wanted if len(rows[wanted]) else Origin(1 - wanted)
            starts.append(self._start(origin, int(rows[origin][int(rng.integers(len(rows[origin])))])))
        return starts

    def draw_replays(self, n: int, rng: np.random.Generator) -> list[Start]:
        """`n` starts of replays: as `draw`, and where there are anchors half of them from those.

        Where clips are branched from decides how many of them succeed, and calibration depends on that.
        """
        starts = self.draw(n, rng)
        if self.anchors is None:
            return starts
        rows = self.anchors.valid_starts[: self.anchors.num_settled]
        anchored = rng.random(n) < 0.5
        return [
            self._start(Origin.ANCHOR, int(rng.choice(rows))) if anchor else start
            for start, anchor in zip(starts, anchored, strict=True)
        ]

    def clip(self, start: Start, length: int, history: int = 0) -> Clip:
        """What really happened from `start` on: one clip of `length` actions with `history` steps before."""
        reader = self._reader(start.origin)
        row = reader.episodes()[start.episode].first_row + start.step
        return gather_clips(reader, np.array([row]), length, history)

    def _reader(self, origin: Origin) -> StoreReader:
        if origin is Origin.ANCHOR and self.anchors is not None:
            return self.anchors
        return self.readers[origin]

    def _start(self, origin: Origin, row: int) -> Start:
        where = self._reader(origin).records(np.array([row]))["observation"][0]
        return Start(origin, int(where["episode"]), int(where["step"]))

    def _rows(self, origin: Origin) -> NDArray[np.int64]:
        reader = self.readers[origin]
        settled = reader.valid_starts[: reader.num_settled]
        if origin is Origin.DEMO or not len(settled):
            return settled
        rows = (np.arange(info.first_row, info.end_row - 1) for info in self._online())
        return np.concatenate([np.empty(0, np.int64), *rows])

    def _online(self) -> list[EpisodeInfo]:
        """The online episodes that starts come from."""
        kept = _kept(self.readers[Origin.ONLINE])
        if self._config.online is OnlineStarts.FAILED:
            kept = [info for info in kept if not info.success]
        newest = self._config.newest_episodes
        return kept if newest is None else kept[-newest:]


def _kept(reader: StoreReader) -> list[EpisodeInfo]:
    """The finished episodes that were not discarded."""
    return [info for info in reader.episodes() if not info.discarded]
