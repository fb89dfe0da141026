"""The inline runtime: deterministic for a seed, and what it reports is what the commands find again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rl import cli
from rl.replay.reader import StoreReader
from rl.runtime.run_dir import RunDir
from robot.types import Source
from tests.e2e.harness import SMALL

PIXELS = ("robot.obs=pixels", "robot.image_px=32", "agent.encoder.channels=[4,8,8]")


def _train(path: Path, *overrides: str) -> RunDir:
    arguments = [f"runs_dir={path}", "name=run", *SMALL, *PIXELS, "runtime.kind=inline", *overrides]
    assert cli.main(["train", *arguments]) == 0
    return RunDir(path / "run")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A short run from pixels with evaluations, shared by the tests below, which only read it."""
    return _train(
        tmp_path_factory.mktemp("inline"),
        "actor.max_env_steps=120",
        "actor.eval_every_env_steps=60",
        "actor.eval_episodes=2",
        "actor.final_eval_episodes=4",
    )


def test_the_same_seed_gives_the_same_run_bit_by_bit(run: RunDir, tmp_path: Path) -> None:
    again = _train(
        tmp_path,
        "actor.max_env_steps=120",
        "actor.eval_every_env_steps=60",
        "actor.eval_episodes=2",
        "actor.final_eval_episodes=4",
    )
    one, two = run.weights().load().tensors, again.weights().load().tensors
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    first, second = StoreReader(run.real), StoreReader(again.real)
    assert first.num_rows == second.num_rows
    rows = np.arange(first.num_rows)
    np.testing.assert_array_equal(first.frames("wrist", rows), second.frames("wrist", rows))


def test_evaluate_reproduces_the_final_evaluation_of_training(run: RunDir) -> None:
    summary = json.loads((run.path / "summary.json").read_text())
    out = run.path / "again.json"
    assert cli.main(["evaluate", f"run={run.path}", "episodes=4", f"out={out}"]) == 0
    again = json.loads(out.read_text())
    assert again["eval/success"] == summary["final_success"]
    assert again["policy_version"] == summary["policy_version"]
    assert again["noise"] == summary["eval_noise"]
    if summary["cycle_steps"] == summary["cycle_steps"]:
        assert again["eval/cycle_steps"] == summary["cycle_steps"] or again["eval/success"] == 0


def test_corrections_enter_the_demonstration_share_exactly(run: RunDir) -> None:
    from rl.build import make_samplers
    from rl.replay.mixer import Mixer

    mixer = Mixer(make_samplers(run.real, run.demo, "demo", "online"))
    reader = StoreReader(run.real)
    corrected = sum(info.corrections for info in reader.episodes())
    assert corrected > 0
    assert mixer.sizes()["demo"] == StoreReader(run.demo).num_transitions + corrected
    sources = np.concatenate([reader.episode(info.episode).source for info in reader.episodes()])
    assert (sources == Source.CORRECTION).sum() == corrected


def test_the_run_leaves_what_a_person_wants_to_see(run: RunDir) -> None:
    for name in ("summary.json", "summary.png", "videos/final.mp4", "config.yaml", "safety.jsonl"):
        assert (run.path / name).stat().st_size > 0, name
    assert cli.main(["show", f"path={run.path}", "check=true"]) == 0
    assert list((run.real / "show").glob("*.png")) and list((run.real / "show").glob("*.mp4"))


def test_nothing_in_a_run_is_a_pickle(run: RunDir) -> None:
    for path in run.path.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                assert file.read(1) != b"\x80", path  # the first byte of every binary pickle


def test_a_keyboard_that_nobody_touches_leaves_the_policy_in_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    real_time = ("robot.clock=wall", "pacing.actor_waits=episode")
    run = _train(tmp_path, "correction.kind=keyboard", *real_time, "actor.max_env_steps=20")
    reader = StoreReader(run.real)
    assert reader.num_transitions >= 20
    assert not any(info.corrections for info in reader.episodes())
