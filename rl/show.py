"""`groundhog show`: a stored episode as text, as a contact sheet (PNG) and as a film (mp4)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from rl import command
from rl.config import ConfigError, ShowConfig, load
from rl.inspection import episode_table, step_table, store_paths
from rl.pictures import save_film, save_png, strip
from rl.replay.reader import StoreReader


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("show", argv, _show)


def _show(overrides: list[str]) -> int:
    config = load("show", overrides)
    assert isinstance(config, ShowConfig)
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)  # tables in a file or a pipe keep their columns
    for path in store_paths(Path(config.path)):
        _show_store(path, config, console)
    return 0


def _show_store(path: Path, config: ShowConfig, console: Console) -> None:
    reader = StoreReader(path)
    if config.check:
        console.print(f"{path}: {reader.verify_all()} rows, every checksum holds")
    episodes = reader.episodes()
    console.print(episode_table(path, reader))
    if not episodes:
        return
    if not -len(episodes) <= config.episode < len(episodes):
        raise ConfigError(f"episode: expected {-len(episodes)}..{len(episodes) - 1}, got {config.episode}")
    info = episodes[config.episode]
    episode = reader.episode(info.episode)
    console.print(step_table(episode))
    if not episode.images:
        console.print("state observations: no pictures to show")
        return
    out = Path(config.out) if config.out else path / "show"
    stem = f"episode_{info.episode:06d}"
    marks = episode.intervened.tolist()
    try:
        sheet = save_png(out / f"{stem}.png", strip(episode.images, config.columns, marks))
        film = save_film(out / f"{stem}.mp4", episode.images)
    except OSError as error:
        raise ConfigError(
            f"{out}: cannot write there ({error.strerror}); choose another out=<directory>"
        ) from error
    console.print(f"contact sheet {sheet}\nfilm          {film}", soft_wrap=True)


if __name__ == "__main__":
    raise SystemExit(main())
