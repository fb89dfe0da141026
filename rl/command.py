"""What all commands share: help from the schema, and errors as one readable line with an exit code."""

from __future__ import annotations

import dataclasses
import os
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Any

import yaml
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from safetensors import SafetensorError

from reward_model.interface import RewardModelError
from rl import cli
from rl.agent.backbones import BackboneError
from rl.agent.weights import WeightsError as PolicyWeightsError
from rl.checkpoint import CheckpointError
from rl.config import ConfigError, groups, keys
from rl.replay.errors import StoreError
from rl.runtime.weights import WeightsError
from rl.schemas import SCHEMAS
from rl.vla.policy import PolicyError
from robot.interfaces import DeviceError, RobotFault
from robot.types import BadDataError
from worldmodel.interface import WorldModelError
from worldmodel.lpips import LpipsWeightsError

EXPECTED = (  # their messages name the place and the remedy
    ConfigError,
    StoreError,
    CheckpointError,
    WeightsError,
    PolicyWeightsError,
    BackboneError,
    DeviceError,
    RobotFault,
    BadDataError,
    WorldModelError,
    LpipsWeightsError,
    RewardModelError,
    PolicyError,
)
FOREIGN = (  # from torn files and a full disk, whose messages name less
    ValueError,
    KeyError,
    OSError,
    yaml.YAMLError,
    HydraException,
    OmegaConfBaseException,
    SafetensorError,
)


def run(command: str, argv: Sequence[str] | None, body: Callable[[list[str]], int]) -> int:
    """Call `body` with the overrides; a named error is printed as one line and gives exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if any(a in ("-h", "--help") for a in arguments):
        body = partial(_help, command)
    try:
        return cli.piped(lambda: body(arguments))
    except (*EXPECTED, *FOREIGN) as error:
        if os.environ.get("GROUNDHOG_TRACEBACK"):
            raise
        hint = "" if isinstance(error, EXPECTED) else " (GROUNDHOG_TRACEBACK=1 shows where)"
        print(f"groundhog {command}: {type(error).__name__}: {error}{hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"groundhog {command}: interrupted", file=sys.stderr)
        return 130


def _help(command: str, _: list[str]) -> int:
    print(help_text(command))
    return 0


def help_text(command: str) -> str:
    """All keys of a command with their types and defaults, from its schema, and its config groups."""
    schema = SCHEMAS[command]
    lines = [f"groundhog {command} [key=value ...]", "", (schema.__doc__ or "").strip(), ""]
    defaults = dict(_defaults(schema()))
    for key, kind in keys(schema):
        if not dataclasses.is_dataclass(kind):
            lines.append(f"  {key:<36} {_type_name(kind):<34} {defaults[key]}")
    choices = groups(command)
    if choices:
        lines += ["", "Each of these sets many keys at once:", ""]
        lines += [f"  {name + '=':<13} {' '.join(files)}" for name, files in choices.items()]
    return "\n".join(lines)


def _defaults(config: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The values of a default instance by their dotted keys."""
    for entry in dataclasses.fields(config):
        value = getattr(config, entry.name)
        if dataclasses.is_dataclass(value):
            yield from _defaults(value, f"{prefix}{entry.name}.")
            continue
        if isinstance(value, Enum):
            value = value.name.lower()
        yield prefix + entry.name, "(needed)" if value == "???" else str(value)


def _type_name(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(m.lower() for m in kind.__members__)
    return getattr(kind, "__name__", str(kind)) if not typing.get_args(kind) else str(kind)
