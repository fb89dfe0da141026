"""Stores and datasets as text: one table of episodes, one table of the steps of an episode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.table import Table

from rl.replay.errors import StoreError
from rl.replay.lerobot.layout import DatasetLayout
from rl.replay.lerobot.recordings import DatasetEpisode
from rl.replay.quality import Recording, gaps, histogram_bars, stale_frames
from rl.replay.reader import StoreReader
from robot.types import Episode, Source

SHOWN_EPISODES = 40
SHOWN_STEPS = 60


def store_paths(path: Path) -> list[Path]:
    """The stores at or directly below `path`; raises StoreError where there is none."""
    if not path.is_dir():
        raise StoreError(f"path={path}: no such directory")
    if (path / "schema.json").exists():
        return [path]
    found = sorted(p.parent for p in path.glob("*/schema.json"))
    if not found:
        raise StoreError(
            f"path={path}: neither a store, a run directory nor a LeRobot dataset (no schema.json in it or below it)"
        )
    return found


def episode_table(path: Path, reader: StoreReader) -> Table:
    """One line per episode: length, outcome, return, corrections, pauses, repeated images, actions over -1..1."""
    episodes = reader.episodes()
    table = Table(
        title=f"{path}: {len(episodes)} episodes, {reader.num_transitions} transitions", title_justify="left"
    )
    for name in ("episode", "steps", "outcome", "return", "corrected", "gaps", "stale", "actions", "sources"):
        table.add_column(name, justify="right")
    for info in [info for info in episodes[-SHOWN_EPISODES:] if reader.holds(info.episode)]:
        recording = store_recording(reader, info.episode)
        table.add_row(
            str(info.episode),
            str(info.num_transitions),
            info.outcome.reason.value,
            f"{info.episode_return:.2f}",
            str(info.corrections),
            str(gaps(recording)),
            _or_unknown(stale_frames(recording)),
            histogram_bars(recording.action, np.ones(reader.schema.action_dim)),
            " ".join(f"{source.name.lower()} {count}" for source, count in info.sources.items()),
        )
    return table


def store_recording(reader: StoreReader, number: int) -> Recording:
    """An episode of a store, for its table row and its check; images are read when they are asked for."""
    info = reader.episodes()[number]
    rows = np.arange(info.first_row, info.end_row)
    records = reader.records(rows)
    observation = records["observation"]
    rate = reader.schema.metadata.get("control_hz")
    times = observation["timestamp"]
    return Recording(
        number=number,
        state=observation["proprio"].astype(np.float64),
        action=records["transition"]["action"][:-1].astype(np.float64),
        timestamp=times,
        capture={
            view: observation["image_timestamps"][:, index] for index, view in enumerate(reader.schema.views)
        },
        # A store that does not tell its rate: its own usual one.
        period=1.0 / rate
        if isinstance(rate, int | float)
        else float(np.median(np.diff(times)))
        if len(times) > 1
        else 1.0,
        views=list(reader.schema.views),
        frames=lambda view: reader.frames(view, rows),
    )


def dataset_table(layout: DatasetLayout, episodes: Sequence[DatasetEpisode]) -> Table:
    """One line per episode: length, outcome, corrections, pauses, repeated images, actions over their range, task."""
    table = Table(
        title=f"{layout.root}: LeRobot {layout.version}, {len(layout.episodes)} episodes at {layout.fps:g} Hz, "
        f"views {', '.join(key for key, feature in layout.features.items() if feature.is_image) or 'none'}",
        title_justify="left",
    )
    for name in ("episode", "rows", "success", "corrected", "gaps", "stale", "actions", "task"):
        table.add_column(name, justify="right")
    span = np.max(
        [np.abs(e.recording.action).max(axis=0) for e in episodes if e.recording.action.size], axis=0
    )
    for episode in episodes[-SHOWN_EPISODES:]:
        recording = episode.recording
        table.add_row(
            str(recording.number),
            str(len(recording.state)),
            _or_unknown(None if episode.success is None else "yes" if episode.success else "no"),
            _or_unknown(episode.corrections),
            str(gaps(recording)),
            _or_unknown(stale_frames(recording)),
            histogram_bars(recording.action, span) if recording.action.size else "?",
            "; ".join(episode.tasks),
        )
    return table


def _or_unknown(value: object) -> str:
    return "?" if value is None else str(value)


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
