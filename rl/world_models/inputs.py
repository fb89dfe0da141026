"""What the commands that judge a world model are given: a published version, and the episodes to judge it on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from rl.replay.lerobot.importer import import_dataset
from rl.replay.lerobot.layout import is_dataset
from rl.replay.lerobot.mapping import MappingConfig
from rl.replay.sampler import Holdout
from rl.replay.schema import StoreSchema
from rl.world_models.data import ClipData, make_spec, real_stores
from worldmodel import checkpoint
from worldmodel.adapt import Versions
from worldmodel.factory import load_world_model
from worldmodel.interface import WorldModel, WorldModelError, WorldModelSpec
from worldmodel.lpips import Lpips, LpipsWeightsError, load_lpips


def published_path(path: Path) -> Path:
    """`path` where it is a file, else the newest version of a run, or of an `out` of finetune-world-model.

    Raises WorldModelError where nothing was published.
    """
    if path.is_file():
        return path
    places = (path / "world_model" / "versions", path / "versions", path)
    found = next((place for place in places if Versions(place).all()), places[0])
    return Versions(found).newest_path()


@dataclass(frozen=True)
class Published:
    """A version: its file, what kind of model it is, and the model."""

    path: Path
    kind: str
    model: WorldModel


def published(path: Path, device: str) -> Published:
    """The model behind `path`, see `published_path`. Raises WorldModelError where its file is damaged."""
    found = published_path(path)
    kind = checkpoint.read(found).kind
    return Published(found, kind, load_world_model(found, device=torch.device(device)))


@contextmanager
def opened(data: Path, mapping: MappingConfig, holdout: Holdout, *, all_episodes: bool) -> Iterator[ClipData]:
    """The clips of a run, a store, or a LeRobot dataset, which is imported for as long as this lasts.

    all_episodes: nothing was trained on these data, so every episode counts as held out.
    """
    with TemporaryDirectory() as scratch:
        stores = [Path(scratch) / "store"] if is_dataset(data) else real_stores(data)
        if is_dataset(data):
            import_dataset(data, stores[0], mapping)
        clips = ClipData.open(stores, holdout)
        if all_episodes:
            every = [
                replace(holdout, episodes=tuple(info.episode for info in reader.episodes()))
                for reader in clips.readers
            ]
            clips = replace(clips, holdouts=every)
        yield clips


def check_fits(spec: WorldModelSpec, schema: StoreSchema) -> None:
    """Raise WorldModelError where the episodes are not what the model was made for."""
    theirs = make_spec(schema, spec.context_frames, spec.max_horizon)
    for view, size in spec.views.items():
        if theirs.views.get(view) != size:
            raise WorldModelError(
                f"views: the model sees {view} at {size[0]}x{size[1]} px, the data have "
                f"{dict(theirs.views)}; record or import them so, or train another model"
            )
    if theirs.action.meaning != spec.action.meaning:
        raise WorldModelError(
            f"actions: the model was trained on {spec.action.meaning}, the data have {theirs.action.meaning}; "
            "a model of one scale, frame or rate says nothing about another"
        )


def find_lpips(path: str | None, device: str) -> tuple[Lpips | None, str]:
    """LPIPS, or None and the reason: it is never taken with random weights. Raises for a `path` that is none."""
    try:
        return load_lpips(Path(path) if path else None, torch.device(device)), ""
    except LpipsWeightsError as error:
        if path:
            raise
        return None, f"LPIPS: n/a. {error}"
