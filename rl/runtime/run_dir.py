"""The run directory: the bus between processes, and all that is left of a run. `ls` and `groundhog show` inspect it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from rl.agent.spec import AgentSpec
from rl.config import ConfigError, read, to_object
from rl.metrics import MetricsLog
from rl.runtime.board import Board
from rl.runtime.weights import WeightsDirectory
from rl.schemas import TrainConfig


class RunDir:
    """Paths and shared objects of one run; opening it changes nothing.

    Overrides of a resumed run count for this object only, until `commit_config` writes them down.
    """

    def __init__(self, path: Path, config: DictConfig | None = None) -> None:
        self.path = path
        self._config = config

    @classmethod
    def create(cls, path: Path, config: DictConfig) -> RunDir:
        """A new run directory with its config; refuses one that already holds a run."""
        if (path / "config.yaml").exists():
            raise ConfigError(
                f"{path}: already holds a run; continue it with resume={path}, or choose another name="
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            for name in ("checkpoints", "weights", "videos", "errors"):
                (path / name).mkdir(exist_ok=True)
            run = cls(path, config)
            run.commit_config()
        except OSError as error:
            raise ConfigError(
                f"{path}: cannot write there ({error.strerror}); choose another runs_dir="
            ) from error
        return run

    @classmethod
    def open(cls, path: Path, overrides: tuple[str, ...] = ()) -> RunDir:
        """An existing run with overrides on top of its config."""
        config = read(path / "config.yaml", "train", overrides)
        to_object(config)
        return cls(path, config if overrides else None)

    def commit_config(self) -> None:
        """Write the config with its overrides, so that workers and later sessions see them."""
        if self._config is not None:
            beside = self.path / "config.yaml.tmp"
            OmegaConf.save(self._config, beside, resolve=True)
            beside.rename(self.path / "config.yaml")

    def withdraw(self) -> None:
        """Give the name back if nothing was recorded under it: the start was refused."""
        if not any(
            path.exists() for path in (self.path / "spec.json", self.demo, self.real / "segments" / "000000")
        ):
            (self.path / "config.yaml").unlink(missing_ok=True)

    @property
    def config(self) -> TrainConfig:
        config = to_object(read(self.path / "config.yaml", "train") if self._config is None else self._config)
        assert isinstance(config, TrainConfig)
        return config

    @property
    def real(self) -> Path:
        return self.path / "real"

    @property
    def demo(self) -> Path:
        return self.path / "demo"

    @property
    def synthetic(self) -> Path:
        return self.path / "synthetic"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def spec(self) -> AgentSpec:
        """What the agent sees and controls, fixed at the start of the run."""
        path = self.path / "spec.json"
        try:
            return AgentSpec.from_json(_read_json(path))
        except FileNotFoundError as error:
            raise ConfigError(
                f"{path}: missing; this run stopped before its demonstrations were complete, "
                f"continue it with resume={self.path}"
            ) from error

    @spec.setter
    def spec(self, spec: AgentSpec) -> None:
        self.write_json("spec.json", spec.to_json())

    def board(self) -> Board:
        return Board(self.path / "board.bin", time.monotonic)

    def weights(self) -> WeightsDirectory:
        return WeightsDirectory(self.path / "weights")

    def values(self) -> WeightsDirectory:
        """The critics, for whoever selects imagined clips by them."""
        return WeightsDirectory(self.path / "values")

    def metrics(self) -> MetricsLog:
        return MetricsLog(self.metrics_path, time.time)

    def write_json(self, name: str, value: Mapping[str, Any]) -> Path:
        """Write a small JSON file beside and rename."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".tmp")
        beside.write_text(json.dumps(value, indent=1))
        beside.rename(path)
        return path

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A small JSON file, None where it does not exist."""
        path = self.path / name
        return _read_json(path) if path.exists() else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise ConfigError(f"{path}: torn or not JSON ({error}); restore it from a copy") from error
    if not isinstance(value, dict):
        raise ConfigError(
            f"{path}: expected a JSON object, got {type(value).__name__}; restore it from a copy"
        )
    return value
