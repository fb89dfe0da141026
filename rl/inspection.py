"""Stores as text: one table of episodes, one table of the steps of an episode."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.table import Table

from rl.config import ConfigError
from rl.replay.reader import StoreReader
from robot.types import Episode, Source

SHOWN_EPISODES = 40
SHOWN_STEPS = 60


def store_paths(path: Path) -> list[Path]:
    """The stores at or directly below `path`; raises ConfigError where there is none."""
    if not path.is_dir():
        raise ConfigError(f"path={path}: no such directory")
    if (path / "schema.json").exists():
        return [path]
    found = sorted(p.parent for p in path.glob("*/schema.json"))
    if not found:
        raise ConfigError(
            f"path={path}: neither a store nor a run directory (no schema.json in it or below it)"
        )
    return found


def episode_table(path: Path, reader: StoreReader) -> Table:
    """One line per episode: length, outcome, return, corrections, policy versions."""
    episodes = reader.episodes()
    table = Table(
        title=f"{path}: {len(episodes)} episodes, {reader.num_transitions} transitions", title_justify="left"
    )
    for name in ("episode", "steps", "outcome", "return", "corrected", "sources"):
        table.add_column(name, justify="right")
    for info in episodes[-SHOWN_EPISODES:]:
        table.add_row(
            str(info.episode),
            str(info.num_transitions),
            info.outcome.reason.value,
            f"{info.episode_return:.2f}",
            str(info.corrections),
            " ".join(f"{source.name.lower()} {count}" for source, count in info.sources.items()),
        )
    return table


def step_table(episode: Episode) -> Table:
    """One line per step: executed and requested action, reward, ends, who acted, ages of the images."""
    table = Table(title=f"episode {episode.episode}", title_justify="left")
    for name in ("step", "time s", "executed action", "asked", "reward", "end", "who", "policy", "image ms"):
        table.add_column(name, no_wrap=True)
    for t in range(min(len(episode), SHOWN_STEPS)):
        age = max(
            (episode.timestamp[t] - times[t] for times in episode.image_timestamps.values()), default=0.0
        )
        end = "terminated" if episode.terminated[t] else "truncated" if episode.truncated[t] else ""
        table.add_row(
            str(t),
            f"{episode.timestamp[t] - episode.timestamp[0]:.2f}",
            _vector(episode.action[t]),
            "same" if np.allclose(episode.action[t], episode.requested_action[t], atol=0.01) else "other",
            f"{episode.reward[t]:g}",
            end,
            Source(int(episode.source[t])).name.lower(),
            str(episode.policy_version[t]),
            f"{1e3 * age:.0f}",
        )
    if len(episode) > SHOWN_STEPS:
        table.caption = f"{len(episode) - SHOWN_STEPS} more steps"
    return table


def _vector(values: np.ndarray[tuple[int], np.dtype[np.float32]]) -> str:
    return " ".join(f"{v:+.1f}" for v in values)
