"""Checkpoints: torn ones are skipped and named, and a kill at any moment leaves one that loads."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rl import checkpoint
from rl.checkpoint import CheckpointError


def save(directory: Path, updates: int, **options: int) -> Path:
    tensors = {"w": torch.full((64, 64), float(updates)), "step": torch.tensor(updates)}
    return checkpoint.save(directory, tensors, {"updates": updates, "note": "é"}, **options)


def loaded_updates(directory: Path) -> int:
    found = checkpoint.load_latest(directory)
    assert found is not None
    assert found.tensors["w"].unique().tolist() == [float(found.updates)]
    assert found.meta == {"updates": found.updates, "note": "é"}
    return found.updates


def test_round_trip_keeps_the_newest_few(tmp_path: Path) -> None:
    for updates in (10, 20, 30, 40):
        assert save(tmp_path, updates, keep=2) == tmp_path / f"{updates:09d}"
    assert loaded_updates(tmp_path) == 40
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000000030", "000000040", "latest"]


def test_nothing_saved_is_none(tmp_path: Path) -> None:
    assert checkpoint.load_latest(tmp_path) is None
    assert checkpoint.load_latest(tmp_path / "absent") is None


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["tensors.safetensors", "meta.json"])
@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink])
def test_a_damaged_newest_falls_back_and_says_so(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    for updates in (10, 20):
        save(tmp_path, updates)
    damage(tmp_path / "000000020" / name)
    found = checkpoint.load_latest(tmp_path)
    assert found is not None and found.updates == 10
    assert len(found.skipped) == 1 and "000000020" in found.skipped[0]


def test_a_torn_pointer_does_not_matter(tmp_path: Path) -> None:
    for updates in (10, 20):
        save(tmp_path, updates)
    (tmp_path / "latest").write_text("{")
    assert loaded_updates(tmp_path) == 20


def test_the_pointer_wins_over_higher_numbers_of_an_abandoned_branch(tmp_path: Path) -> None:
    for updates in (10, 20):
        save(tmp_path, updates)
    save(tmp_path, 15)
    assert loaded_updates(tmp_path) == 15


def test_pruning_never_removes_the_checkpoint_just_written(tmp_path: Path) -> None:
    save(tmp_path, 20)
    save(tmp_path, 15, keep=1)
    assert loaded_updates(tmp_path) == 15


def test_saving_twice_at_one_count_replaces(tmp_path: Path) -> None:
    save(tmp_path, 10)
    checkpoint.save(tmp_path, {"w": torch.ones(2)}, {"updates": 10})
    found = checkpoint.load_latest(tmp_path)
    assert found is not None and found.tensors["w"].tolist() == [1.0, 1.0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000000010", "latest"]


def test_interrupted_replacement_still_loads(tmp_path: Path) -> None:
    save(tmp_path, 10)
    (tmp_path / "000000010").rename(tmp_path / "000000010.replaced")
    assert loaded_updates(tmp_path) == 10
    save(tmp_path, 20)
    shutil.rmtree(tmp_path / "000000020")
    assert loaded_updates(tmp_path) == 10


def test_all_torn_is_an_error_not_a_fresh_start(tmp_path: Path) -> None:
    save(tmp_path, 10)
    truncate(tmp_path / "000000010" / "tensors.safetensors")
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        checkpoint.load_latest(tmp_path)


@pytest.mark.parametrize("meta", [{}, {"updates": "3"}, {"updates": -1}])
def test_meta_without_updates_is_refused(tmp_path: Path, meta: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="updates"):
        checkpoint.save(tmp_path, {}, meta)


@pytest.mark.parametrize("updates", [20, 10])  # a new checkpoint, and one that replaces its predecessor
def test_a_failure_at_any_call_leaves_one_that_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, updates: int
) -> None:
    save(tmp_path / "start", 10)
    budget = [0]

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            budget[0] -= 1
            if budget[0] < 0:
                raise OSError("disk gone")
            return real(*arguments, **options)

        return call

    monkeypatch.setattr(os, "fsync", counted(os.fsync))
    monkeypatch.setattr(Path, "rename", counted(Path.rename))
    for count in range(20):
        directory = tmp_path / str(count)
        shutil.copytree(tmp_path / "start", directory)
        budget[0] = count
        try:
            save(directory, updates)
        except OSError:
            assert loaded_updates(directory) in (10, updates)
        else:
            assert count >= 7 and loaded_updates(directory) == updates
            return
    pytest.fail("the save never succeeded")


WRITER = """
import sys
import torch
from pathlib import Path
from rl import checkpoint
updates = int(sys.argv[2])
while True:
    tensors = {"w": torch.full((64, 64), float(updates)), "step": torch.tensor(updates)}
    checkpoint.save(Path(sys.argv[1]), tensors, {"updates": updates, "note": "é"})
    print(updates, flush=True)
    updates += 1
"""


def test_kill_at_random_moments_never_loses_a_finished_checkpoint(tmp_path: Path) -> None:
    rng = random.Random(0)
    first = 0
    for _ in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(first)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert writer.stdout is not None
        finished = int(writer.stdout.readline())
        time.sleep(rng.uniform(0.0, 0.15))
        writer.send_signal(signal.SIGKILL)
        rest, _ = writer.communicate()
        finished = max([finished, *map(int, rest.split())])
        updates = loaded_updates(tmp_path)
        assert finished <= updates <= finished + 1
        first = updates + 1
