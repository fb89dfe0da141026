"""Digests: whether a file is the same one as before, whatever its name or the version that it says it has."""

from __future__ import annotations

import hashlib
from pathlib import Path


def digest_of(path: Path) -> str | None:
    """Of a file's bytes, None where there is none."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
