"""`groundhog show`: a store or dataset as tables, one episode as contact sheet and film; check=true examines all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from rl import command
from rl.config import ConfigError, load
from rl.inspection import dataset_table, episode_table, step_table, store_paths, store_recording
from rl.pictures import save_film, save_png, strip
from rl.relived import read_relived, relived_table, side_by_side
from rl.replay.lerobot.layout import is_dataset, read_layout
from rl.replay.lerobot.recordings import read_episodes
from rl.replay.quality import Finding, check
from rl.replay.reader import StoreReader
from rl.runtime.run_dir import RunDir
from rl.schemas import ShowConfig, ShowSource


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("show", argv, _show)


def _show(overrides: list[str]) -> int:
    config = load("show", overrides)
    assert isinstance(config, ShowConfig)
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)  # tables in a file or a pipe keep their columns
    path = Path(config.path)
    if config.source is ShowSource.SYNTHETIC:
        return _show_relived(path, config, console)
    if is_dataset(path):
        return _show_dataset(path, config, console)
    return max(_show_store(store, config, console) for store in store_paths(path))


def _show_store(path: Path, config: ShowConfig, console: Console) -> int:
    """Returns 1 where a check found something, else 0."""
    reader = StoreReader(path)
    episodes, found = reader.episodes(), 0
    if config.check:
        console.print(f"{path}: {reader.verify_all()} rows, every checksum holds")
        kept = [info.episode for info in episodes if not info.discarded and reader.holds(info.episode)]
        found = _report(check(store_recording(reader, number) for number in kept), console)
    console.print(episode_table(path, reader))
    if not episodes:
        return found
    episode = reader.episode(_chosen([info.episode for info in episodes], config))
    console.print(step_table(episode))
    _save_pictures(
        path / "show", episode.episode, episode.images, episode.intervened.tolist(), config, console
    )
    return found


def _show_relived(path: Path, config: ShowConfig, console: Console) -> int:
    """Imagined clips of the run `path` beside the real ones."""
    run = RunDir(path)
    if not run.synthetic.is_dir():
        raise ConfigError(f"path={path}: expected a run that imagines; it has no {run.synthetic.name}/")
    clips = read_relived(run.synthetic, run.demo, run.real, config.episode, config.clips)
    if not clips:
        raise ConfigError(
            f"{run.synthetic}: no imagined clip was admitted so far; selection/refused/* in {run.metrics_path} says why"
        )
    console.print(
        relived_table(f"{run.synthetic}: {len(clips)} of {clips[-1].number + 1} imagined clips", clips)
    )
    picture = side_by_side(clips, config.columns)
    if picture is None:
        console.print("state observations: no pictures to show")
        return 0
    out = Path(config.out) if config.out else run.synthetic / "show"
    name = f"clips_{clips[0].number:06d}_{clips[-1].number:06d}.png"
    console.print(f"contact sheet {save_png(out / name, picture)}", soft_wrap=True)
    return 0


def _show_dataset(path: Path, config: ShowConfig, console: Console) -> int:
    """Returns 1 where a check found something, else 0."""
    layout = read_layout(path)
    episodes, torn = read_episodes(layout)
    found = _report(torn, console)
    if config.check:
        found |= _report(check(episode.recording for episode in episodes), console)
    if not episodes:
        return found
    console.print(dataset_table(layout, episodes))
    number = _chosen([episode.recording.number for episode in episodes], config)
    shown = next(e.recording for e in episodes if e.recording.number == number)
    images = {key: shown.frames(key) for key in shown.views}
    # Beside a dataset, not in it: its readers may take every file there for a part of it.
    _save_pictures(Path(f"{path}_show"), number, images, None, config, console)
    return found


def _report(findings: Iterable[Finding], console: Console) -> int:
    found = 0
    for finding in findings:
        place = "all episodes" if finding.episode < 0 else f"episode {finding.episode}"
        word = "note" if finding.note else "found"
        console.print(f"{word}: {place}: {finding.text}", markup=False, highlight=False, soft_wrap=True)
        found = max(found, int(not finding.note))
    return found


def _chosen(numbers: Sequence[int], config: ShowConfig) -> int:
    if not -len(numbers) <= config.episode < len(numbers):
        raise ConfigError(f"episode: expected {-len(numbers)}..{len(numbers) - 1}, got {config.episode}")
    return numbers[config.episode]


def _save_pictures(
    place: Path,
    number: int,
    images: Mapping[str, NDArray[np.uint8]],
    marks: Sequence[bool] | None,
    config: ShowConfig,
    console: Console,
) -> None:
    if not images:
        console.print("state observations: no pictures to show")
        return
    out = Path(config.out) if config.out else place
    stem = f"episode_{number:06d}"
    try:
        sheet = save_png(out / f"{stem}.png", strip(images, config.columns, marks))
        film = save_film(out / f"{stem}.mp4", images)
    except OSError as error:
        raise ConfigError(
            f"{out}: cannot write there ({error.strerror}); choose another out=<directory>"
        ) from error
    console.print(f"contact sheet {sheet}\nfilm          {film}", soft_wrap=True)


if __name__ == "__main__":
    raise SystemExit(main())
