"""Rebuilds a lost episode table from the rows, as after a recording that was killed; guesses nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rl.replay.lerobot.decode import frame_times
from rl.replay.lerobot.errors import DatasetError, EpisodeError
from rl.replay.lerobot.layout import DatasetLayout, EpisodeEntry, VideoSpan, read_layout, read_parquet


def read_or_rebuild(root: Path) -> tuple[DatasetLayout, list[str]]:
    """The metadata of a dataset and what had to be rebuilt; raises DatasetError where that is not possible."""
    bare = read_layout(root, episodes=False)
    try:
        return read_layout(root), []
    except DatasetError as error:
        if not bare.version.startswith("v3"):
            raise
        notes = [f"the episode table was rebuilt from the rows ({error})"]
    lengths: Counter[int] = Counter()
    places: dict[int, tuple[Path, int]] = {}
    for path in sorted((root / "data").glob("*/*.parquet")):
        try:
            table = read_parquet(path)
            indices, tasks = table["episode_index"].to_pylist(), table["task_index"].to_pylist()
        except (DatasetError, KeyError) as error:
            notes.append(f"{path}: left out: {error}")
            continue
        for index, task in zip(indices, tasks, strict=True):
            if places.setdefault(index, (path, task))[0] != path:
                raise DatasetError(
                    f"{path}: episode {index} lies in {places[index][0]} too; remove one of them"
                )
            lengths[index] += 1
    if not lengths:
        raise DatasetError(
            f"{root}: no readable rows either, so no episode can be rebuilt: {'; '.join(notes[1:])}"
        )
    spans = {key: _spans(root, key, bare.fps, sorted(lengths.items())) for key in bare.video_keys()}
    entries = [
        EpisodeEntry(
            index=index,
            length=length,
            tasks=tuple(text for text in [bare.tasks.get(places[index][1])] if text is not None),
            data=places[index][0],
            videos={key: spans[key][index] for key in spans if index in spans[key]},
            remarks={},
        )
        for index, length in sorted(lengths.items())
    ]
    return replace(bare, episodes=entries), notes


def _spans(root: Path, key: str, fps: float, lengths: Sequence[tuple[int, int]]) -> Mapping[int, VideoSpan]:
    """Where each episode's frames lie: episode after episode, for as long as files and episodes end together.

    From the first file on whose frames do not add up to whole episodes, nothing is assigned: a missing frame
    would shift all pictures behind it.
    """
    spans: dict[int, VideoSpan] = {}
    waiting = list(lengths)
    for path in sorted((root / "videos" / key).glob("*/*.mp4")):
        try:
            frames = len(frame_times(path))
        except EpisodeError:
            break
        inside: dict[int, VideoSpan] = {}
        taken = 0
        while waiting and taken + waiting[0][1] <= frames:
            index, length = waiting.pop(0)
            inside[index] = VideoSpan(path, taken / fps)
            taken += length
        if taken != frames:
            break
        spans |= inside
    return spans
