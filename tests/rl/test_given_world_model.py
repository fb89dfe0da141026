"""A world model that a run was given, and those that it trained itself, are told apart by what is on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl.config import ConfigError
from rl.runtime.given import GIVEN, FirstVersion, check_world_model, first_version, own_versions
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


def test_a_given_model_stays_a_given_one_until_it_is_replaced(tmp_path: Path, given: str) -> None:
    run = RunDir(tmp_path / "run")
    versions = own_versions(run)
    third = FirstVersion(versions.path(3), own=False)
    assert first_version(run, given) == third
    assert first_version(run, given) == third, "a second session"
    versions.publish(model(), Scores(21.0))
    assert first_version(run, given) == FirstVersion(versions.path(4), own=True)
    for _ in range(3):
        versions.publish(model(), Scores(22.0))
    assert first_version(run, given) == FirstVersion(versions.path(7), own=True)


def test_a_model_that_the_run_trained_is_its_own(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    versions = own_versions(run)
    assert first_version(run, None) == FirstVersion(None, own=False)
    versions.publish(model(), Scores(20.0))
    assert first_version(run, None) == FirstVersion(versions.path(1), own=True)


def test_a_death_between_note_and_copy_and_a_run_without_note(tmp_path: Path, given: str) -> None:
    run = RunDir(tmp_path / "run")
    versions = own_versions(run)
    first_version(run, given)
    versions.path(3).unlink()
    assert first_version(run, given).own is False, "it is copied again"
    (run.path / GIVEN).unlink()
    assert first_version(run, given).own is True, "nobody knows; what may have been learned counts"
    with pytest.raises(WorldModelError, match="no world model was published"):
        first_version(RunDir(tmp_path / "other"), str(tmp_path))


def other(path: Path) -> str:
    """The first version of another training."""
    Versions(path).publish(model(), Scores(19.0))
    return str(path)


def test_a_run_that_has_a_world_model_is_not_continued_with_another(tmp_path: Path, given: str) -> None:
    run, trained = RunDir(tmp_path / "run"), RunDir(tmp_path / "trained")
    check_world_model(run, given)
    first_version(run, given)
    own_versions(trained).publish(model(), Scores(20.0))
    for kept in (given, None, str(tmp_path / "gone")):
        check_world_model(run, kept)
    for one in (run, trained):
        with pytest.raises(
            ConfigError, match=r"continue it with synthetic\.video\.world_model=null, or start"
        ):
            check_world_model(one, other(tmp_path / f"for_{one.path.name}"))
    for _ in range(3):
        own_versions(run).publish(model(), Scores(21.0))
    check_world_model(run, given)
    Versions(Path(given) / "versions").publish(model(), Scores(22.0))
    with pytest.raises(ConfigError, match="not the world model that this run began with"):
        check_world_model(run, given)


def test_a_note_from_before_digests_were_kept_tells_as_long_as_the_copy_is_there(
    tmp_path: Path, given: str
) -> None:
    run = RunDir(tmp_path / "run")
    first_version(run, given)
    run.write_json(GIVEN, {"version": 3})
    check_world_model(run, given)
    another = other(tmp_path / "another")
    with pytest.raises(ConfigError, match="not the world model"):
        check_world_model(run, another)
    for _ in range(2):
        own_versions(run).publish(model(), Scores(21.0))
    check_world_model(run, another)  # nobody knows
