"""The benchmark of what a world model is told: never only by a motion that a run would not have."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from video_cell import Cell, recorded

from benchmarks.conditioning import rows_of, with_imagined_readings
from rl.imagination.clip import Origin
from rl.imagination.proprio import ProprioConfig, fit_proprio
from rl.runtime.run_dir import RunDir
from worldmodel.baselines import CopyLastFrame
from worldmodel.interface import Conditioning


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Cell]]:
    root = tmp_path_factory.mktemp("run")
    with recorded(root) as made:
        yield root, made


def test_readings_up_to_the_start_are_real_and_those_behind_it_imagined(cell: tuple[Path, Cell]) -> None:
    pool = cell[1].pool
    clip = pool.clip(pool.draw(1, np.random.default_rng(0))[0], 4, 2)
    told = with_imagined_readings(clip, fit_proprio([pool.readers[Origin.DEMO]], ProprioConfig()))
    np.testing.assert_array_equal(told.proprio[:, :3], clip.proprio[:, :3])
    assert (np.abs(told.proprio - clip.proprio)[:, 3:, :3].max(axis=2) > 0).all()
    np.testing.assert_array_equal(told.action, clip.action)


def test_a_model_that_is_told_the_motion_is_judged_with_the_imagined_one_too(
    cell: tuple[Path, Cell], tmp_path: Path
) -> None:
    root, made = cell
    run = RunDir(root)
    (tmp_path / "real").symlink_to(run.demo)
    (tmp_path / "demo").symlink_to(run.demo)
    motions = {}
    for told in Conditioning:
        spec = dataclasses.replace(made.model.spec, conditioning=told)
        CopyLastFrame(spec).save(tmp_path / told.value)
        motions[told] = {row["motion"] for row in rows_of(tmp_path / told.value, RunDir(tmp_path))}
    assert motions == {Conditioning.COMMANDED: {"real"}, Conditioning.MEASURED: {"real", "imagined"}}
