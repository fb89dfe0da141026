"""Bad input in every command: one readable line that names the place and the remedy, and nothing is lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl import cli, demonstrations
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from rl.runtime import assemble, locks
from rl.runtime.run_dir import RunDir
from robot.factory import make_robot_env
from robot.interfaces import TeleopCommand, TeleopEvent
from robot.sim.arm import SimFaults
from robot.teleop.scripted import ScriptedTeleop
from tests.e2e.harness import SMALL

INLINE = (*SMALL, "runtime.kind=inline", "actor.max_env_steps=60")


def _train(tmp_path: Path, *overrides: str) -> int:
    return cli.main(["train", f"runs_dir={tmp_path}", "name=run", *INLINE, *overrides])


def _record(path: Path, *overrides: str) -> None:
    assert cli.main(["record", f"out={path}", "demos.episodes=2", "robot.obs=state", *overrides]) == 0


def test_demonstrations_of_another_kind_are_refused_by_the_first_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _record(tmp_path / "demos", "robot.obs=pixels", "robot.image_px=32")
    assert _train(tmp_path, f"demos.path={tmp_path / 'demos'}", "robot.obs=pixels", "robot.image_px=64") == 2
    error = capsys.readouterr().err
    assert "(height, width) differs: expected (64, 64), got (32, 32)" in error
    assert StoreReader(tmp_path / "demos").num_episodes == 2


def test_missing_and_empty_demonstrations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _train(tmp_path / "a", f"demos.path={tmp_path / 'nowhere'}") == 2
    assert "no such directory; record with `groundhog record" in capsys.readouterr().err
    _record(tmp_path / "demos")
    journal = tmp_path / "demos" / "journal.jsonl"
    journal.write_text("")
    for file in (tmp_path / "demos" / "segments").glob("*/*"):
        file.unlink()
    (tmp_path / "demos" / "count").write_bytes(bytes(8))
    assert _train(tmp_path / "b", f"demos.path={tmp_path / 'demos'}") == 2
    assert "holds no demonstration" in capsys.readouterr().err


def test_a_torn_shard_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _record(tmp_path / "demos")
    shard = next((tmp_path / "demos" / "segments").glob("*/rows.bin"))
    with shard.open("r+b") as file:
        file.truncate(100)
    assert _train(tmp_path, f"demos.path={tmp_path / 'demos'}") == 2
    assert str(shard.parent) in capsys.readouterr().err
    assert cli.main(["show", f"path={tmp_path / 'demos'}"]) == 2
    assert str(shard.parent) in capsys.readouterr().err


def test_a_flipped_bit_is_found_by_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _record(tmp_path / "demos")
    shard = next((tmp_path / "demos" / "segments").glob("*/rows.bin"))
    data = bytearray(shard.read_bytes())
    data[40] ^= 1
    shard.write_bytes(data)
    assert cli.main(["show", f"path={tmp_path / 'demos'}", "check=true"]) == 2
    assert "do not match their checksums" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "run=nowhere"], "is nowhere a run directory"),
        (["evaluate"], "run: a value is needed"),
        (["show", "path=nowhere"], "no such directory"),
        (["train", "resume=nowhere"], "is nowhere a run directory"),
        (["train", "robot.task=pres", "wandb=disabled"], "did you mean press"),
        (["record", "robot.task=pres"], "did you mean press"),
        (["bench", "arms=[rlpdd]"], "no configs/arm/rlpdd.yaml; known: bc"),
        (["bench", "tasks=[pres]"], "experiment=pres_pixels: no such file"),
    ],
)
def test_what_does_not_exist_is_named(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    assert message in capsys.readouterr().err


def test_an_unwritable_place_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where a directory is needed")
    assert _train(blocked) == 2
    assert "cannot write there" in capsys.readouterr().err
    assert cli.main(["record", f"out={blocked / 'demos'}", "robot.obs=state"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_second_run_of_the_same_name_never_overwrites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _train(tmp_path, "actor.max_env_steps=0") == 0
    assert _train(tmp_path) == 2
    assert "already holds a run; continue it with resume=" in capsys.readouterr().err


def test_a_run_too_large_for_its_budget_does_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = _train(tmp_path, "robot.obs=pixels", "robot.image_px=128", "actor.max_env_steps=200000")
    assert code == 2
    assert "over the budget" in capsys.readouterr().err


def test_other_inputs_on_resume_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _train(tmp_path, "actor.max_env_steps=0") == 0
    capsys.readouterr()
    code = cli.main(["train", f"resume={tmp_path / 'run'}", "robot.obs=pixels"])
    assert code == 2
    assert "differs" in capsys.readouterr().err
    assert RunDir(tmp_path / "run").config.robot.obs.value == "state"  # what was refused is not written down
    assert cli.main(["train", f"resume={tmp_path / 'run'}"]) == 0


def test_two_sessions_of_one_run_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _train(tmp_path, "actor.max_env_steps=0") == 0
    with locks.session(tmp_path / "run"):
        assert cli.main(["train", f"resume={tmp_path / 'run'}"]) == 2
    assert "another session runs it right now" in capsys.readouterr().err
    worker = locks.join(tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locks, "ORPHANS_S", 0.2)
        assert cli.main(["train", f"resume={tmp_path / 'run'}"]) == 2
    os.close(worker)
    assert "workers of a killed session are still alive" in capsys.readouterr().err


def test_a_refused_start_gives_its_name_back(tmp_path: Path) -> None:
    assert _train(tmp_path, f"demos.path={tmp_path / 'nowhere'}") == 2
    assert _train(tmp_path, "actor.max_env_steps=0") == 0


def test_a_copy_of_demonstrations_that_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    _record(tmp_path / "demos")
    (tmp_path / "run" / "demo.part" / "segments").mkdir(parents=True)
    assert _train(tmp_path, f"demos.path={tmp_path / 'demos'}", "actor.max_env_steps=0") == 0
    assert StoreReader(tmp_path / "run" / "demo").num_episodes == 2


def test_stop_on_the_device_ends_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = TeleopCommand(engaged=True, events=(TeleopEvent.STOP,))
    monkeypatch.setattr(demonstrations, "make_teleop", lambda *_: ScriptedTeleop([command] * 5))
    monkeypatch.setattr(demonstrations, "make_window", lambda _kind: lambda _o, _i: None)
    arguments = [
        f"out={tmp_path / 'demos'}",
        "robot.obs=state",
        "correction.kind=keyboard",
        "robot.clock=wall",
    ]
    assert cli.main(["record", *arguments]) == 0
    assert [info.discarded for info in StoreReader(tmp_path / "demos").episodes()] == [True]


def test_an_unfinished_demonstration_is_not_learned_from(tmp_path: Path) -> None:
    _record(tmp_path / "demos")
    before = StoreReader(tmp_path / "demos")
    episode, transitions = before.episode(0), before.num_transitions
    child = os.fork()
    if child == 0:  # a writer that dies in mid-episode
        writer = StoreWriter(tmp_path / "demos", before.schema)
        writer.begin_episode(episode.observation(0))
        for transition in list(episode.transitions())[:2]:
            writer.add(transition)
        os._exit(0)
    os.waitpid(child, 0)
    _record(tmp_path / "demos")
    after = StoreReader(tmp_path / "demos")
    assert after.episodes()[-1].discarded and after.num_episodes == before.num_episodes + 1
    assert after.num_transitions == transitions


def test_a_full_disk_stops_the_run_and_keeps_what_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _train(tmp_path, "actor.max_env_steps=30") == 0
    run = RunDir(tmp_path / "run")
    before = StoreReader(run.real).num_rows

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    code = cli.main(["train", f"resume={run.path}", "actor.max_env_steps=200"])
    assert code == 2
    after = StoreReader(run.real)
    assert after.num_rows >= before and after.verify_all() == after.num_rows


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (SimFaults(nan_joint=2), "nan"),
        (SimFaults(stalled_views={"wrist"}), "stale_frame"),
    ],
)
def test_a_bad_sensor_is_a_fault_with_a_name_and_the_run_says_so(
    fault: SimFaults,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pixels = ("robot.obs=pixels", "robot.image_px=32") if fault.stalled_views else ()
    faults: list[SimFaults] = []
    make: Callable[..., Any] = make_robot_env

    def with_faults(config: Any, *, keep_waiting: Any, **options: Any) -> Any:
        env = make(config, faults=(mine := SimFaults()), **options)
        faults.append(mine)
        return env

    monkeypatch.setattr(assemble, "make_env", with_faults)
    steps: list[int] = []

    def break_later(observation: Any, info: Any) -> None:
        steps.append(1)
        if len(steps) == 10:
            for field in ("nan_joint", "stalled_views"):
                setattr(faults[-1], field, getattr(fault, field))

    monkeypatch.setattr(assemble, "make_window", lambda _kind: break_later)
    code = _train(tmp_path, "actor.max_faults=2", *pixels)
    assert code != 0
    assert name in capsys.readouterr().err
    reader = StoreReader(tmp_path / "run" / "real")
    first = reader.episodes()[0]
    assert first.outcome.reason.value == "fault" and name in first.outcome.detail
    assert reader.num_transitions >= 8
    assert np.isfinite(reader.episode(0).proprio).all()
