"""The journal of a store: one checksummed JSON line per finished episode."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path

from rl.replay.errors import CorruptStoreError, StoreError
from robot.types import Source


class EndReason(Enum):
    """Why an episode ended, in the word of who ended it."""

    SUCCESS = "success"
    FAILURE = "failure"
    TIMEOUT = "timeout"
    FAULT = "fault"  # the robot stopped by itself; `detail` names the fault
    STOPPED = "stopped"  # the run ended in mid-episode
    DISCARDED = "discarded"  # stays on disk, is never sampled
    RECOVERED = "recovered"  # the writer died; closed when the store was opened again


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """How an episode ended; `detail` is the fault's name or a remark."""

    reason: EndReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EpisodeInfo:
    """One line of the journal. rows = transitions + 1. corrections: transitions in which a person acted."""

    episode: int
    first_row: int
    rows: int
    success: bool  # the last transition is terminal with a reward > 0
    episode_return: float  # undiscounted sum of rewards
    corrections: int
    sources: Mapping[Source, int]  # transitions of each source
    outcome: EpisodeOutcome

    @property
    def num_transitions(self) -> int:
        return self.rows - 1

    @property
    def end_row(self) -> int:
        """The row behind the last one."""
        return self.first_row + self.rows

    @property
    def discarded(self) -> bool:
        """Never sampled, though on disk: it was discarded, or is a demonstration that broke off before it succeeded."""
        # Without a remark the writer broke off. What an import cut off says so, and is whole as far as it goes.
        broke_off = (
            self.outcome.reason in (EndReason.STOPPED, EndReason.RECOVERED) and not self.outcome.detail
        )
        return self.outcome.reason is EndReason.DISCARDED or (
            broke_off and _unfinished_demonstration(self.success, self.sources)
        )


@dataclass(frozen=True, slots=True)
class EpisodeTally:
    """The sums of an episode so far; `plus` adds a transition, `close` makes the journal line."""

    episode: int
    first_row: int
    transitions: int = 0
    success: bool = False
    episode_return: float = 0.0
    corrections: int = 0
    sources: Mapping[Source, int] = field(default_factory=dict)

    def plus(self, reward: float, terminated: bool, intervened: bool, source: Source) -> EpisodeTally:
        return replace(
            self,
            transitions=self.transitions + 1,
            success=terminated and reward > 0,
            episode_return=self.episode_return + reward,
            corrections=self.corrections + intervened,
            sources={**self.sources, source: self.sources.get(source, 0) + 1},
        )

    def broken_off(self, reason: EndReason) -> EpisodeOutcome:
        """How it ended where nobody ended it, for `reason`: a demonstration without success is discarded."""
        if _unfinished_demonstration(self.success, self.sources):
            return EpisodeOutcome(EndReason.DISCARDED, f"{reason.value}: an unfinished demonstration")
        return EpisodeOutcome(reason)

    def close(self, outcome: EpisodeOutcome) -> EpisodeInfo:
        return EpisodeInfo(
            episode=self.episode,
            first_row=self.first_row,
            rows=self.transitions + 1,
            success=self.success,
            episode_return=self.episode_return,
            corrections=self.corrections,
            sources=dict(self.sources),
            outcome=outcome,
        )


def _unfinished_demonstration(success: bool, sources: Mapping[Source, int]) -> bool:
    return not success and set(sources) == {Source.DEMO}


def _encode(info: EpisodeInfo) -> bytes:
    body = asdict(info)
    body["sources"] = {source.name: count for source, count in info.sources.items()}
    body["outcome"] = {"reason": info.outcome.reason.value, "detail": info.outcome.detail}
    body["crc"] = _checksum(body)
    return json.dumps(body).encode() + b"\n"


def _decode(line: bytes) -> EpisodeInfo:
    """Raises ValueError, KeyError or TypeError where the line is not whole."""
    body = json.loads(line)
    crc = body.pop("crc")
    if crc != _checksum(body):
        raise ValueError("its checksum does not match")
    body["sources"] = {Source[name]: count for name, count in body["sources"].items()}
    outcome = body["outcome"]
    body["outcome"] = EpisodeOutcome(EndReason(outcome["reason"]), outcome["detail"])
    return EpisodeInfo(**body)


def _checksum(body: Mapping[str, object]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())


class JournalReader:
    """Reads the lines added since the last call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._next_episode = 0
        self._next_row = 0

    def read_new(self) -> list[EpisodeInfo]:
        """The episodes finished since the last call; a line still being written waits for the next one."""
        infos, _ = self._read(torn_end=False)
        return infos

    def read_for_recovery(self) -> tuple[list[EpisodeInfo], int]:
        """All episodes up to a torn last line, and the bytes of the journal that hold them."""
        return self._read(torn_end=True)

    def _read(self, torn_end: bool) -> tuple[list[EpisodeInfo], int]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                lines = file.read().splitlines(keepends=True)
        except FileNotFoundError as error:
            raise CorruptStoreError(
                f"{self._path} is missing; restore it, or create it empty and open the store for writing: "
                "the episodes are then rebuilt from their rows"
            ) from error
        infos: list[EpisodeInfo] = []
        for number, line in enumerate(lines):
            if not line.endswith(b"\n"):
                break
            try:
                info = _decode(line)
                self._check_order(info)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if torn_end and number == len(lines) - 1:
                    break
                raise CorruptStoreError(
                    f"{self._path}: episode {self._next_episode} is not readable ({error}); restore it, "
                    "or delete its lines from there on and open the store for writing: "
                    "those episodes are then rebuilt from their rows (discarded ones included)"
                ) from error
            infos.append(info)
            self._offset += len(line)
            self._next_episode, self._next_row = info.episode + 1, info.end_row
        return infos, self._offset

    def _check_order(self, info: EpisodeInfo) -> None:
        if (info.episode, info.first_row) != (self._next_episode, self._next_row) or info.rows < 1:
            raise ValueError(
                f"expected episode {self._next_episode} from row {self._next_row}, "
                f"got episode {info.episode} from row {info.first_row} with {info.rows} rows"
            )


class JournalWriter:
    """Writes lines; the caller keeps the place of the next one, so that a line cut short is written again."""

    def __init__(self, path: Path, valid_bytes: int) -> None:
        """Open the journal and drop what lies behind its first `valid_bytes`, a torn line."""
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        os.ftruncate(self._fd, valid_bytes)

    def write(self, info: EpisodeInfo, position: int, *, durable: bool = True) -> int:
        """Write a line at byte `position`; returns the next position, if durable once the line is on the disk."""
        line = _encode(info)
        try:
            written = os.pwrite(self._fd, line, position)
            if written < len(line):
                raise OSError(f"only {written} of {len(line)} bytes were written")
            if durable:
                os.fdatasync(self._fd)
        except OSError as error:
            os.ftruncate(self._fd, position)
            raise StoreError(
                f"{self._path}: episode {info.episode} could not be journalled ({error}); its rows are on "
                "disk: free some space and end the episode again, or open the store again to recover it"
            ) from error
        return position + len(line)

    def close(self) -> None:
        os.close(self._fd)
