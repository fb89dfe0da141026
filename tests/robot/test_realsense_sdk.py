"""The RealSense library loads on a machine without libusb, and says what is missing where it cannot."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from robot.cameras import sdk
from robot.interfaces import DeviceError

NO_LIBUSB = ImportError("libusb-1.0.so.0: cannot open shared object file: No such file or directory")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What an import of a name gives, one answer after the other; exceptions are raised."""
    script: dict[str, list[Any]] = {}

    def import_module(name: str) -> Any:
        answer = script[name].pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(sdk.importlib, "import_module", import_module)  # type: ignore[attr-defined]
    return script


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Shared libraries that were loaded."""
    paths: list[str] = []
    load: Callable[..., None] = lambda path, mode: paths.append(path)  # noqa: E731
    monkeypatch.setattr(sdk.ctypes, "CDLL", load)  # type: ignore[attr-defined]
    return paths


def test_the_systems_libusb_is_preferred(answers: dict[str, list[Any]], loaded: list[str]) -> None:
    answers["pyrealsense2"] = ["the library"]
    assert sdk.load_sdk() == "the library"
    assert loaded == []


def test_the_packages_libusb_stands_in(answers: dict[str, list[Any]], loaded: list[str]) -> None:
    answers["pyrealsense2"] = [NO_LIBUSB, "the library"]
    answers["libusb_package"] = [SimpleNamespace(get_library_path=lambda: "/packages/libusb-1.0.so")]
    assert sdk.load_sdk() == "the library"
    assert loaded == ["/packages/libusb-1.0.so"]


@pytest.mark.parametrize(
    ("library", "libusb", "words"),
    [
        (
            [ModuleNotFoundError("No module named 'pyrealsense2'")],
            [],
            r"pip install 'groundhog\[realsense\]'",
        ),
        ([ImportError("libudev.so.1: cannot open")], [], r"does not load \(libudev.so.1"),
        ([NO_LIBUSB], [ModuleNotFoundError("No module named 'libusb_package'")], "apt install libusb-1.0-0"),
        ([NO_LIBUSB, NO_LIBUSB], [SimpleNamespace(get_library_path=lambda: "x")], "apt install libusb-1.0-0"),
    ],
)
def test_says_what_is_missing(
    answers: dict[str, list[Any]], loaded: list[str], library: list[Any], libusb: list[Any], words: str
) -> None:
    answers |= {"pyrealsense2": list(library), "libusb_package": list(libusb)}
    with pytest.raises(DeviceError, match=words):
        sdk.load_sdk()
