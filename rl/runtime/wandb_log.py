"""wandb as one more reader of the metrics: offline by default, online by one key, never required."""

from __future__ import annotations

from typing import Any

from rl.config import ConfigError
from rl.runtime.run_dir import RunDir
from rl.schemas import TrainConfig, WandbMode


class WandbLog:
    """Forwards metric records to wandb; does nothing when disabled."""

    def __init__(self, run: RunDir, config: TrainConfig) -> None:
        self._run: Any = None
        self.note = ""
        if config.wandb is WandbMode.DISABLED:
            return
        try:
            import wandb
        except ImportError as error:
            if config.wandb is WandbMode.ONLINE:
                raise ConfigError(
                    "wandb=online: wandb is not installed; pip install 'groundhog[wandb]', or wandb=disabled"
                ) from error
            self.note = "wandb is not installed: metrics go to metrics.jsonl only"
            return
        self._run = wandb.init(
            project="groundhog",
            name=run.path.name,
            dir=str(run.path),
            mode=config.wandb.value,
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.define_metric("env_steps")
        self._run.define_metric("*", step_metric="env_steps")

    def log(self, record: dict[str, float]) -> None:
        """One record of `metrics.jsonl`; drawn against env_steps."""
        if self._run is not None:
            self._run.log({k: v for k, v in record.items() if k != "worker" and v is not None})

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
