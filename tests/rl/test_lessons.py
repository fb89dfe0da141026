"""Lessons: a replay is a test only where neither the world model nor the judge has learned from its episode."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

import pytest
from replay_data import DONE, observation, schema, transition

from rl.imagination.clip import Origin, Start
from rl.imagination.lessons import Lessons
from rl.replay.copying import copy_episodes
from rl.replay.fingerprint import fingerprint, fingerprints
from rl.replay.reader import StoreReader
from rl.replay.sampler import Holdout
from rl.replay.writer import StoreWriter


def record(path: Path, numbers: Collection[int]) -> StoreReader:
    """Episodes whose every byte follows from their number."""
    with StoreWriter(path, schema()) as writer:
        for number in numbers:
            writer.begin_episode(observation(number, 0))
            writer.add(transition(number, 0))
            writer.add(transition(number, 1, terminated=True))
            writer.end_episode(DONE)
    return StoreReader(path)


@pytest.fixture
def readers(tmp_path: Path) -> dict[Origin, StoreReader]:
    """Four demonstrations, of which 0 and 2 are held out, and four online episodes."""
    return {
        Origin.DEMO: record(tmp_path / "demo", range(4)),
        Origin.ONLINE: record(tmp_path / "real", range(10, 14)),
    }


def lessons(
    readers: dict[Origin, StoreReader],
    *,
    given: bool = True,
    online: int = 0,
    inherited: Collection[str] | None = (),
    judge: Collection[str] | None = (),
) -> Lessons:
    return Lessons(readers, Holdout(episodes=(0, 2)), given, online, inherited, judge)


def unseen(one: Lessons, origin: Origin) -> list[int]:
    return [episode for episode in range(4) if one.unseen(Start(origin, episode, 1))]


def test_a_copy_and_a_store_that_grew_name_their_episodes_alike(tmp_path: Path) -> None:
    first = record(tmp_path / "first", range(3))
    names = [fingerprint(first, number) for number in range(3)]
    assert len(set(names)) == 3 and fingerprints(first) == set(names)
    moved = StoreReader(shutil.copytree(tmp_path / "first", tmp_path / "moved"))
    assert fingerprints(moved) == set(names)
    with StoreWriter(tmp_path / "mixed", schema(segment_rows=16)) as writer:
        record(tmp_path / "other", [7])
        copy_episodes(tmp_path / "other", writer)
        copy_episodes(tmp_path / "first", writer)
    mixed = StoreReader(tmp_path / "mixed")
    assert [fingerprint(mixed, number) for number in range(1, 4)] == names, "the number does not enter"
    assert fingerprints(mixed, Holdout(episodes=(0, 1))) == set(names[1:])


def test_models_that_were_given_have_learned_nothing_here_until_one_is_replaced(
    readers: dict[Origin, StoreReader],
) -> None:
    one = lessons(readers)
    assert unseen(one, Origin.DEMO) == unseen(one, Origin.ONLINE) == [0, 1, 2, 3]
    one.replaced(online=3)
    assert unseen(one, Origin.DEMO) == [0, 2], "what is held out"
    assert unseen(one, Origin.ONLINE) == [0, 2, 3], "and what came later"
    assert one.unseen(Start(Origin.ANCHOR, 5, 0))


@pytest.mark.parametrize("who", ["inherited", "judge"])
@pytest.mark.parametrize("given", [True, False])
def test_what_a_given_model_says_that_it_has_learned_from_is_no_test(
    readers: dict[Origin, StoreReader], who: str, given: bool
) -> None:
    known = {fingerprint(readers[Origin.DEMO], 2), fingerprint(readers[Origin.ONLINE], 3)}
    one = lessons(readers, given=given, **{who: known})  # type: ignore[arg-type]
    assert unseen(one, Origin.DEMO) == ([0, 1, 3] if given else [0])
    assert unseen(one, Origin.ONLINE) == [0, 1, 2]


@pytest.mark.parametrize("who", ["inherited", "judge"])
def test_a_model_that_does_not_say_makes_rehearsals_of_demonstrations(
    readers: dict[Origin, StoreReader], who: str
) -> None:
    one = lessons(readers, **{who: None})  # type: ignore[arg-type]
    assert unseen(one, Origin.DEMO) == []
    assert unseen(one, Origin.ONLINE) == [0, 1, 2, 3], "recorded after both"
