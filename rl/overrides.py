"""`key=value` words: typed text into Hydra's grammar, and Hydra's errors into one line that names the remedy."""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import OverrideParseException


def in_grammar(override: str, kinds: Mapping[str, Any]) -> str:
    """An override as Hydra reads it: `robot.clock=wall` for the member WALL, and text quoted, whatever it holds.

    kinds: dotted key -> type.
    """
    name, eq, value = override.partition("=")
    kind = kinds.get(name)
    if not eq:
        return override
    if kind in (str, str | None):
        return f"{name}={_quoted(value)}"
    if kind == list[str] and value.startswith("[") and value.endswith("]"):
        return f"{name}=[{','.join(_quoted(element) for element in _elements(value[1:-1]))}]"
    if isinstance(kind, type) and issubclass(kind, Enum) and value.upper() in kind.__members__:
        return f"{name}={value.upper()}"
    return override


def _quoted(value: str) -> str:
    """Text for Hydra's grammar; null, the empty word and what is quoted already stay."""
    if value in ("", "null") or (len(value) > 1 and value[0] == value[-1] and value[0] in "'\""):
        return value
    return QuotedString(value, Quote.single).with_quotes()


def _elements(text: str) -> list[str]:
    """Split at the commas outside of brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"" and not parts[-1].strip():
            quote = character
        elif character == "," and depth == 0:
            parts.append("")
            continue
        else:
            depth += (character in "[{(") - (character in "]})")
        parts[-1] += character
    return [part.strip() for part in parts] if text.strip() else []


def explain(
    command: str,
    kinds: Mapping[str, Any],
    groups: Mapping[str, Sequence[str]],
    overrides: Sequence[str],
    error: Exception,
) -> str:
    """One line: the key as it was written, what is wrong with it, and the nearest valid name or the valid values."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    text = "\n".join(str(e) for e in chain)
    if (option := re.search(r"Could not find '([\w-]+)/([\w./-]+)'", text)) is not None:
        group, name = option.groups()
        return f"{group}={name}: no such file in configs/{group}; {_nearest(name, groups.get(group, []))}"
    if (unknown := re.search(r"Key '([^']+)' (?:is not in struct|not in)", text)) is not None:
        key = _full_key(text) or unknown.group(1)
        written = next((o.partition("=")[0].lstrip("+") for o in overrides if unknown.group(1) in o), key)
        of_entry = _entry_keys(written, kinds)
        wrong, known = (written.rpartition(".")[2], of_entry) if of_entry else (written, [*kinds, *groups])
        return f"{written}: unknown key of `groundhog {command}`; {_nearest(wrong, known)}"
    if "Invalid type assigned: dict is not a subclass" in text:
        entry = _full_key(text)
        written = next((o.partition("=")[0].lstrip("+") for o in overrides if f".{entry}" in o), entry)
        return (
            f"{written}: there is no {entry}; a key changes what a file has, such as configs/robot/a1x.yaml"
        )
    if (foreign := re.search(r"Could not override '([^']+)'", text)) is not None:
        return f"{foreign.group(1)}: not for `groundhog {command}`; its groups: {', '.join(groups) or 'none'}"
    unread = next((e for e in chain if isinstance(e, OverrideParseException)), None)
    if unread is not None:
        return f"{unread.override}: cannot be read; expected key=value, and a list as key=[a,b]"
    key = _full_key(text) or ""
    kind = kinds.get(key)
    if isinstance(kind, type) and issubclass(kind, Enum):
        wrong = re.search(r"Invalid value '([^']*)'", text)
        return f"{key}: {_nearest(wrong.group(1) if wrong else '', [m.lower() for m in kind.__members__])}"
    detail = str(chain[-1]).splitlines()[0]
    return f"{key}: {detail}" if key else detail


def _entry_keys(key: str, kinds: Mapping[str, Any]) -> list[str]:
    """What an entry of the mapping that `key` is in can hold, such as a view of `robot.cameras`; else nothing."""
    for name, kind in kinds.items():
        if typing.get_origin(kind) is dict and key.startswith(f"{name}."):
            schema = typing.get_args(kind)[1]
            return (
                [each.name for each in dataclasses.fields(schema)] if dataclasses.is_dataclass(schema) else []
            )
    return []


def _full_key(text: str) -> str | None:
    found = re.search(r"full_key: (\S+)", text)
    return found.group(1) if found else None


def _nearest(wrong: str, known: Sequence[str]) -> str:
    """A hint at the likeliest name: by the whole path, else by its last word anywhere."""
    close = difflib.get_close_matches(wrong, known, n=1, cutoff=0.6)
    if not close:
        last = {name.rpartition(".")[2]: name for name in reversed(known)}
        tails = difflib.get_close_matches(wrong.rpartition(".")[2], list(last), n=1, cutoff=0.6)
        close = [last[tail] for tail in tails]
    if close and len(known) > 8:
        return f"did you mean `{close[0]}`?"
    if len(known) > 20:
        return "--help lists them all"
    hint = f"did you mean `{close[0]}`? " if close else ""
    return f"{hint}known: {', '.join(known)}"
