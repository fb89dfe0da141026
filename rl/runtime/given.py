"""What a run was given: the world model that it begins with, its judge, and the episodes that they learned from."""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from reward_model.classifier import read_data
from rl.config import ConfigError
from rl.digests import digest_of
from rl.replay.fingerprint import fingerprints
from rl.replay.reader import StoreReader
from rl.reward_models.fitting import FINGERPRINTS
from rl.runtime.run_dir import RunDir
from rl.schemas import TrainConfig
from rl.world_models.inputs import published_path
from worldmodel import checkpoint
from worldmodel.adapt import Versions
from worldmodel.interface import WorldModelError

GIVEN = "world_model/given.json"  # the version under which a given world model went into the run, and its file's digest


@dataclass(frozen=True)
class FirstVersion:
    """The world model that a session of a run begins with. own: trained by the run, from its episodes.

    path: of the file, None for a new model.
    """

    path: Path | None
    own: bool


def own_versions(run: RunDir) -> Versions:
    """World models that a run was given or has trained."""
    return Versions(run.path / "world_model" / "versions")


def check_world_model(run: RunDir, given: str | None) -> None:
    """Raise ConfigError where the run has a world model and `given` is not the one that it began with.

    A file that is gone is needed no more. Notes from before digests were kept tell it while the copy is there.
    """
    versions, note = own_versions(run), run.read_json(GIVEN)
    if given is None or not versions.all():
        return
    try:
        asked = digest_of(published_path(Path(given)))
    except WorldModelError:
        return
    begun = None
    if note is not None:
        begun = note.get("digest") or digest_of(versions.path(note["version"])) or asked
    if asked != begun:
        raise ConfigError(
            f"synthetic.video.world_model={given}: not the world model that this run began with, and it goes on with "
            "its own versions; continue it with synthetic.video.world_model=null, or start a new run with that one"
        )


def first_version(run: RunDir, given: str | None) -> FirstVersion:
    """The run's newest version, else the one that it was `given` (see `published_path`), else none.

    The given one becomes the run's first: its successors compete with it and are numbered behind it. It is noted
    beside the versions, as it stays a given one in later sessions for as long as nothing has replaced it. Runs without
    that note, begun before there was one, count their versions as their own.
    """
    versions = own_versions(run)
    if versions.all():
        note = run.read_json(GIVEN)
        own = note is None or versions.latest() != note["version"]
        return FirstVersion(versions.newest_path(), own)
    if given is None:
        return FirstVersion(None, own=False)
    source = published_path(Path(given))
    number = max(1, checkpoint.read(source).version)
    run.write_json(GIVEN, {"version": number, "digest": digest_of(source)})
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


def learned_before(run: RunDir | None, config: TrainConfig) -> Iterator[tuple[str, Collection[str]]]:
    """What teaches the models of a run, so far as it is there: (what, fingerprints of episodes).

    run: one that goes on; what it has by now counts, also where a file that it was given is gone. A model from before
    fingerprints were kept yields none.
    """
    video, demos = config.synthetic.video, config.demos.path
    if run is not None and own_versions(run).all():
        newest = own_versions(run).newest_path()
        yield str(newest), checkpoint.read(newest).learned or ()
    elif video.world_model is not None and Path(video.world_model).exists():
        learned = checkpoint.read(published_path(Path(video.world_model))).learned
        yield f"synthetic.video.world_model={video.world_model}", learned or ()
    if video.reward_model is not None and Path(video.reward_model).exists():
        learned = read_data(Path(video.reward_model)).get(FINGERPRINTS, ())
        yield f"synthetic.video.reward_model={video.reward_model}", learned
    elif run is not None and own_reward_model(run).exists():
        yield str(own_reward_model(run)), read_data(own_reward_model(run)).get(FINGERPRINTS, ())
    for name, store in (("synthetic.video.recordings", video.recordings), ("demos.path", demos)):
        if store is not None and Path(store).exists():
            yield f"{name}={store}", fingerprints(StoreReader(Path(store)))
