"""A policy on disk: a directory with policy.safetensors and policy.json, verified when read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from safetensors.torch import load, save
from torch import Tensor

from rl.vla.policy import PolicyError, PolicySpec

FORMAT = 1
_TENSORS, _META = "policy.safetensors", "policy.json"

C = TypeVar("C")


@dataclass(frozen=True)
class PolicyFile:
    """What lies in a policy's directory. kind: of the policy. config: its own, as JSON."""

    path: Path
    kind: str
    spec: PolicySpec
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def config_as(self, schema: type[C]) -> C:
        """The config as its dataclass; raises PolicyError where it does not fit."""
        try:
            return schema(**self.config)
        except (TypeError, ValueError) as error:
            raise PolicyError(f"{self.path / _META}: no {schema.__name__} ({error})") from error


def write(path: Path, kind: str, spec: PolicySpec, config: Any, tensors: Mapping[str, Tensor]) -> None:
    """Write a policy; the tensors first, then the JSON that names their checksum. config: a flat dataclass."""
    data = save(dict(tensors))
    meta = {
        "format": FORMAT,
        "kind": kind,
        "spec": spec.to_json(),
        "config": dataclasses.asdict(config),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    path.mkdir(parents=True, exist_ok=True)
    for name, content in ((_TENSORS, data), (_META, json.dumps(meta, indent=1).encode())):
        beside = path / f"{name}.part"
        beside.write_bytes(content)
        beside.rename(path / name)


def kind_of(path: Path) -> str:
    """Which kind of policy lies in `path`; raises PolicyError where there is none."""
    return str(_meta(path)["kind"])


def read(path: Path, kind: str) -> PolicyFile:
    """Read and verify; raises PolicyError naming the file where it is missing, torn or of another kind."""
    meta = _meta(path)
    if meta["kind"] != kind:
        raise PolicyError(f"{path / _META}: expected a policy of kind {kind}, got {meta['kind']}")
    try:
        data = (path / _TENSORS).read_bytes()
    except OSError as error:
        raise PolicyError(
            f"{path / _TENSORS}: cannot be read ({error.strerror}); copy the whole directory"
        ) from error
    if hashlib.sha256(data).hexdigest() != meta["sha256"]:
        raise PolicyError(
            f"{path / _TENSORS}: does not match its checksum, it is torn; restore it from a copy"
        )
    return PolicyFile(path, kind, PolicySpec.from_json(meta["spec"]), meta["config"], load(data))


def _meta(path: Path) -> dict[str, Any]:
    file = path / _META
    try:
        meta = json.loads(file.read_text())
        if meta["format"] != FORMAT:
            raise PolicyError(f"{file}: expected format {FORMAT}, got {meta['format']}")
        return {name: meta[name] for name in ("kind", "spec", "config", "sha256")}
    except FileNotFoundError as error:
        raise PolicyError(
            f"{file}: missing; is {path} a policy's directory, such as <run>/policy?"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, PolicyError):
            raise
        raise PolicyError(f"{file}: torn or no policy ({error!r}); restore it from a copy") from error
