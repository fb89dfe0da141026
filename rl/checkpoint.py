"""Checkpoints that survive a kill at any moment: written beside, synced, renamed, and verified when loaded.

Layout: `<directory>/<updates:09d>/{tensors.safetensors, meta.json}`; `<directory>/latest` names one of them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load
from safetensors.torch import save as to_bytes
from torch import Tensor

FORMAT = 1
_TENSORS, _META, _LATEST = "tensors.safetensors", "meta.json", "latest"
_TEMPORARY, _REPLACED = ".tmp-", ".replaced"

_log = logging.getLogger(__name__)


class CheckpointError(RuntimeError):
    """A checkpoint is torn, or none of a directory's checkpoints is complete."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint. skipped: what was wrong with newer ones, one sentence each."""

    path: Path
    updates: int
    tensors: dict[str, Tensor]
    meta: dict[str, Any]
    skipped: tuple[str, ...] = ()


def save(directory: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], *, keep: int = 3) -> Path:
    """Write a checkpoint and make it the latest; keeps the `keep` newest. Returns its folder.

    meta: JSON-able, with the count `updates`. One process at a time may save into a directory. Once this
    returns, the checkpoint is on the disk; a kill before leaves the previous one as it was. Raises OSError on
    a full disk.
    """
    updates = meta.get("updates")
    if not isinstance(updates, int) or updates < 0 or keep < 1:
        raise ValueError(
            f"checkpoint: expected meta['updates'] >= 0 and keep >= 1, got {updates!r} and {keep}"
        )
    directory.mkdir(parents=True, exist_ok=True)
    for leftover in directory.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    data = to_bytes({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    body = json.dumps({"format": FORMAT, "sha256": hashlib.sha256(data).hexdigest(), "meta": dict(meta)})
    temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=directory))
    _write(temporary / _TENSORS, data)
    _write(temporary / _META, json.dumps({"sha256": _digest(body), "body": body}).encode())
    _sync_directory(temporary)
    final = directory / f"{updates:09d}"
    replaced = final.with_name(final.name + _REPLACED)
    if final.exists():  # saved twice at one count: the old one stays loadable until the new one has its name
        if replaced.exists():
            shutil.rmtree(replaced)
        final.rename(replaced)
    temporary.rename(final)
    _sync_directory(directory)
    _point_to(directory, final.name)
    if replaced.exists():
        shutil.rmtree(replaced)
    for old in [path for path in _candidates(directory) if path != final][keep - 1 :]:
        shutil.rmtree(old)
    return final


def load_latest(directory: Path) -> Checkpoint | None:
    """The latest complete checkpoint; None where there is no checkpoint at all.

    A torn one is skipped for the next older, logged and reported in `skipped`. Raises CheckpointError where
    all are torn.
    """
    candidates = _candidates(directory)
    latest = _pointed(directory)
    candidates.sort(key=lambda path: path.name != latest)  # stable: the named one first, then by age
    skipped: list[str] = []
    for path in candidates:
        try:
            tensors, meta = _read(path)
        except CheckpointError as error:
            _log.warning("%s; trying an older checkpoint", error)
            skipped.append(str(error))
            continue
        return Checkpoint(path, int(meta["updates"]), tensors, meta, tuple(skipped))
    if skipped:
        raise CheckpointError(f"no complete checkpoint in {directory}: {'; '.join(skipped)}")
    return None


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        envelope = json.loads((path / _META).read_bytes())
        body, data = envelope["body"], (path / _TENSORS).read_bytes()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"checkpoint {path} is torn: {error}") from error
    if _digest(body) != envelope.get("sha256"):
        raise CheckpointError(f"checkpoint {path} is torn: {_META} does not match its checksum")
    content = json.loads(body)
    if content["format"] != FORMAT:
        raise CheckpointError(f"checkpoint {path}: expected format {FORMAT}, got {content['format']}")
    if hashlib.sha256(data).hexdigest() != content["sha256"]:
        raise CheckpointError(
            f"checkpoint {path} is torn: {_TENSORS} ({len(data)} bytes) does not match its checksum"
        )
    return load(data), content["meta"]


def _candidates(directory: Path) -> list[Path]:
    """Checkpoint folders, newest first; one being replaced after the one that replaces it."""
    if not directory.is_dir():
        return []
    named = [(path.name.removesuffix(_REPLACED), path) for path in directory.iterdir() if path.is_dir()]
    found = [(int(name), not path.name.endswith(_REPLACED), path) for name, path in named if name.isdecimal()]
    return [path for _, _, path in sorted(found, reverse=True)]


def _pointed(directory: Path) -> str | None:
    try:
        name = json.loads((directory / _LATEST).read_bytes())["checkpoint"]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # no pointer, or a torn one: the newest folder serves
    return str(name)


def _point_to(directory: Path, name: str) -> None:
    temporary = directory / f"{_TEMPORARY}{_LATEST}"
    _write(temporary, json.dumps({"checkpoint": name}).encode())
    temporary.rename(directory / _LATEST)
    _sync_directory(directory)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
