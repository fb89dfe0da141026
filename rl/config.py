"""From YAML and command line to frozen dataclasses, once, at the entry; a wrong key or value is refused by its path."""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import hydra.errors
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import configs
from rl.agent.sac import SACConfig
from rl.agent.spec import GripperControl
from rl.workers.actor import ActorConfig
from rl.workers.learner import LearnerConfig
from rl.workers.pacing import PacingConfig
from robot.factory import ObsKind, RobotConfig

CONFIG_DIR = Path(configs.__file__).parent

T = TypeVar("T")


class ConfigError(ValueError):
    """A wrong configuration; the message names the key and the remedy."""


class CorrectionKind(Enum):
    """Who may take over from the policy."""

    NONE = "none"
    SCRIPTED = "scripted"
    KEYBOARD = "keyboard"
    GAMEPAD = "gamepad"


class WandbMode(Enum):
    """Where wandb keeps its record; `metrics.jsonl` is written in every mode."""

    DISABLED = "disabled"
    OFFLINE = "offline"
    ONLINE = "online"


class RuntimeKind(Enum):
    """INLINE: one process, round robin, deterministic. LOCAL: one spawned process per worker."""

    INLINE = "inline"
    LOCAL = "local"


@dataclass(frozen=True)
class DemosConfig:
    """Demonstrations: an existing store (`path`), or recorded by the scripted expert at the start of the run."""

    path: str | None = None
    episodes: int = 20
    noise: float = 0.25  # human-like noise of the scripted expert, 0..1

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ValueError(
                f"demos.episodes: expected at least 1 (learning needs demonstrations), got {self.episodes}"
            )
        if not 0 <= self.noise <= 1:
            raise ValueError(f"demos.noise: expected 0..1, got {self.noise}")


@dataclass(frozen=True)
class CorrectionConfig:
    """Correction device during training."""

    kind: CorrectionKind = CorrectionKind.SCRIPTED


@dataclass(frozen=True)
class RuntimeConfig:
    """Processes. silent_s: a worker without a heartbeat for so long is treated as dead (seconds)."""

    kind: RuntimeKind = RuntimeKind.LOCAL
    max_restarts: int = 3
    silent_s: float = 120.0
    torch_threads: int = 1
    memory_budget_gb: float = 12.0

    def __post_init__(self) -> None:
        if (
            self.max_restarts < 0
            or self.silent_s <= 1
            or self.torch_threads < 1
            or self.memory_budget_gb <= 0
        ):
            raise ValueError(
                "runtime: expected max_restarts >= 0, silent_s > 1, torch_threads >= 1, memory_budget_gb > 0"
            )


@dataclass(frozen=True)
class TrainConfig:
    """Everything that `groundhog train` needs."""

    seed: int = 0
    name: str | None = None  # run directory below runs_dir; default <task>-s<seed>-<date>
    runs_dir: str = "runs"
    resume: str | None = None  # a run directory to continue
    device: str = "cpu"
    open_picture: bool = False  # show summary.png in a window where there is a display
    wandb: WandbMode = WandbMode.OFFLINE
    gripper: GripperControl = GripperControl.DISCRETE  # how a gripper that the task moves is controlled
    robot: RobotConfig = field(default_factory=RobotConfig)
    demos: DemosConfig = field(default_factory=DemosConfig)
    correction: CorrectionConfig = field(default_factory=CorrectionConfig)
    agent: SACConfig = field(default_factory=SACConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    actor: ActorConfig = field(default_factory=ActorConfig)
    pacing: PacingConfig = field(default_factory=PacingConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)


@dataclass(frozen=True)
class RecordConfig:
    """Everything that `groundhog record` needs. Failed attempts stay on disk and are never learned from."""

    out: str = "demos/press"
    seed: int = 0
    robot: RobotConfig = field(default_factory=RobotConfig)
    demos: DemosConfig = field(default_factory=DemosConfig)
    correction: CorrectionConfig = field(default_factory=CorrectionConfig)


@dataclass(frozen=True)
class EvaluateConfig:
    """Everything that `groundhog evaluate` needs. version: a published policy version; default the newest."""

    run: str = "???"
    episodes: int = 50
    version: int | None = None
    correction: CorrectionConfig = field(default_factory=lambda: CorrectionConfig(CorrectionKind.NONE))
    out: str | None = None  # JSON file; default <run>/evaluations/v<version>.json

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ValueError(f"episodes: expected at least 1, got {self.episodes}")


@dataclass(frozen=True)
class ShowConfig:
    """Everything that `groundhog show` needs. path: a run or one store. episode: index, negative from the end."""

    path: str = "???"
    episode: int = -1
    out: str | None = None  # directory for the contact sheet and the film; default <store>/show
    columns: int = 12
    check: bool = False  # verify every row's checksum first


@dataclass(frozen=True)
class BenchConfig:
    """Everything that `groundhog bench` needs: every task x arm x seed is one run, skipped where its result exists.

    arms: files of configs/arm. obs: configs/experiment/<task>_<obs>.yaml. train: more overrides for every run.
    parallel: runs side by side, one thread each. report: only draw the table and the curves of what there is.
    """

    tasks: list[str] = field(default_factory=lambda: ["press"])
    arms: list[str] = field(default_factory=lambda: ["bc", "rlpd"])
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    obs: ObsKind = ObsKind.PIXELS
    train: list[str] = field(default_factory=list)
    parallel: int = 2
    report: bool = False
    runs_dir: str = "runs/bench"
    results_dir: str = "benchmarks/results/bench"
    docs_dir: str = "docs"

    def __post_init__(self) -> None:
        if not (self.tasks and self.arms and self.seeds) or self.parallel < 1:
            raise ValueError("bench: expected at least one task, arm and seed, and parallel >= 1")


SCHEMAS: dict[str, type[Any]] = {
    "train": TrainConfig,
    "record": RecordConfig,
    "evaluate": EvaluateConfig,
    "show": ShowConfig,
    "bench": BenchConfig,
}


def load(command: str, overrides: Sequence[str]) -> Any:
    """Compose `<command>.yaml` with overrides into its frozen dataclass; raises ConfigError."""
    return to_object(load_dict(command, overrides))


def load_dict(command: str, overrides: Sequence[str]) -> DictConfig:
    """The composed, type-checked DictConfig of a command, for writing it down."""
    schema = SCHEMAS[command]
    ConfigStore.instance().store(name=f"{command}_schema", node=_structured(schema))
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(version_base="1.3", config_dir=str(CONFIG_DIR)):
            return compose(command, [_enum_case(schema, o) for o in overrides])
    except (hydra.errors.HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explain(command, schema, overrides, error)) from error


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


def read(path: Path, command: str, overrides: Sequence[str] = ()) -> DictConfig:
    """A stored config.yaml, checked against today's schema, with overrides on top."""
    if not path.exists():
        raise ConfigError(f"{path}: no such file; is {path.parent} a run directory of `groundhog {command}`?")
    schema = SCHEMAS[command]
    try:
        base = OmegaConf.merge(_structured(schema), OmegaConf.load(path))
        dotted = [_enum_case(schema, o) for o in overrides]
        merged = OmegaConf.merge(base, OmegaConf.from_dotlist(dotted))
    except OmegaConfBaseException as error:
        raise ConfigError(f"{path}: {_explain(command, schema, overrides, error)}") from error
    assert isinstance(merged, DictConfig)
    return merged


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
        if isinstance(node, DictConfig):
            for name in node:
                thaw(node._get_node(name))

    config = OmegaConf.structured(schema)
    thaw(config)
    assert isinstance(config, DictConfig)
    return config


def _enum_case(schema: type[Any], override: str) -> str:
    """Let people write `robot.clock=wall` for the member WALL."""
    name, eq, value = override.partition("=")
    kind = dict(keys(schema)).get(name)
    if eq and isinstance(kind, type) and issubclass(kind, Enum) and value.upper() in kind.__members__:
        return f"{name}={value.upper()}"
    return override


def _explain(command: str, schema: type[Any], overrides: Sequence[str], error: Exception) -> str:
    """One line: the key as it was written, what is wrong with it, and the nearest valid name or the valid values."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    text = "\n".join(str(e) for e in chain)
    known = dict(keys(schema))
    groups = sorted(p.name for p in CONFIG_DIR.iterdir() if p.is_dir() and p.name != "__pycache__")
    if (option := re.search(r"Could not find '([\w-]+)/([\w./-]+)'", text)) is not None:
        group, name = option.groups()
        choices = sorted(p.stem for p in (CONFIG_DIR / group).glob("*.yaml"))
        return f"{group}={name}: no such file in configs/{group}; {_nearest(name, choices)}"
    if (unknown := re.search(r"Key '([^']+)' (?:is not in struct|not in)", text)) is not None:
        key = _full_key(text) or unknown.group(1)
        written = next((o.partition("=")[0].lstrip("+") for o in overrides if unknown.group(1) in o), key)
        return f"{written}: unknown key of `groundhog {command}`; {_nearest(written, [*known, *groups])}"
    key = _full_key(text) or ""
    kind = known.get(key)
    if isinstance(kind, type) and issubclass(kind, Enum):
        wrong = re.search(r"Invalid value '([^']*)'", text)
        return f"{key}: {_nearest(wrong.group(1) if wrong else '', [m.lower() for m in kind.__members__])}"
    detail = str(chain[-1]).splitlines()[0]
    return f"{key}: {detail}" if key else detail


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
    hint = f"did you mean `{close[0]}`? " if close else ""
    return f"{hint}known: {', '.join(known)}"
