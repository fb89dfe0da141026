"""A directory that appears whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rl.replay.lerobot.errors import DatasetError
from rl.replay.store import sync_path


@contextmanager
def written_beside(out: Path) -> Iterator[Path]:
    """A draft beside `out` that takes its place once all of it is on the disk, and vanishes on any error.

    Raises DatasetError where `out` exists already or cannot be written.
    """
    if out.exists():
        raise DatasetError(f"{out}: exists already; choose another place, or remove it first")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise DatasetError(f"{out}: cannot be written: {error}; choose a writable directory") from error
    try:
        yield draft
        sync_tree(draft)
        draft.chmod(0o755)  # mkdtemp's are closed to everyone else
        draft.rename(out)
        sync_path(out.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def sync_tree(root: Path) -> None:
    """Return when every file and directory below `root` is on the disk."""
    for path in [*root.rglob("*"), root]:
        sync_path(path)
