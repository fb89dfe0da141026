"""The OpenGL context of this process, and what to install where there is none; for the simulated cameras."""

from __future__ import annotations

import functools
import importlib
import os
import threading
from dataclasses import dataclass
from typing import Protocol

from robot.interfaces import DeviceError

PACKAGES = {"egl": ("libegl1", "libgl1-mesa-dri"), "osmesa": ("libosmesa6",)}  # Debian, per MUJOCO_GL


class GlContext(Protocol):
    """What MuJoCo's EGL, OSMesa and GLFW contexts have in common."""

    def make_current(self) -> None: ...


@dataclass(frozen=True)
class ProcessContext:
    """A context and the thread that owns it."""

    context: GlContext
    thread: int
    thread_name: str

    def require_thread(self) -> None:
        """Raise DeviceError in any other thread than the owner."""
        if threading.get_ident() != self.thread:
            raise DeviceError(
                f"simulated camera: the GL context belongs to thread {self.thread_name!r}, which drew first, "
                f"not to {threading.current_thread().name!r}; read the cameras in one thread"
            )


@functools.cache
def process_context() -> ProcessContext:
    """The one GL context of this process, owned by the thread that asks first; raises DeviceError.

    All cameras share it: a context is bound to its thread, and Mesa handles several contexts badly.
    """
    if not os.environ.get("MUJOCO_GL"):
        # MuJoCo reads it again when it loads the GL functions.
        os.environ["MUJOCO_GL"] = "glfw" if os.environ.get("DISPLAY") else "egl"
    try:
        context = importlib.import_module(f"mujoco.{_backend()}").GLContext(64, 64)
        context.make_current()
    except Exception as error:  # PyOpenGL and the drivers raise whatever comes to hand
        raise no_opengl(error) from error
    return ProcessContext(context, threading.get_ident(), threading.current_thread().name)


def no_opengl(error: Exception) -> DeviceError:
    """The DeviceError that says how to get OpenGL after `error`."""
    headless = "; or ".join(
        f"MUJOCO_GL={backend} after apt-get install {' '.join(packages)}"
        for backend, packages in PACKAGES.items()
    )
    return DeviceError(
        f"simulated camera: no OpenGL with MUJOCO_GL={_backend()} ({type(error).__name__}: {error}). "
        f"Without a display, on Debian: {headless}. `python -m robot.check` says which works here"
    )


def _backend() -> str:
    return os.environ.get("MUJOCO_GL", "").lower().strip()
