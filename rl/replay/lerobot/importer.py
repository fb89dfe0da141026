"""import_dataset: a LeRobot dataset becomes a replay store, whole or not at all; frames are decoded once, here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rl.replay.lerobot.beside import written_beside
from rl.replay.lerobot.decode import episode_images
from rl.replay.lerobot.errors import DatasetError, EpisodeError
from rl.replay.lerobot.extra import EXTRA, ExtraWriter
from rl.replay.lerobot.layout import DatasetLayout, EpisodeEntry, read_layout
from rl.replay.lerobot.mapping import MappingConfig, View
from rl.replay.lerobot.repair import read_or_rebuild
from rl.replay.lerobot.report import REPORT, ImportedEpisode, ImportReport, SkippedEpisode
from rl.replay.lerobot.rows import EpisodeRows, RowFiles
from rl.replay.lerobot.self_description import SelfDescription
from rl.replay.lerobot.sources import EpisodeSource, MappedSource, NativeSource, Piece
from rl.replay.writer import StoreWriter


@dataclass(eq=False)
class _Progress:
    """What has happened to the dataset's episodes so far."""

    pieces: list[Piece] = field(default_factory=list)
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

    A dataset that was exported from a store needs no mapping. repair: cut an episode at gaps instead of leaving it
    out, and rebuild a lost episode table. episodes: only these. Raises DatasetError where nothing is usable, the
    mapping does not fit or `out` exists; then nothing is left behind.
    """
    if out.exists():
        raise DatasetError(f"{out}: exists already; choose another place, or remove it first")
    layout, notes = read_or_rebuild(path) if repair else (read_layout(path), [])
    source = _source(layout, mapping)
    _check_views(layout, source.views)
    progress, files = _Progress(notes=notes), RowFiles(layout)
    for entry in _chosen(layout, episodes):
        try:
            _plan(files.episode(entry), layout, source, repair, progress)
        except EpisodeError as error:
            progress.skip(entry, str(error))
    _check_any(layout, progress, len(progress.pieces))
    extra = source.extra(progress.pieces[0].rows.table.column_names, layout)
    with written_beside(out) as draft:
        with (
            StoreWriter(draft, source.schema()) as writer,
            ExtraWriter(draft / EXTRA, layout.features, extra) as kept,
        ):
            for piece in progress.pieces:
                _import(piece, source, writer, kept, progress)
            transitions = writer.num_transitions
        _check_any(layout, progress, len(progress.imported))
        report = ImportReport(
            source=str(path),
            version=layout.version,
            fps=layout.fps,
            transitions=transitions,
            views=source.views,
            episodes=tuple(progress.imported),
            skipped=tuple(sorted(progress.skipped, key=lambda skipped: skipped.source_episode)),
            notes=tuple(progress.notes),
            clipped=tuple(np.concatenate(progress.clipped).mean(axis=0).tolist()),
        )
        report.write(draft / REPORT)
    return report


def _source(layout: DatasetLayout, mapping: MappingConfig) -> EpisodeSource:
    description = SelfDescription.load(layout.root) if mapping.state.empty else None
    return NativeSource(description) if description is not None else MappedSource(mapping, layout)


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
    rows: EpisodeRows, layout: DatasetLayout, source: EpisodeSource, repair: bool, progress: _Progress
) -> None:
    parts = rows.stretches(layout.fps)
    if len(parts) > 1 and not repair:
        raise EpisodeError(
            f"{len(parts) - 1} gaps in its rows, the first behind frame {parts[0].stop - 1}; "
            "repair=true cuts it there"
        )
    pieces = [
        source.read(rows.part(part), part.start, last=part is parts[-1])
        for part in parts
        if len(parts) == 1 or part.stop - part.start > 1
    ]
    progress.pieces += pieces
    progress.notes += rows.notes
    if len(parts) > 1:
        progress.notes.append(f"episode {rows.entry.index}: cut into {len(pieces)} at gaps in its rows")


def _import(
    piece: Piece, source: EpisodeSource, writer: StoreWriter, extra: ExtraWriter, progress: _Progress
) -> None:
    entry = piece.rows.entry
    try:
        images = {
            name: episode_images(piece.rows, view, source.tolerance_s) for name, view in source.views.items()
        }
        stored = source.stored(piece, images)
    except EpisodeError as error:
        progress.skip(entry, str(error))
        return
    extra.write(piece.rows, writer.num_rows)
    number = writer.begin_episode(stored.episode.observation(0))
    for transition, provenance in zip(stored.episode.transitions(), stored.provenance, strict=True):
        writer.add(replace(transition, provenance=provenance))
    writer.end_episode(stored.outcome)
    progress.clipped.append(np.abs(stored.episode.requested_action) > 1.0)
    progress.imported.append(
        ImportedEpisode(
            episode=number,
            source_episode=entry.index,
            start=piece.start,
            stop=piece.start + len(piece.rows),
            tasks=entry.tasks,
            remarks=piece.remarks,
        )
    )


def _check_any(layout: DatasetLayout, progress: _Progress, usable: int) -> None:
    if not usable:
        reasons = "; ".join(f"episode {s.source_episode}: {s.reason}" for s in progress.skipped[:3])
        raise DatasetError(f"{layout.root}: none of its episodes is usable: {reasons}")
