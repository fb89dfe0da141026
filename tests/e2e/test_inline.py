"""The inline runtime: deterministic for a seed, and what it reports is what the commands find again."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl import cli, evaluate
from rl.replay.reader import StoreReader
from rl.runtime import assemble
from rl.runtime.run_dir import RunDir
from robot.arm_env import ArmEnv
from robot.factory import make_env
from robot.interfaces import DeviceError, RobotFault
from robot.teleop.scripted import ScriptedTeleop
from robot.types import Float32, Source
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


def _evaluate(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, change: Callable[[ArmEnv], None], episodes: int = 3
) -> tuple[int, dict[str, Any]]:
    """The exit code and the file of an evaluation on an environment that was changed."""

    def changed(*arguments: Any, **options: Any) -> ArmEnv:
        env = make_env(*arguments, **options)
        change(env)
        return env

    monkeypatch.setattr(evaluate, "make_env", changed)
    out = run.path / "changed.json"
    out.unlink(missing_ok=True)
    code = cli.main(["evaluate", f"run={run.path}", f"episodes={episodes}", f"out={out}"])
    return code, json.loads(out.read_text()) if out.exists() else {}


def _in_episode(number: int, act: Callable[[], None]) -> Callable[[ArmEnv], None]:
    """A change of an environment: `act` is called in the second step of episode `number`, from 0."""

    def change(env: ArmEnv) -> None:
        reset, step, resets, steps = env.reset, env.step, [0], [0]

        def counting(**options: Any) -> Any:
            resets[0], steps[0] = resets[0] + 1, 0
            return reset(**options)

        def acting(action: Float32) -> Any:
            steps[0] += 1
            if (resets[0] - 1, steps[0]) == (number, 2):
                act()
            return step(action)

        env.reset, env.step = counting, acting  # type: ignore[method-assign]

    return change


def _stop() -> None:
    raise RobotFault("effort", "as the test wants it")


def test_a_fault_costs_an_evaluation_its_episode_alone(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    code, result = _evaluate(run, monkeypatch, _in_episode(1, _stop))
    assert code == 0
    assert result["eval/episodes"] == 3 and result["eval/failures/fault"] == 1


def test_an_interrupted_evaluation_keeps_what_is_complete(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, result = _evaluate(run, monkeypatch, _in_episode(2, lambda: os.kill(os.getpid(), signal.SIGINT)))
    assert code == 130
    assert result["eval/episodes"] == 2


def test_an_evaluation_that_an_error_ends_keeps_what_is_complete(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone() -> None:
        raise DeviceError("arm: gone")

    code, result = _evaluate(run, monkeypatch, _in_episode(1, gone))
    assert code == 2 and "arm: gone" in capsys.readouterr().err
    assert result["eval/episodes"] == 1


def test_resets_that_fail_are_no_episodes_and_end_an_evaluation(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[int] = []

    def broken(env: ArmEnv) -> None:
        reset = env.reset

        def once(**options: Any) -> Any:
            tried.append(options["seed"])
            if len(tried) > 1:
                raise RobotFault("reset_path", "as the test wants it")
            return reset(**options)

        env.reset = once  # type: ignore[method-assign]

    code, result = _evaluate(run, monkeypatch, broken)
    assert code == 2 and "reset_path" in capsys.readouterr().err
    assert len(tried) == 1 + evaluate.MAX_RESETS and len(set(tried)) == 2
    assert result["eval/episodes"] == 1


class Device(ScriptedTeleop):
    closes = 0

    def close(self) -> None:
        self.closes += 1


def test_the_correction_device_is_closed_once_at_the_end(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[Device] = []

    def make_device(*_: object) -> Device:
        devices.append(Device([]))
        return devices[-1]

    for module in (assemble, evaluate):
        monkeypatch.setattr(module, "make_teleop", make_device)
    _train(tmp_path, "actor.max_env_steps=3")
    assert cli.main(["evaluate", f"run={run.path}", "episodes=1", f"out={tmp_path / 'out.json'}"]) == 0
    assert [device.closes for device in devices] == [1, 1]


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
