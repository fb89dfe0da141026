"""Opening a store after its writer died: trust the journal, verify the rows behind it, keep whole ones."""

from __future__ import annotations

from dataclasses import dataclass

from rl.replay.errors import CorruptStoreError
from rl.replay.journal import (
    EndReason,
    EpisodeInfo,
    EpisodeTally,
    JournalReader,
    JournalWriter,
)
from rl.replay.rows import RawRow, RowCodec
from rl.replay.schema import StoreSchema
from rl.replay.store import ROWS_FILE, RowCount, SegmentMap, StorePaths, sync_path
from robot.types import Source


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What an opening found and cut.

    kept_rows: rows of the store now. recovered_rows: those of them that no journal line covered.
    torn_rows: published rows that were not whole, cut off. torn_steps: steps begun, not published, cut off.
    """

    kept_rows: int = 0
    recovered_rows: int = 0
    recovered_episodes: int = 0
    torn_rows: int = 0
    torn_steps: int = 0
    torn_journal_bytes: int = 0

    @property
    def clean(self) -> bool:
        """Nothing had to be recovered or cut."""
        return self == RecoveryReport(kept_rows=self.kept_rows)

    def __str__(self) -> str:
        if self.clean:
            return f"store clean: {self.kept_rows} rows"
        return (
            f"store recovered: {self.kept_rows} rows kept, {self.recovered_rows} of them in "
            f"{self.recovered_episodes} unfinished episode(s); cut off: {self.torn_rows} torn row(s), "
            f"{self.torn_steps} step(s) in flight, {self.torn_journal_bytes} journal byte(s)"
        )


@dataclass(frozen=True, slots=True)
class RecoveredStore:
    """A store fit for appending: its episodes, the open journal and its bytes, and what was found."""

    episodes: list[EpisodeInfo]
    journal: JournalWriter
    journal_bytes: int
    report: RecoveryReport


def recover(paths: StorePaths, schema: StoreSchema, count: RowCount) -> RecoveredStore:
    """Make the store whole; the caller holds the writer's lock. Raises CorruptStoreError naming the file."""
    episodes, journal_bytes = JournalReader(paths.journal).read_for_recovery()
    torn_journal_bytes = paths.journal.stat().st_size - journal_bytes
    trusted = episodes[-1].end_row if episodes else 0
    _check_files(paths, schema, trusted)
    tail = _Tail(paths, schema, trusted, len(episodes))
    tail.scan()
    torn_rows = max(0, count.value - tail.end)
    if (row := tail.begins_behind(count.value)) is not None:
        raise CorruptStoreError(
            f"{paths.root}: row {tail.end} is damaged, and a whole episode begins behind it at row {row}; nothing was "
            f"cut: restore segment {tail.end // schema.segment_rows:06d} from a copy, or record into a new store"
        )
    step_in_flight = torn_rows == 0 and tail.step_in_flight()
    rebuilt = tail.close_episodes()
    report = RecoveryReport(
        kept_rows=tail.end,
        recovered_rows=tail.end - trusted,
        recovered_episodes=len(rebuilt),
        torn_rows=torn_rows,
        torn_steps=int(step_in_flight),
        torn_journal_bytes=torn_journal_bytes,
    )
    count.publish(tail.end)  # before the journal: a reader never sees a line whose rows are not visible
    count.sync()
    journal = JournalWriter(paths.journal, journal_bytes)
    try:
        for info in rebuilt:
            journal_bytes = journal.write(info, journal_bytes)
    except BaseException:
        journal.close()
        raise
    return RecoveredStore([*episodes, *rebuilt], journal, journal_bytes, report)


def _check_files(paths: StorePaths, schema: StoreSchema, rows: int) -> None:
    for index in range(paths.first_segment(), -(-rows // schema.segment_rows)):
        SegmentMap(paths.segment(index), schema, min(schema.segment_rows, rows - index * schema.segment_rows))


class _Tail:
    """The rows behind the last journal line: episodes whose line was torn, and the one being written."""

    def __init__(self, paths: StorePaths, schema: StoreSchema, start: int, next_episode: int) -> None:
        self._paths = paths
        self._schema = schema
        self._codec = RowCodec(schema)
        self._start = start
        self._next_episode = next_episode
        self._episodes: list[list[RawRow]] = []  # copies of the whole rows, episode by episode
        self._mapped: tuple[int, SegmentMap] | None = None

    @property
    def end(self) -> int:
        """The row behind the last whole one."""
        return self._start + sum(len(rows) for rows in self._episodes)

    def scan(self) -> None:
        """Find the longest prefix of whole rows in the order in which a writer appends them."""
        row = self._start
        while (raw := self._whole_row(row)) is not None:
            observation = raw.view(self._codec.dtype)["observation"][0]
            place = (int(observation["episode"]), int(observation["step"]))
            current = self._next_episode + len(self._episodes) - 1
            if place == (current + 1, 0):
                self._episodes.append([raw])
            elif (
                self._episodes
                and place == (current, len(self._episodes[-1]))
                and self._codec.transition_whole(self._episodes[-1][-1])
            ):
                self._episodes[-1].append(raw)
            else:
                break
            row += 1

    def _whole_row(self, row: int) -> RawRow | None:
        index, local = divmod(row, self._schema.segment_rows)
        if self._mapped is None or self._mapped[0] != index:
            try:
                self._mapped = (index, SegmentMap(self._paths.segment(index), self._schema, local + 1))
            except CorruptStoreError:
                return None  # never written so far, or torn: the prefix ends here
        segment = self._mapped[1]
        if local >= segment.capacity:
            return None
        raw: RawRow = segment.rows[local].copy()
        images = {view: frames[local] for view, frames in segment.images.items()}
        return raw if self._codec.observation_whole(raw, images) else None

    def begins_behind(self, stop: int) -> int | None:
        """The first whole row in [end, stop) that begins an episode later than those of the tail."""
        newest = self._next_episode + len(self._episodes) - 1
        for row in range(self.end, stop):
            if (raw := self._whole_row(row)) is not None:
                observation = raw.view(self._codec.dtype)["observation"][0]
                if observation["step"] == 0 and observation["episode"] > newest:
                    return row
        return None

    def step_in_flight(self) -> bool:
        """A step was begun behind the tail and not finished."""
        index, local = divmod(self.end, self._schema.segment_rows)
        path = self._paths.segment(index) / ROWS_FILE
        if not path.is_file():
            return False
        with path.open("rb") as file:
            file.seek(local * self._codec.dtype.itemsize)
            row = file.read(self._codec.dtype.itemsize)
        dangling = self._episodes and self._episodes[-1][-1][self._codec.transition_offset :].any()
        return bool(dangling) or any(row)

    def close_episodes(self) -> list[EpisodeInfo]:
        """Mark each episode's end as truncated on disk; returns the journal lines."""
        infos: list[EpisodeInfo] = []
        first_row = self._start
        for number, rows in enumerate(self._episodes, self._next_episode):
            infos.append(self._close(number, first_row, rows))
            first_row += len(rows)
        self._sync()
        return infos

    def _close(self, number: int, first_row: int, rows: list[RawRow]) -> EpisodeInfo:
        offset = self._codec.transition_offset
        tally = EpisodeTally(number, first_row)
        for raw in rows[:-1]:
            step = raw.view(self._codec.dtype)["transition"][0]
            source = Source(int(step["source"]))
            tally = tally.plus(
                float(step["reward"]), bool(step["terminated"]), bool(step["intervened"]), source
            )
        if rows[-1][offset:].any():  # a transition whose next observation never arrived
            self._write(first_row + len(rows) - 1, offset, bytes(self._codec.dtype.itemsize - offset))
        if len(rows) > 1:
            last = rows[-2].view(self._codec.dtype)[0]
            if not (last["transition"]["terminated"] or last["transition"]["truncated"]):
                half = self._codec.mark_truncated(rows[-2][offset:].tobytes(), int(last["observation_crc"]))
                self._write(first_row + len(rows) - 2, offset, half)
        return tally.close(tally.broken_off(EndReason.RECOVERED))

    def _write(self, row: int, offset: int, data: bytes) -> None:
        index, local = divmod(row, self._schema.segment_rows)
        with (self._paths.segment(index) / ROWS_FILE).open("r+b") as file:
            file.seek(local * self._codec.dtype.itemsize + offset)
            file.write(data)

    def _sync(self) -> None:
        # Data before journal: journalled rows are trusted without a look at their checksums.
        first, last = self._start // self._schema.segment_rows, self.end // self._schema.segment_rows
        for index in range(first, last + 1):
            if (directory := self._paths.segment(index)).is_dir():
                for path in [*directory.iterdir(), directory]:
                    sync_path(path)
