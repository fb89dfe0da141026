"""How rows become episodes of a store: by a mapping, or by what an exported dataset says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rl.replay.journal import EpisodeOutcome
from rl.replay.lerobot.columns import from_columns, provenance_from_columns
from rl.replay.lerobot.convert import Converter, Scales, Stretch
from rl.replay.lerobot.errors import EpisodeError
from rl.replay.lerobot.extra import extra_names
from rl.replay.lerobot.layout import DatasetLayout
from rl.replay.lerobot.mapping import MappingConfig, View
from rl.replay.lerobot.rows import EpisodeRows
from rl.replay.lerobot.self_description import SelfDescription
from rl.replay.schema import StoreSchema
from robot.types import Episode, Provenance


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows of one episode without a gap, from row `start` of it; `last`: to its end. remarks: of the episode."""

    rows: EpisodeRows
    start: int
    last: bool
    remarks: Mapping[str, Any]
    stretch: Stretch | None = None  # of a mapped dataset


@dataclass(frozen=True, eq=False)
class Stored:
    """An episode as it goes into the store."""

    episode: Episode
    provenance: Sequence[Provenance | None]
    outcome: EpisodeOutcome


class EpisodeSource(Protocol):
    """Read all pieces, ask for the schema, then for the episodes."""

    @property
    def views(self) -> Mapping[str, View]:
        """The store's views."""

    @property
    def tolerance_s(self) -> float:
        """By which a frame's time may differ from its row's."""

    def read(self, rows: EpisodeRows, start: int, *, last: bool) -> Piece:
        """Check rows without a gap; raises EpisodeError where they are not usable."""

    def schema(self) -> StoreSchema:
        """What the store will hold, by all that was read."""

    def stored(self, piece: Piece, images: Mapping[str, NDArray[np.uint8]]) -> Stored:
        """The episode of a piece."""

    def extra(self, columns: Sequence[str], layout: DatasetLayout) -> Mapping[str, str]:
        """Which columns are kept beside the store: name there -> name in the dataset."""


@dataclass(eq=False)
class MappedSource:
    """A dataset from elsewhere, read as `mapping` says."""

    mapping: MappingConfig
    layout: DatasetLayout
    _stretches: list[Stretch] = field(default_factory=list)
    _scales: Scales | None = None

    def __post_init__(self) -> None:
        self._converter = Converter(self.mapping)

    @property
    def views(self) -> Mapping[str, View]:
        return self.mapping.resolved_views()

    @property
    def tolerance_s(self) -> float:
        return self.mapping.tolerance_s

    def read(self, rows: EpisodeRows, start: int, *, last: bool) -> Piece:
        stretch = self._converter.read(rows, last=last)
        self._stretches.append(stretch)
        return Piece(rows, start, last, rows.entry.remarks, stretch)

    def schema(self) -> StoreSchema:
        self._scales = self._converter.fit(self._stretches)
        # In words where all episodes share the task; each one's own is in the report.
        texts = {stretch.rows.entry.tasks for stretch in self._stretches}
        return StoreSchema(
            task=self.mapping.task,
            instruction=" ".join(texts.pop()) if len(texts) == 1 else "",
            views={name: (view.height, view.width) for name, view in self.views.items()},
            proprio=self._scales.proprio,
            action_dim=len(self._scales.action),
            metadata=self._converter.metadata(self._scales, self.layout.fps),
        )

    def stored(self, piece: Piece, images: Mapping[str, NDArray[np.uint8]]) -> Stored:
        assert piece.stretch is not None and self._scales is not None
        episode = self._converter.episode(piece.stretch, self._scales, images, last=piece.last)
        outcome = self._converter.outcome(piece.stretch, last=piece.last)
        return Stored(episode, [None] * len(episode), outcome)

    def extra(self, columns: Sequence[str], layout: DatasetLayout) -> Mapping[str, str]:
        return {name: name for name in extra_names(columns, layout.features)}


@dataclass(frozen=True, eq=False)
class NativeSource:
    """A dataset that was exported from a store: all of it is known, nothing is fitted."""

    description: SelfDescription
    tolerance_s: float = 1e-4

    @property
    def views(self) -> Mapping[str, View]:
        return self.description.views

    def read(self, rows: EpisodeRows, start: int, *, last: bool) -> Piece:
        if start or not last:
            raise EpisodeError("rows are missing from an exported episode; it cannot be cut at gaps")
        return Piece(rows, start, last, SelfDescription.foreign(rows.entry.remarks))

    def schema(self) -> StoreSchema:
        return self.description.schema

    def stored(self, piece: Piece, images: Mapping[str, NDArray[np.uint8]]) -> Stored:
        return Stored(
            episode=from_columns(piece.rows, images),
            provenance=provenance_from_columns(piece.rows),
            outcome=SelfDescription.outcome(piece.rows.entry.remarks),
        )

    def extra(self, columns: Sequence[str], layout: DatasetLayout) -> Mapping[str, str]:
        return {store: name for name, store in self.description.extra.items()}
