"""What all commands share: help from the schema, and errors as one readable line with an exit code."""

from __future__ import annotations

import dataclasses
import os
import sys
import typing
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from rl.config import SCHEMAS, ConfigError, keys
from rl.replay.errors import StoreError
from rl.runtime.weights import WeightsError
from robot.interfaces import DeviceError, RobotFault
from robot.types import BadDataError

EXPECTED = (ConfigError, StoreError, WeightsError, DeviceError, RobotFault, BadDataError)


def run(command: str, argv: Sequence[str] | None, body: Callable[[list[str]], int]) -> int:
    """Call `body` with the overrides; an expected error is printed as one line and gives exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if any(a in ("-h", "--help") for a in arguments):
        print(help_text(command))
        return 0
    try:
        return body(arguments)
    except EXPECTED as error:
        if os.environ.get("GROUNDHOG_TRACEBACK"):
            raise
        print(f"groundhog {command}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"groundhog {command}: interrupted", file=sys.stderr)
        return 130


def help_text(command: str) -> str:
    """All keys of a command with their types and defaults, from its schema."""
    schema = SCHEMAS[command]
    lines = [f"groundhog {command} [key=value ...]", "", (schema.__doc__ or "").strip(), ""]
    defaults = dict(_defaults(schema))
    for key, kind in keys(schema):
        if not dataclasses.is_dataclass(kind):
            lines.append(f"  {key:<36} {_type_name(kind):<34} {defaults.get(key, '')}")
    return "\n".join(lines)


def _defaults(schema: type[Any], prefix: str = "") -> list[tuple[str, str]]:
    hints = typing.get_type_hints(schema)
    found: list[tuple[str, str]] = []
    for entry in dataclasses.fields(schema):
        kind = hints[entry.name]
        if dataclasses.is_dataclass(kind):
            found += _defaults(typing.cast(type[Any], kind), f"{prefix}{entry.name}.")
            continue
        if entry.default is not dataclasses.MISSING:
            value = entry.default
        elif entry.default_factory is not dataclasses.MISSING:
            value = entry.default_factory()
        else:
            value = "(needed)"
        if isinstance(value, Enum):
            value = value.name.lower()
        found.append((prefix + entry.name, "(needed)" if value == "???" else str(value)))
    return found


def _type_name(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(m.lower() for m in kind.__members__)
    return getattr(kind, "__name__", str(kind)) if not typing.get_args(kind) else str(kind)
