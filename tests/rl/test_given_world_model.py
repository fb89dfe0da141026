"""A world model that a run was given, and those that it trained itself, are told apart by what is on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl.runtime.given import GIVEN, FirstVersion, first_version
from rl.runtime.run_dir import RunDir
from worldmodel.adapt import Scores, Versions
from worldmodel.baselines import CopyLastFrame
from worldmodel.interface import ActionNormalisation, WorldModelError, WorldModelSpec


def model() -> CopyLastFrame:
    return CopyLastFrame(WorldModelSpec({"wrist": (8, 8)}, ActionNormalisation.identity(7)))


@pytest.fixture
def given(tmp_path: Path) -> str:
    """The third version of some other training."""
    versions = Versions(tmp_path / "given" / "versions")
    for _ in range(3):
        versions.publish(model(), Scores(20.0))
    return str(tmp_path / "given")


def versions_of(run: RunDir) -> Versions:
    return Versions(run.path / "world_model" / "versions")


def test_a_given_model_stays_a_given_one_until_it_is_replaced(tmp_path: Path, given: str) -> None:
    run = RunDir(tmp_path / "run")
    versions = versions_of(run)
    third = FirstVersion(versions.path(3), own=False)
    assert first_version(run, versions, given) == third
    assert first_version(run, versions, given) == third, "a second session"
    versions.publish(model(), Scores(21.0))
    assert first_version(run, versions, given) == FirstVersion(versions.path(4), own=True)
    for _ in range(3):
        versions.publish(model(), Scores(22.0))
    assert first_version(run, versions, given) == FirstVersion(versions.path(7), own=True)


def test_a_model_that_the_run_trained_is_its_own(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    versions = versions_of(run)
    assert first_version(run, versions, None) == FirstVersion(None, own=False)
    versions.publish(model(), Scores(20.0))
    assert first_version(run, versions, None) == FirstVersion(versions.path(1), own=True)


def test_a_death_between_note_and_copy_and_a_run_without_note(tmp_path: Path, given: str) -> None:
    run = RunDir(tmp_path / "run")
    versions = versions_of(run)
    first_version(run, versions, given)
    versions.path(3).unlink()
    assert first_version(run, versions, given).own is False, "it is copied again"
    (run.path / GIVEN).unlink()
    assert first_version(run, versions, given).own is True, "nobody knows; what may have been learned counts"
    with pytest.raises(WorldModelError, match="no world model was published"):
        first_version(RunDir(tmp_path / "other"), Versions(tmp_path / "empty"), str(tmp_path))
