"""From YAML and command line to frozen dataclasses, once, at the entry; a wrong key or value is refused by its path."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra.errors
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import configs
from rl.overrides import explain, in_grammar
from rl.schemas import SCHEMAS

CONFIG_DIR = Path(configs.__file__).parent
RESTORE = "restore it from a copy or from a run with the same settings"


class ConfigError(ValueError):
    """A wrong configuration; the message names the key and the remedy."""


def load(command: str, overrides: Sequence[str]) -> Any:
    """Compose `<command>.yaml` with overrides into its frozen dataclass; raises ConfigError."""
    return to_object(load_dict(command, overrides))


def load_dict(command: str, overrides: Sequence[str]) -> DictConfig:
    """The composed, type-checked DictConfig of a command, for writing it down."""
    schema = SCHEMAS[command]
    kinds = dict(keys(schema))
    ConfigStore.instance().store(name=f"{command}_schema", node=_structured(schema))
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(version_base="1.3", config_dir=str(CONFIG_DIR)):
            return compose(command, [in_grammar(o, kinds) for o in overrides])
    except (hydra.errors.HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(command, kinds, groups(command), overrides, error)) from error


def to_object(config: DictConfig) -> Any:
    """The frozen dataclass of a composed config; range errors name what was expected."""
    try:
        return OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        key = error.full_key or ""
        if "Structured config of type" in str(error) or "missing" in str(error).lower():
            raise ConfigError(f"{key}: a value is needed, write {key}=<value>") from error
        raise ConfigError(f"{key}: {error.msg or error}") from error
    except ValueError as error:
        raise ConfigError(str(error)) from error


def read(
    path: Path, command: str, overrides: Sequence[str] = (), layers: Sequence[Mapping[str, Any]] = ()
) -> DictConfig:
    """A stored config.yaml, checked against today's schema, with `layers` of keys and overrides on top."""
    if not path.exists():
        raise ConfigError(f"{path}: no such file; is {path.parent} a run directory of `groundhog {command}`?")
    for name in groups(command):
        if any(o.partition("=")[0].lstrip("+") == name for o in overrides):
            raise ConfigError(
                f"{name}: {', '.join(groups(command))} are chosen when a run starts and cannot change on resume; "
                "single keys can, such as actor.max_env_steps=2000"
            )
    schema = SCHEMAS[command]
    kinds = dict(keys(schema))
    try:
        config = OmegaConf.merge(_structured(schema), _stored(path, schema), *layers)
        assert isinstance(config, DictConfig)
        for override in OverridesParser.create().parse_overrides([in_grammar(o, kinds) for o in overrides]):
            OmegaConf.update(config, override.key_or_group, override.value())
    except (hydra.errors.HydraException, OmegaConfBaseException) as error:
        raise ConfigError(f"{path}: {explain(command, kinds, groups(command), overrides, error)}") from error
    return config


def groups(command: str) -> dict[str, list[str]]:
    """The config groups of a command with their choices, each a file that sets many keys at once."""
    entries = yaml.safe_load((CONFIG_DIR / f"{command}.yaml").read_text())["defaults"]
    names = [name for entry in entries if isinstance(entry, dict) for name in entry]
    return {name: sorted(p.stem for p in (CONFIG_DIR / name).glob("*.yaml")) for name in names}


def _stored(path: Path, schema: type[Any]) -> DictConfig:
    """A config as it was written; raises ConfigError where the file is torn. Keys that came later may be missing."""
    try:
        stored = OmegaConf.load(path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read ({' '.join(str(error).split())}); {RESTORE}") from error
    if not isinstance(stored, DictConfig):
        raise ConfigError(f"{path}: expected keys with their values, got a list; {RESTORE}")
    known = {entry.name for entry in dataclasses.fields(schema)}
    missing = [
        name for name in ("robot", "agent") if name in known and not isinstance(stored.get(name), DictConfig)
    ]
    if missing:
        raise ConfigError(f"{path}: {' and '.join(missing)} missing, the file is cut or empty; {RESTORE}")
    return stored


def keys(schema: type[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All dotted keys of a schema with their types."""
    hints = typing.get_type_hints(schema)
    for entry in dataclasses.fields(schema):
        kind = hints[entry.name]
        yield prefix + entry.name, kind
        if dataclasses.is_dataclass(kind):
            yield from keys(typing.cast(type[Any], kind), prefix + entry.name + ".")


def _structured(schema: type[Any]) -> DictConfig:
    """The schema as a config that can still be composed: OmegaConf makes frozen dataclasses read-only."""

    def thaw(node: Any) -> None:
        if isinstance(node, DictConfig | ListConfig):
            OmegaConf.set_readonly(node, None)
            if OmegaConf.get_type(node) is dict:
                OmegaConf.set_struct(node, False)  # its keys are the user's own words, such as view names
        if isinstance(node, DictConfig):
            for name in node:
                thaw(node._get_node(name))

    config = OmegaConf.structured(schema)
    thaw(config)
    assert isinstance(config, DictConfig)
    return config
