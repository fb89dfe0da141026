"""import_dataset: a LeRobot dataset becomes a replay store, whole or not at all; frames are decoded once, here."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rl.replay.lerobot.convert import Converter, Scales, Stretch
from rl.replay.lerobot.decode import row_frames, video_frames
from rl.replay.lerobot.errors import DatasetError, EpisodeError
from rl.replay.lerobot.layout import INDEX_COLUMNS, DatasetLayout, EpisodeEntry, read_layout
from rl.replay.lerobot.mapping import MappingConfig, View
from rl.replay.lerobot.report import EXTRA, REPORT, ROW, ImportedEpisode, ImportReport, SkippedEpisode
from rl.replay.lerobot.resize import fit_image
from rl.replay.lerobot.rows import EpisodeRows, RowFiles
from rl.replay.schema import StoreSchema
from rl.replay.store import sync_path
from rl.replay.writer import StoreWriter


@dataclass(frozen=True, eq=False)
class _Planned:
    """A stretch that is to become an episode. start: its first row in the dataset's episode."""

    stretch: Stretch
    start: int
    last: bool


@dataclass(eq=False)
class _Progress:
    """What has happened to the dataset's episodes so far."""

    planned: list[_Planned] = field(default_factory=list)
    imported: list[ImportedEpisode] = field(default_factory=list)
    skipped: list[SkippedEpisode] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    clipped: list[NDArray[np.bool_]] = field(default_factory=list)

    def skip(self, entry: EpisodeEntry, reason: str) -> None:
        self.skipped.append(SkippedEpisode(entry.index, reason))


def import_dataset(
    path: Path, out: Path, mapping: MappingConfig, *, repair: bool = False, episodes: Sequence[int] = ()
) -> ImportReport:
    """Import the dataset in `path` into a new store `out`; episodes that are not usable are left out by name.

    repair: cut an episode at gaps instead of leaving it out. episodes: only these. Raises DatasetError where
    nothing is usable, the mapping does not fit or `out` exists; then nothing is left behind.
    """
    if out.exists():
        raise DatasetError(f"{out}: exists already; choose another place, or remove it first")
    layout, views = read_layout(path), mapping.resolved_views()
    _check_views(layout, views)
    converter, progress = Converter(mapping), _Progress()
    files = RowFiles(layout)
    for entry in _chosen(layout, episodes):
        try:
            _plan(files.episode(entry), layout, converter, repair, progress)
        except EpisodeError as error:
            progress.skip(entry, str(error))
    _check_any(layout, progress, len(progress.planned))
    scales = converter.fit([planned.stretch for planned in progress.planned])
    schema = StoreSchema(
        task=mapping.task,
        instruction=_instruction(progress),
        views={name: (view.height, view.width) for name, view in views.items()},
        proprio=scales.proprio,
        action_dim=len(scales.action),
        metadata=converter.metadata(scales, layout.fps),
    )
    with _beside(out) as draft:
        with StoreWriter(draft, schema) as writer, _ExtraColumns(draft / EXTRA) as extra:
            for planned in progress.planned:
                _import(planned, mapping, converter, scales, writer, extra, progress)
            transitions = writer.num_transitions
        _check_any(layout, progress, len(progress.imported))
        report = ImportReport(
            source=str(path),
            version=layout.version,
            fps=layout.fps,
            transitions=transitions,
            views=views,
            episodes=tuple(progress.imported),
            skipped=tuple(sorted(progress.skipped, key=lambda skipped: skipped.source_episode)),
            notes=tuple(progress.notes),
            clipped=tuple(np.concatenate(progress.clipped).mean(axis=0).tolist()),
        )
        report.write(draft / REPORT)
    return report


def _check_views(layout: DatasetLayout, views: Mapping[str, View]) -> None:
    images = sorted(key for key, feature in layout.features.items() if feature.is_image)
    for name, view in views.items():
        feature = layout.features.get(view.feature)
        if feature is None:
            raise DatasetError(f"mapping.views.{name}: {view.feature} is no feature; images are {images}")
        if feature.is_depth:
            raise DatasetError(f"mapping.views.{name}: {view.feature} is a depth map, not RGB images")


def _chosen(layout: DatasetLayout, episodes: Sequence[int]) -> list[EpisodeEntry]:
    known = [entry.index for entry in layout.episodes]
    absent = [index for index in episodes if index not in known]
    if absent:
        raise DatasetError(f"episodes: {absent} are not in the dataset, which has {known[0]} to {known[-1]}")
    return [entry for entry in layout.episodes if not episodes or entry.index in episodes]


def _plan(
    rows: EpisodeRows, layout: DatasetLayout, converter: Converter, repair: bool, progress: _Progress
) -> None:
    parts = rows.stretches(layout.fps)
    if len(parts) > 1 and not repair:
        raise EpisodeError(
            f"{len(parts) - 1} gaps in its rows, the first behind frame {parts[0].stop - 1}; "
            "repair=true cuts it there"
        )
    planned = [
        _Planned(converter.read(rows.part(part), last=part is parts[-1]), part.start, part is parts[-1])
        for part in parts
        if part is parts[-1] or part.stop - part.start > 1
    ]
    progress.planned += planned
    progress.notes += rows.notes
    if len(parts) > 1:
        progress.notes.append(f"episode {rows.entry.index}: cut into {len(planned)} at gaps in its rows")


def _import(
    planned: _Planned,
    mapping: MappingConfig,
    converter: Converter,
    scales: Scales,
    writer: StoreWriter,
    extra: _ExtraColumns,
    progress: _Progress,
) -> None:
    stretch, entry = planned.stretch, planned.stretch.rows.entry
    try:
        images = {
            name: _images(stretch.rows, view, mapping.tolerance_s)
            for name, view in mapping.resolved_views().items()
        }
    except EpisodeError as error:
        progress.skip(entry, str(error))
        return
    episode = converter.episode(stretch, scales, images, last=planned.last)
    extra.write(stretch.rows, writer.num_rows)
    number = writer.begin_episode(episode.observation(0))
    for transition in episode.transitions():
        writer.add(transition)
    writer.end_episode(converter.outcome(stretch, last=planned.last))
    progress.clipped.append(np.abs(episode.requested_action) > 1.0)
    progress.imported.append(
        ImportedEpisode(
            episode=number,
            source_episode=entry.index,
            start=planned.start,
            stop=planned.start + len(stretch.rows),
            tasks=entry.tasks,
            remarks=entry.remarks,
        )
    )


def _images(rows: EpisodeRows, view: View, tolerance: float) -> NDArray[np.uint8]:
    """The images (N, H, W, 3) of an episode as the store holds them."""
    feature = rows.features[view.feature]
    if feature.dtype == "video":
        frames = video_frames(rows.entry.videos[view.feature], rows.timestamps(), tolerance)
    else:
        frames = row_frames(rows, view.feature)
    images = np.empty((len(rows), view.height, view.width, 3), np.uint8)
    for target, frame in enumerate(frames):
        if frame.shape[:2] != feature.image_size:
            raise EpisodeError(
                f"{view.feature}: info.json announces {feature.image_size} px, the frames are {frame.shape[:2]}"
            )
        images[target] = fit_image(frame, view)
    return images


def _instruction(progress: _Progress) -> str:
    """The task in words where all episodes share it; each episode's own is in the report."""
    texts = {planned.stretch.rows.entry.tasks for planned in progress.planned}
    return " ".join(texts.pop()) if len(texts) == 1 else ""


def _check_any(layout: DatasetLayout, progress: _Progress, usable: int) -> None:
    if not usable:
        reasons = "; ".join(f"episode {s.source_episode}: {s.reason}" for s in progress.skipped[:3])
        raise DatasetError(f"{layout.root}: none of its episodes is usable: {reasons}")


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """A directory beside `out` that takes its place at the end, or vanishes."""
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield draft
        for path in draft.iterdir():
            sync_path(path)
        draft.rename(out)
        sync_path(out.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


class _ExtraColumns:
    """Everything the dataset's rows hold, as it was, one row per row of the store."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: pq.ParquetWriter | None = None
        self._schema: pa.Schema | None = None

    def write(self, rows: EpisodeRows, first_row: int) -> None:
        table = rows.table.drop_columns(
            [
                name
                for name in rows.table.column_names
                if name in INDEX_COLUMNS or (name in rows.features and rows.features[name].is_image)
            ]
        ).replace_schema_metadata(None)
        at = pa.array(np.arange(first_row, first_row + len(rows)))
        table = table.add_column(0, ROW, at)
        if self._file is None:
            self._schema = table.schema
            self._file = pq.ParquetWriter(self._path, table.schema)
        self._file.write_table(table.cast(self._schema))

    def __enter__(self) -> _ExtraColumns:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
