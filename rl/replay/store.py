"""Where a store lies on disk: its paths, the writer's lock, the published row count, the segment files.

    <store>/schema.json  count  journal.jsonl  lock  segments/000000/{<view>.u8, rows.bin}  [pruned]

The writer appends with pwrite and publishes the count after the data; readers map the same pages.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rl.replay.errors import CorruptStoreError, StoreError, StoreFullError, StoreLockedError
from rl.replay.rows import RowCodec
from rl.replay.schema import StoreSchema

ROWS_FILE = "rows.bin"
_COUNT_BYTES = 8


class StorePaths:
    """The names of a store's files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.schema = root / "schema.json"
        self.count = root / "count"
        self.journal = root / "journal.jsonl"
        self.lock = root / "lock"
        self.segments = root / "segments"
        self.pruned = (
            root / "pruned"
        )  # how many of the oldest segments are gone; none where there is no such file

    def segment(self, index: int) -> Path:
        return self.segments / f"{index:06d}"

    def first_segment(self) -> int:
        """The oldest segment that is still there."""
        try:
            return int(self.pruned.read_text())
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise CorruptStoreError(
                f"{self.pruned}: expected a number of segments ({error}); write the lowest number below {self.segments}"
            ) from error

    def load_schema(self) -> StoreSchema:
        """The schema on disk; raises StoreError where there is no store."""
        if not self.schema.is_file():
            raise StoreError(
                f"{self.root}: no store here (schema.json is missing); record first, or check the path"
            )
        return StoreSchema.load(self.schema)

    def create(self, schema: StoreSchema) -> None:
        """Lay out an empty store; schema.json comes last and makes it one."""
        if self.segments.exists() and any(self.segments.iterdir()):
            raise CorruptStoreError(
                f"{self.schema} is missing beside existing segments; restore it, or move {self.root} aside"
            )
        self.segments.mkdir(exist_ok=True)
        self.journal.touch()
        self.count.write_bytes(bytes(_COUNT_BYTES))
        draft = self.schema.with_suffix(".json.tmp")
        draft.write_text(schema.to_json())
        sync_path(draft)
        draft.replace(self.schema)
        sync_path(self.root)


def sync_path(path: Path) -> None:
    """fsync a file or a directory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def lock_for_writing(paths: StorePaths) -> int:
    """Take the writer's lock; returns the file descriptor that holds it until closed or the process dies."""
    fd = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise StoreLockedError(
            f"{paths.root}: already written by process {holder}; a store has one writer: "
            "stop that process, or record into another directory"
        ) from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


class RowCount:
    """The number of rows that readers may see: one aligned 8-byte word in a shared mapping.

    A mapped word and not a write() of 8 bytes, because one store instruction cannot be seen half done.
    """

    def __init__(self, path: Path, *, writable: bool) -> None:
        try:
            with path.open("r+b" if writable else "rb") as file:
                access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
                self._map = mmap.mmap(file.fileno(), _COUNT_BYTES, access=access)
        except (FileNotFoundError, ValueError) as error:
            raise CorruptStoreError(
                f"{path}: expected a file of {_COUNT_BYTES} bytes ({error}); "
                "create it with 8 zero bytes, then open the store for writing once to recover it"
            ) from error
        self._word = np.frombuffer(self._map, "<u8")

    @property
    def value(self) -> int:
        return int(self._word[0])

    def publish(self, rows: int) -> None:
        """Make the first `rows` rows visible; their data must have been written before."""
        self._word[0] = rows

    def sync(self) -> None:
        self._map.flush()


def file_row_bytes(schema: StoreSchema) -> dict[str, int]:
    """File name in a segment -> bytes of one row in it."""
    images = {f"{view}.u8": height * width * 3 for view, (height, width) in schema.views.items()}
    return {**images, ROWS_FILE: RowCodec(schema).dtype.itemsize}


class SegmentWriter:
    """The files of one segment, fully allocated, open for writing."""

    def __init__(self, directory: Path, schema: StoreSchema) -> None:
        self._directory = directory
        self._row_bytes = file_row_bytes(schema)
        self._files: dict[str, int] = {}
        with ExitStack() as undo:
            undo.callback(self.close)
            directory.mkdir(parents=True, exist_ok=True)
            for name, row_bytes in self._row_bytes.items():
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._files[name] = os.open(directory / name, flags, 0o644)
                self._allocate(name, row_bytes * schema.segment_rows)
            undo.pop_all()

    def _allocate(self, name: str, size: int) -> None:
        # All blocks now: later writes cannot run out of disk, and readers' mappings cannot fault.
        try:
            os.posix_fallocate(self._files[name], 0, size)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise StoreError(
                    f"{self._directory / name}: cannot allocate {size} bytes: {error}"
                ) from error
            free = shutil.disk_usage(self._directory).free
            raise StoreFullError(
                f"{self._directory / name}: no room for {size / 1e6:.0f} MB ({free / 1e6:.0f} MB free, "
                f"{error.strerror}); free some space and repeat the call: nothing of this step was written"
            ) from error

    def write(self, name: str, row: int, data: bytes | NDArray[np.uint8], offset: int = 0) -> None:
        """Write `data` into file `name`, `offset` bytes into row `row` of this segment."""
        view = memoryview(data if isinstance(data, bytes) else data.data).cast("B")
        position = row * self._row_bytes[name] + offset
        while view:
            try:
                written = os.pwrite(self._files[name], view, position)
            except OSError as error:
                raise StoreError(
                    f"{self._directory / name}: writing failed: {error}; check the disk, "
                    "then open the store again: all published rows are kept"
                ) from error
            view, position = view[written:], position + written

    def sync(self) -> None:
        """Return when all written data and the segment's directory entries are on the disk."""
        for fd in self._files.values():
            os.fdatasync(fd)
        sync_path(self._directory)
        sync_path(self._directory.parent)

    def trim(self, rows: int) -> None:
        """Give the disk back what lies behind the first `rows` rows."""
        for name, fd in self._files.items():
            os.ftruncate(fd, rows * self._row_bytes[name])

    def close(self) -> None:
        while self._files:
            os.close(self._files.popitem()[1])


class SegmentMap:
    """The files of one segment, mapped read-only: images[view] (R, H, W, 3), rows (R, row bytes), uint8."""

    def __init__(self, directory: Path, schema: StoreSchema, needed_rows: int) -> None:
        """Map every whole row; raises CorruptStoreError naming a file shorter than `needed_rows` rows."""
        arrays = {
            name: _map_rows(directory / name, row_bytes, needed_rows)
            for name, row_bytes in file_row_bytes(schema).items()
        }
        self.capacity = min(schema.segment_rows, *(len(array) for array in arrays.values()))
        self.rows: NDArray[np.uint8] = arrays[ROWS_FILE]
        self.images: Mapping[str, NDArray[np.uint8]] = {
            view: arrays[f"{view}.u8"].reshape(-1, height, width, 3)
            for view, (height, width) in schema.views.items()
        }


def _map_rows(path: Path, row_bytes: int, needed_rows: int) -> NDArray[np.uint8]:
    size, missing = 0, False
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            # Length 0: the whole file as it is now; a writer that closes may trim it at any moment.
            data = np.frombuffer(
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b"", np.uint8
            )
    except FileNotFoundError:
        missing, data = True, np.empty(0, np.uint8)
    except OSError as error:
        full = error.errno == errno.EMFILE
        remedy = "raise `ulimit -n` or record with more segment_rows" if full else "check the disk"
        raise StoreError(f"{path}: cannot be mapped: {error}; {remedy}") from error
    rows = len(data) // row_bytes
    if rows < needed_rows:
        found = "the file is missing" if missing else f"got {size} bytes"
        raise CorruptStoreError(
            f"{path}: expected at least {needed_rows * row_bytes} bytes ({needed_rows} rows), {found}; "
            "restore it from a copy, or move the store aside and record into a new one"
        )
    return data[: rows * row_bytes].reshape(rows, row_bytes)
