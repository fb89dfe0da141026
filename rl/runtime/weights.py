"""Published policies as files of the run directory: the learner writes, the actor reads, versions never repeat."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from rl.workers.ports import PolicyWeights


class WeightsError(RuntimeError):
    """Published weights cannot be read; the message names the file and the remedy."""


class WeightsDirectory:
    """`weights/<version>.safetensors` plus `latest.json`, each written beside and renamed.

    A version is one higher than the highest file that ever existed, so a resumed learner cannot reuse a number
    for other tensors. The newest `keep` versions stay, and the newest pinned ones
    (a checkpoint or an evaluation names them).
    """

    def __init__(self, directory: Path, keep: int = 5, keep_pinned: int = 50) -> None:
        self._directory = directory
        self._latest = directory / "latest.json"
        self._keep, self._keep_pinned = keep, keep_pinned
        directory.mkdir(parents=True, exist_ok=True)
        self._next = 1 + max([-1, *self.versions(), self.latest_version()])

    def path(self, version: int) -> Path:
        return self._directory / f"{version:06d}.safetensors"

    def publish(self, tensors: Mapping[str, Tensor], updates: int) -> int:
        """Write a new version and point `latest.json` at it; a reader sees the old one or the new one, never half."""
        version, self._next = self._next, self._next + 1
        beside = self._directory / f"{version:06d}.tmp"
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        meta = {"version": str(version), "updates": str(updates), "crc32": str(_checksum(plain))}
        save_file(plain, beside, metadata=meta)
        beside.rename(self.path(version))
        pointer = self._directory / "latest.tmp"
        pointer.write_text(json.dumps({"version": version, "updates": updates}))
        pointer.rename(self._latest)
        self._prune(version)
        return version

    def pin(self, version: int) -> None:
        """Keep this version beyond the newest few; the newest `keep_pinned` pins stay."""
        pinned = self._pinned(version)
        pinned.parent.mkdir(exist_ok=True)
        if not pinned.exists():
            os.link(self.path(version), pinned)
        for old in sorted(pinned.parent.glob("[0-9]*.safetensors"))[: -self._keep_pinned]:
            old.unlink(missing_ok=True)

    def versions(self) -> list[int]:
        """All versions that can still be loaded, oldest first."""
        files = [
            *self._directory.glob("[0-9]*.safetensors"),
            *self._directory.glob("pinned/[0-9]*.safetensors"),
        ]
        return sorted({int(path.stem) for path in files})

    def latest_version(self) -> int:
        """The newest published version, -1 before the first."""
        try:
            return int(json.loads(self._latest.read_text())["version"])
        except FileNotFoundError:
            return -1
        except (ValueError, KeyError, TypeError) as error:
            raise WeightsError(
                f"{self._latest}: damaged ({error!r}); delete it and name a version, one of {self.versions()}"
            ) from error

    def load(self, version: int | None = None) -> PolicyWeights:
        """Tensors of `version`, or of the newest; raises WeightsError naming the file where it cannot be read."""
        wanted = self.latest_version() if version is None else version
        if wanted < 0:
            raise WeightsError(f"{self._directory}: no policy has been published yet; train first")
        path = self.path(wanted)
        if not path.exists():
            path = self._pinned(wanted)
        if not path.exists():
            raise WeightsError(
                f"{self._directory}: version {wanted} is not here; available: {self.versions()}"
            )
        with safe_open(path, framework="pt") as file:
            meta = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        if meta.get("crc32") != str(_checksum(tensors)):
            raise WeightsError(
                f"{path}: damaged, its checksum does not hold; choose one of {self.versions()}"
            )
        return PolicyWeights(version=wanted, updates=int(meta.get("updates", -1)), tensors=tensors)

    def _pinned(self, version: int) -> Path:
        return self._directory / "pinned" / f"{version:06d}.safetensors"

    def _prune(self, newest: int) -> None:
        for path in self._directory.glob("[0-9]*.safetensors"):
            if int(path.stem) <= newest - self._keep:
                path.unlink(missing_ok=True)


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    """CRC-32 over names and values, in the order of the names."""
    crc = 0
    for name in sorted(tensors):
        crc = zlib.crc32(tensors[name].numpy().tobytes(), zlib.crc32(name.encode(), crc))
    return crc
