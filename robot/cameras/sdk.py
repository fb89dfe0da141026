"""The RealSense library: `pyrealsense2`, with the libusb it needs."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

from robot.interfaces import DeviceError

_LIBUSB = "libusb-1.0.so.0"


def load_sdk() -> Any:
    """The module pyrealsense2; raises DeviceError with the remedy where it cannot be imported.

    Its wheel links the system's libusb and does not bring it. On a machine without one, that of the package
    libusb-package is loaded before: the linker takes a library of that name that the process already has.
    """
    try:
        return importlib.import_module("pyrealsense2")
    except ModuleNotFoundError as error:
        raise DeviceError(
            f"cameras: the package pyrealsense2 is missing ({error}); pip install 'groundhog[realsense]'"
        ) from error
    except ImportError as error:
        if _LIBUSB not in str(error):
            raise DeviceError(f"cameras: the package pyrealsense2 does not load ({error})") from error
    _load_libusb()
    try:
        return importlib.import_module("pyrealsense2")
    except ImportError as error:
        raise DeviceError(
            f"cameras: the package pyrealsense2 does not load ({error}); install libusb: apt install libusb-1.0-0"
        ) from error


def _load_libusb() -> None:
    try:
        package = importlib.import_module("libusb_package")
        ctypes.CDLL(str(package.get_library_path()), mode=ctypes.RTLD_GLOBAL)
    except (ImportError, OSError) as error:
        raise DeviceError(
            f"cameras: pyrealsense2 needs {_LIBUSB}, which this machine lacks ({error}); "
            "apt install libusb-1.0-0, or pip install 'groundhog[realsense]'"
        ) from error
