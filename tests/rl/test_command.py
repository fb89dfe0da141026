"""Commands: help tells the real defaults; whatever is wrong is one line and exit code 2, never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf
from safetensors import SafetensorError
from untrained import untrained_run

from rl import cli, command
from rl.agent.spec import AgentSpec
from rl.agent.weights import WeightsError as PolicyWeightsError
from rl.checkpoint import CheckpointError
from rl.config import load_dict
from rl.runtime.run_dir import RunDir
from rl.schemas import SCHEMAS


@pytest.mark.parametrize("name", SCHEMAS)
def test_help_shows_the_defaults_that_a_command_composes(name: str) -> None:
    composed = load_dict(name, [])
    shown = {words[0]: words[-1] for line in command.help_text(name).splitlines() if (words := line.split())}
    for key in ("seed", "correction.kind", "demos.noise", "agent.hidden", "columns", "parallel", "device"):
        value = OmegaConf.select(composed, key, default="absent")
        if value != "absent":
            assert shown[key] == (value.value if hasattr(value, "value") else str(value)), key
    assert ("correction.kind" in shown) == (
        name in ("train", "record", "evaluate", "check-robot", "check-correction")
    )


def test_help_lists_the_groups_of_a_command() -> None:
    train, record = command.help_text("train"), command.help_text("record")
    for group, choice in (("experiment=", "press_pixels"), ("arm=", "rlpd"), ("demos=", "scarce")):
        assert any(line.split()[:1] == [group] and choice in line.split() for line in train.splitlines())
    assert "demos=" in record and "experiment=" not in record


ERRORS = [
    (ValueError("no"), True),
    (KeyError("proprio"), True),
    (OSError(28, "No space left on device"), True),
    (yaml.YAMLError("no"), True),
    (SafetensorError("header"), True),
    (CheckpointError("no complete checkpoint"), False),
    (PolicyWeightsError("shapes"), False),
]


@pytest.mark.parametrize(("error", "hinted"), ERRORS)
def test_a_named_error_is_one_line(
    error: Exception, hinted: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(_: list[str]) -> int:
        raise error

    monkeypatch.delenv("GROUNDHOG_TRACEBACK", raising=False)
    assert command.run("train", [], body) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"groundhog train: {type(error).__name__}: ") and shown.count("\n") == 1
    assert ("GROUNDHOG_TRACEBACK=1" in shown) == hinted
    monkeypatch.setenv("GROUNDHOG_TRACEBACK", "1")
    with pytest.raises(type(error)):
        command.run("train", [], body)


def test_an_error_that_nobody_named_keeps_its_traceback() -> None:
    def body(_: list[str]) -> int:
        raise AssertionError("a bug")

    with pytest.raises(AssertionError):
        command.run("train", [], body)


def test_a_reader_that_leaves_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rl.cli", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (141, b"")


def test_broken_rendering_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rl.cli", "train"],
        env={"MUJOCO_GL": "nonsense"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("groundhog train: DeviceError: ") and done.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run with an untrained policy, on which a test may break one file that it mends."""
    return untrained_run(tmp_path_factory.mktemp("runs") / "run")


def test_evaluate_writes_json_without_nan(run: RunDir, tmp_path: Path) -> None:
    out = tmp_path / "räum (1)" / "result.json"
    assert cli.main(["evaluate", f"run={run.path}", "episodes=1", f"out={out}"]) == 0

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    values = json.loads(out.read_text(), parse_constant=refuse)
    assert values["eval/success"] == 0.0 and values["eval/cycle_steps"] is None


@pytest.mark.parametrize("place", ["/proc/x/y.json", "{file}/y.json", "{directory}"])
def test_evaluate_refuses_a_place_that_it_cannot_write_before_it_starts(
    place: str,
    run: RunDir,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").write_text("")
    out = place.format(file=tmp_path / "file", directory=tmp_path)
    monkeypatch.setattr("rl.evaluate.make_env", lambda *_, **__: pytest.fail("it started"))
    assert cli.main(["evaluate", f"run={run.path}", f"out={out}"]) == 2
    shown = capsys.readouterr().err
    assert out in shown and "out=<file>" in shown


def test_evaluate_leaves_a_run_its_robot(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", f"run={run.path}", "robot.task=insert"]) == 2
    assert "is a run and brings its robot; leave robot out" in capsys.readouterr().err


def test_evaluate_takes_another_device_than_the_run(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run.path / "config.yaml").read_bytes()
    assert cli.main(["evaluate", f"run={run.path}", "device=cuda:99"]) == 2
    assert "use device=cpu" in capsys.readouterr().err
    assert (run.path / "config.yaml").read_bytes() == before


@pytest.mark.parametrize(
    "file", ["weights/000000.safetensors", "weights/latest.json", "spec.json", "config.yaml"]
)
@pytest.mark.parametrize("content", [b"", b"{}", b"\x00" * 16, b'{"a": '])
def test_a_torn_file_is_one_line(
    file: str, content: bytes, run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (run.path / file).read_bytes()
    (run.path / file).write_bytes(content)
    try:
        assert cli.main(["evaluate", f"run={run.path}", "episodes=1"]) == 2
    finally:
        (run.path / file).write_bytes(whole)
    shown = capsys.readouterr().err
    assert shown.startswith("groundhog evaluate: ") and shown.count("\n") == 1


def test_show_names_a_place_that_it_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "räum (1)"
    pixels = ("robot.image_px=32", "robot.views=[wrist]", "demos.episodes=1")
    assert cli.main(["record", f"out={store}", *pixels]) == 0
    capsys.readouterr()
    assert cli.main(["show", f"path={store}", "out=/proc/foo"]) == 2
    assert "/proc/foo: cannot write there" in capsys.readouterr().err
    assert cli.main(["show", f"path={store}", "columns=2"]) == 0
    assert list((store / "show").glob("*.png"))


@pytest.mark.parametrize("key", ["views", "proprio", "gripper", "active", "goal"])
def test_a_spec_that_lacks_a_key_says_which(key: str, run: RunDir) -> None:
    whole = run.spec.to_json()
    assert AgentSpec.from_json(whole).fingerprint() == run.spec.fingerprint()
    with pytest.raises(ValueError, match=f"the key '{key}' is missing"):
        AgentSpec.from_json({name: value for name, value in whole.items() if name != key})
    with pytest.raises(ValueError, match=r"expected the form of to_json|5 is not a valid GripperControl"):
        AgentSpec.from_json(whole | {key: 5})
