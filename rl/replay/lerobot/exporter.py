"""export_dataset: a replay store becomes a LeRobot dataset v3.0, whole or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rl.replay.journal import EpisodeInfo
from rl.replay.lerobot.beside import sync_tree, written_beside
from rl.replay.lerobot.columns import IMAGES, features, to_columns
from rl.replay.lerobot.decode import video_frames
from rl.replay.lerobot.encode import Encoding, carry, encode
from rl.replay.lerobot.errors import DatasetError
from rl.replay.lerobot.extra import ExtraColumns
from rl.replay.lerobot.layout import EpisodeEntry, VideoSpan, read_layout
from rl.replay.lerobot.mapping import View
from rl.replay.lerobot.report import REPORT, ImportedEpisode, ImportReport
from rl.replay.lerobot.self_description import SelfDescription
from rl.replay.lerobot.stats import Histogram, histogram
from rl.replay.lerobot.writing import DatasetWriter
from rl.replay.reader import StoreReader
from rl.replay.rows import provenance_of
from robot.types import Provenance, Source

TOLERANCE_S = 1e-4  # by which LeRobot's readers let a frame's time differ from its row's


@dataclass(frozen=True)
class ExportReport:
    """What was written. skipped: store episode -> why it is not in the dataset."""

    episodes: int
    frames: int
    skipped: Mapping[int, str]
    notes: tuple[str, ...]

    def describe(self) -> Iterator[str]:
        """Lines for a person."""
        yield f"{self.episodes} episodes, {self.frames} frames"
        for episode, reason in self.skipped.items():
            yield f"left out: episode {episode}: {reason}"
        yield from self.notes


def export_dataset(
    store: Path,
    out: Path,
    encoding: Encoding,
    *,
    fps: int | None = None,
    videos_from: Path | None = None,
) -> ExportReport:
    """Export every finished episode of `store` that was not discarded; raises DatasetError, leaving nothing behind.

    fps: only for a store whose control rate is no whole number. videos_from: the dataset from which the store was
    imported; its videos are carried over unchanged. Every video is read back when it is written: a dataset that
    appears can be decoded.
    """
    reader = StoreReader(store)
    rate = fps or _rate(reader)
    skipped = {
        info.episode: "discarded" if info.discarded else "a single observation, no step"
        for info in reader.episodes()
        if info.discarded or info.num_transitions < 1
    }
    kept = [info for info in reader.episodes() if info.episode not in skipped]
    if not kept:
        raise DatasetError(f"{store}: no finished episode to export; record first")
    report = ImportReport.load(store) if (store / REPORT).exists() else None
    origin = _Origin.of(store, report, videos_from) if videos_from is not None else None
    videos = _Videos(reader, rate, encoding, origin)
    extra = ExtraColumns.of(store, reader.num_rows)
    synthetic = any(Source.SYNTHETIC in info.sources for info in kept)
    own = features(reader.schema, provenance=synthetic)
    description = SelfDescription.of(reader.schema, videos.views, own, extra.features)
    imported = {episode.episode: episode for episode in report.episodes} if report else {}
    with written_beside(out) as draft:
        all_features = {**own, **{name: extra.features[key] for name, key in description.extra.items()}}
        writer = DatasetWriter(draft, rate, all_features, [IMAGES + view for view in reader.schema.views])
        for info in kept:
            columns = to_columns(
                reader.episode(info.episode), _provenance(reader, info) if synthetic else None
            )
            more = extra.rows(info)
            task, remarks = _described(reader, info, imported.get(info.episode))
            writer.add(
                {**columns, **{name: more[key] for name, key in description.extra.items()}},
                {
                    IMAGES + view: videos.write(writer.video_path(IMAGES + view), view, info)
                    for view in videos.views
                },
                task,
                remarks,
            )
        description.write(draft)
        sync_tree(draft)
        writer.finish()
    return ExportReport(len(kept), writer.num_frames, skipped, extra.notes)


def _rate(reader: StoreReader) -> int:
    """The store's control rate as LeRobot counts it."""
    rate = reader.schema.metadata.get("control_hz")
    if not isinstance(rate, int | float) or rate < 1 or rate != round(rate):
        raise DatasetError(
            f"the store's control_hz is {rate!r}, and LeRobot counts whole frames per second; give fps=<number> "
            "(the real times are kept in columns of their own)"
        )
    return round(rate)


def _provenance(reader: StoreReader, info: EpisodeInfo) -> list[Provenance]:
    records = reader.records(np.arange(info.first_row, info.end_row - 1))
    return [provenance_of(record) for record in records]


def _described(
    reader: StoreReader, info: EpisodeInfo, imported: ImportedEpisode | None
) -> tuple[str, dict[str, object]]:
    """The task in words, and what the episode's metadata row says beyond LeRobot's own columns."""
    task = reader.schema.instruction or reader.schema.task
    remarks: dict[str, object] = {}
    if imported is not None:
        task = imported.tasks[0] if imported.tasks else task
        remarks |= imported.remarks
    return task, remarks | SelfDescription.remarks(info.outcome)


@dataclass(frozen=True)
class _Origin:
    """The dataset from which a store was imported: where the videos of its episodes lie."""

    views: Mapping[str, View]
    episodes: Mapping[int, ImportedEpisode]
    entries: Mapping[int, EpisodeEntry]
    uses: Mapping[Path, int]  # video file -> how many episodes lie in it
    fps: float

    @classmethod
    def of(cls, store: Path, report: ImportReport | None, dataset: Path) -> _Origin:
        if report is None:
            raise DatasetError(f"{store}: not an imported store, so videos_from has no videos for it")
        layout = read_layout(dataset)
        return cls(
            views=report.views,
            episodes={episode.episode: episode for episode in report.episodes},
            entries={entry.index: entry for entry in layout.episodes},
            uses=Counter(span.path for entry in layout.episodes for span in entry.videos.values()),
            fps=layout.fps,
        )

    def span(self, info: EpisodeInfo, view: str) -> VideoSpan:
        imported = self.episodes.get(info.episode)
        entry = self.entries.get(imported.source_episode) if imported else None
        if imported is None or entry is None or self.views[view].feature not in entry.videos:
            raise DatasetError(
                f"videos_from has no video of {view} for episode {info.episode}; export without videos_from"
            )
        span = entry.videos[self.views[view].feature]
        return replace(span, start=span.start + imported.start / self.fps)


class _Videos:
    """Writes one video after the other, encoded or carried over, and reads each one back."""

    def __init__(self, reader: StoreReader, fps: int, encoding: Encoding, origin: _Origin | None) -> None:
        self._reader, self._fps, self._encoding, self._origin = reader, fps, encoding, origin
        if origin is not None and origin.fps != fps:
            raise DatasetError(f"videos_from has {origin.fps:g} frames per second, the store {fps}")
        sizes = reader.schema.views
        self.views = {
            name: replace(origin.views[name], feature=IMAGES + name)
            if origin is not None and name in origin.views
            else View(IMAGES + name, *size)
            for name, size in sizes.items()
        }

    def write(self, path: Path, view: str, info: EpisodeInfo) -> list[Histogram]:
        """The video of one episode and view; returns the histogram of each decoded frame."""
        times = np.arange(info.rows) / self._fps
        if self._origin is not None:
            span = self._origin.span(info, view)
            carry(span, times, TOLERANCE_S, path, alone=self._origin.uses[span.path] == 1)
        else:
            frames = self._reader.frames(view, np.arange(info.first_row, info.end_row))
            encode(path, frames, self._fps, self._encoding)
        return [histogram(frame) for frame in video_frames(VideoSpan(path), times, TOLERANCE_S)]
