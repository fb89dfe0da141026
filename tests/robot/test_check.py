"""robot.check: reports what draws, or the exact packages, with the right exit code."""

import pytest

from robot import check
from robot.check import Probe


def fake(monkeypatch: pytest.MonkeyPatch, *working: str) -> list[str]:
    tried: list[str] = []

    def probe(backend: str) -> Probe:
        tried.append(backend)
        return Probe(backend, 0.5) if backend in working else Probe(backend, None, "ImportError: no library")

    monkeypatch.setattr(check, "_probe", probe)
    monkeypatch.setattr(check, "_installed", lambda package: False)
    return tried


def test_one_working_way_is_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = fake(monkeypatch, "egl")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    assert check.main([]) == 0
    assert tried == ["egl", "osmesa"]
    out = capsys.readouterr().out
    assert "MuJoCo" in out and "cores" in out and "MUJOCO_GL=egl: works, 0.50 ms" in out


def test_a_wrong_setting_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = fake(monkeypatch, "osmesa")
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    assert check.main([]) == 0
    assert tried == ["glfw", "egl", "osmesa"]
    assert "set MUJOCO_GL=osmesa" in capsys.readouterr().out


def test_nothing_works(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake(monkeypatch)
    assert check.main([]) == 1
    out = capsys.readouterr().out
    assert "apt-get install -y libegl1 libgl1-mesa-dri" in out and "apt-get install -y libosmesa6" in out


@pytest.mark.parametrize(("user", "code"), [(0, 0), (1000, 1)])
def test_install_runs_apt_get_as_root_only(monkeypatch: pytest.MonkeyPatch, user: int, code: int) -> None:
    fake(monkeypatch)
    monkeypatch.setattr(check.os, "geteuid", lambda: user)
    monkeypatch.setattr(check, "_installed", lambda package: package == "libegl1")
    installed: list[list[str]] = []

    def install(packages: list[str]) -> bool:
        installed.append(packages)
        fake(monkeypatch, "egl")
        return True

    monkeypatch.setattr(check, "_install", install)
    assert check.main(["--install"]) == code
    assert installed == ([["libgl1-mesa-dri"]] if user == 0 else [])


def test_install_leaves_alone_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    monkeypatch.setattr(check.os, "geteuid", lambda: 0)
    monkeypatch.setattr(check, "_installed", lambda _package: True)
    monkeypatch.setattr(check, "_install", lambda _packages: pytest.fail("nothing was missing"))
    assert check.main(["--install"]) == 1


def test_the_probe_draws(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--probe"]) == 0
    assert 0.0 < float(capsys.readouterr().out) < 1000.0


def test_a_failing_probe_gives_the_cause_of_the_chain() -> None:
    probe = check._probe("nonsense")
    assert probe.milliseconds is None
    assert probe.reason.startswith("RuntimeError: invalid value for environment variable MUJOCO_GL")
