"""The models of the benchmark on video: an interrupted call goes on where it stopped, and says what it took in all."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import closed_loop
from rl.world_models.training import MARK

OPTIONS = {"episodes": 4, "anchors": 2, "minutes": 1.0, "readings": []}


class Making:
    """Stands in for what makes recordings and models, each as fast as nothing; the clock tells a second per look."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.options = argparse.Namespace(directory=path / "run", **OPTIONS)
        self.folder, self.kept = self.options.directory / "models" / "press", path / "kept"
        self.finetuned: list[bool] = []  # whether each call resumed
        self.interrupt = False
        self._now = 0
        monkeypatch.setattr(closed_loop, "KEPT", self.kept)
        monkeypatch.setattr(closed_loop, "record", self._record)
        monkeypatch.setattr(closed_loop.finetune_world_model, "main", self._finetune)
        monkeypatch.setattr(closed_loop.train_reward_model, "main", self._train)
        monkeypatch.setattr(closed_loop.time, "process_time", self._clock)

    def prepare(self) -> dict[str, Any]:
        """What is told of the models."""
        overrides = closed_loop.prepare("press", self.options)
        assert (
            f"synthetic.video.world_model={self.folder}/world_model/versions/000001.safetensors" in overrides
        )
        told: dict[str, Any] = json.loads((self.kept / "press_scarce" / "models.json").read_text())
        return told

    def _clock(self) -> float:
        self._now += 1
        return float(self._now)

    def _record(self, store: Path, *arguments: Any, **options: Any) -> None:
        store.mkdir(parents=True, exist_ok=True)

    def _finetune(self, arguments: Sequence[str]) -> int:
        world = self.folder / "world_model"
        self.finetuned.append("resume=true" in arguments)
        world.mkdir(exist_ok=True)
        (world / MARK).write_text("{}")
        if self.interrupt:
            return 130
        (world / "versions").mkdir()
        (world / "versions" / "000001.safetensors").touch()
        return 0

    def _train(self, arguments: Sequence[str]) -> int:
        self.asked = list(arguments)
        if self.interrupt:
            return 130
        (self.folder / "reward_model.safetensors").touch()
        return 0


@pytest.fixture
def making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Making:
    return Making(tmp_path, monkeypatch)


def costs(told: dict[str, Any]) -> list[int | None]:
    return [told[f"{name}_cpu_s"] for name in ("record", "world_model", "reward_model")]


def test_a_training_that_was_interrupted_is_resumed_and_what_is_done_is_skipped(making: Making) -> None:
    making.interrupt = True
    with pytest.raises(SystemExit) as stopped:
        making.prepare()
    assert stopped.value.code == 130
    making.interrupt = False
    assert costs(making.prepare()) == [2, 2, 1], "of both calls"
    assert making.finetuned == [False, True]
    (making.folder / "reward_model.safetensors").unlink()
    making.prepare()
    assert making.finetuned == [False, True], "the world model is there"


def test_a_cost_that_nobody_knows_is_null(making: Making) -> None:
    making.folder.mkdir(parents=True)
    (making.folder / "costs.json").write_text('{"record_cpu_s": 7, "world_model_cpu_s": null}')
    assert costs(making.prepare()) == [8, None, 1], "killed while it trained the world model"


def test_recordings_from_before_costs_were_kept_have_none(making: Making) -> None:
    (making.folder / "play").mkdir(parents=True)
    assert costs(making.prepare()) == [None, 1, 1]


@pytest.mark.parametrize(("name", "value"), [("episodes", 5), ("readings", ["ee_z"])])
def test_models_that_were_made_otherwise_are_not_taken(making: Making, name: str, value: Any) -> None:
    making.prepare()
    setattr(making.options, name, value)
    with pytest.raises(SystemExit, match="choose another --directory"):
        making.prepare()


def test_the_reward_model_is_given_the_readings_and_the_account_says_so(making: Making) -> None:
    making.options.readings = ["ee_y", "ee_z"]
    assert making.prepare()["readings"] == ["ee_y", "ee_z"]
    assert "classifier.readings=[ee_y,ee_z]" in making.asked


def test_models_from_before_there_were_readings_were_made_without(making: Making) -> None:
    making.prepare()
    made = making.folder / "made_with.json"
    before = {name: value for name, value in json.loads(made.read_text()).items() if name != "readings"}
    made.write_text(json.dumps(before))
    making.prepare()
    making.options.readings = ["ee_z"]
    with pytest.raises(SystemExit, match="choose another --directory"):
        making.prepare()
