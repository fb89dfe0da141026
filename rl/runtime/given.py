"""What a run was given: the world model that it begins with, its judge, and the episodes that they learned from."""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from reward_model.classifier import read_data
from rl.replay.fingerprint import fingerprints
from rl.replay.reader import StoreReader
from rl.reward_models.fitting import FINGERPRINTS
from rl.runtime.run_dir import RunDir
from rl.schemas import TrainConfig
from rl.world_models.inputs import published_path
from worldmodel import checkpoint
from worldmodel.adapt import Versions

GIVEN = "world_model/given.json"  # the version under which a given world model went into the run


@dataclass(frozen=True)
class FirstVersion:
    """The world model that a session of a run begins with. own: trained by the run, from its episodes.

    path: of the file, None for a new model.
    """

    path: Path | None
    own: bool


def first_version(run: RunDir, versions: Versions, given: str | None) -> FirstVersion:
    """The run's newest version, else the one that it was `given` (see `published_path`), else none.

    The given one becomes the run's first: its successors compete with it and are numbered behind it. It is noted
    beside the versions, as it stays a given one in later sessions for as long as nothing has replaced it. Runs without
    that note, begun before there was one, count their versions as their own.
    """
    if versions.all():
        note = run.read_json(GIVEN)
        own = note is None or versions.latest() != note["version"]
        return FirstVersion(versions.newest_path(), own)
    if given is None:
        return FirstVersion(None, own=False)
    source = published_path(Path(given))
    number = max(1, checkpoint.read(source).version)
    run.write_json(GIVEN, {"version": number})
    path = versions.path(number)
    _copy(source, path)
    return FirstVersion(path, own=False)


def own_reward_model(run: RunDir) -> Path:
    """Where a run keeps its reward model: a copy of the given one, or one trained on its demonstrations."""
    return run.path / "reward_model.safetensors"


def judges(run: RunDir, given: Path) -> bool:
    """Whether the run's own reward model is a copy of `given`."""
    own = own_reward_model(run)
    return own.exists() and filecmp.cmp(given, own, shallow=False)


def take_reward_model(run: RunDir, given: Path) -> None:
    """Make `given` the reward model of the run."""
    _copy(given, own_reward_model(run))


def _copy(source: Path, target: Path) -> None:
    """Beside and renamed."""
    beside = target.with_suffix(".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, beside)
    beside.rename(target)


def learned_before(config: TrainConfig) -> Iterator[tuple[str, str, Collection[str]]]:
    """What teaches the models of a run, so far as it is there: (key, its value, fingerprints of episodes).

    A model from before fingerprints were kept yields none.
    """
    video, demos = config.synthetic.video, config.demos.path
    if video.world_model is not None and Path(video.world_model).exists():
        learned = checkpoint.read(published_path(Path(video.world_model))).learned
        yield "synthetic.video.world_model", video.world_model, learned or ()
    if video.reward_model is not None and Path(video.reward_model).exists():
        learned = read_data(Path(video.reward_model)).get(FINGERPRINTS, ())
        yield "synthetic.video.reward_model", video.reward_model, learned
    if demos is not None and Path(demos).exists():
        yield "demos.path", demos, fingerprints(StoreReader(Path(demos)))
