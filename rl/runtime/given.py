"""What a run was given: the world model that it begins with, told apart from those that it trained itself."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from rl.runtime.run_dir import RunDir
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
    beside = path.with_suffix(".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, beside)
    beside.rename(path)
    return FirstVersion(path, own=False)
