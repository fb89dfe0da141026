"""The simulated cameras: all views drawn side by side in one offscreen framebuffer, read back at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

from robot.interfaces import Frame
from robot.sim.arm import SimFaults
from robot.sim.gl import no_opengl, process_context
from robot.sim.world import SimWorld
from robot.types import Image


class SimCameras:
    """The views of one world. Reading any of them draws all, once per state of the world.

    The GL context belongs to the thread that reads first; a read from another thread raises DeviceError.
    """

    def __init__(
        self, world: SimWorld, views: Sequence[str], size: int, faults: SimFaults | None = None
    ) -> None:
        known = [world.model.camera(i).name for i in range(world.model.ncam)]
        missing = [view for view in views if view not in known]
        if missing or not views:
            raise ValueError(f"SimCameras: expected views among {known}, got {list(views)}")
        self.size = size
        self.cameras = tuple(SimCamera(self, view, size) for view in views)
        self._world = world
        self._views = tuple(views)
        self._faults = faults or SimFaults()
        self._frames: dict[str, Frame] = {}
        self._delivered: dict[str, Frame] = {}
        self._revision = -1
        self._canvas: _Canvas | None = None

    def frame(self, view: str) -> Frame:
        """The image of `view` at the present state of the world."""
        if view in self._faults.stalled_views and view in self._delivered:
            return self._delivered[view]
        self._world.advance()
        if self._revision != self._world.revision:
            self._draw()
        self._delivered[view] = self._frames[view]
        return self._frames[view]

    def close(self) -> None:
        """Free the framebuffer; a later read makes a new one."""
        if self._canvas is not None:
            self._canvas.free()
            self._canvas = None
        self._revision = -1

    def _draw(self) -> None:
        if self._canvas is None:
            self._canvas = _Canvas(self._world.model, self._views, self.size)
        images = self._canvas.draw(self._world.data)
        timestamp = self._world.timestamp
        self._frames = {
            view: Frame(image, timestamp) for view, image in zip(self._views, images, strict=True)
        }
        self._revision = self._world.revision


class SimCamera:
    """One view of SimCameras, behind the Camera contract."""

    def __init__(self, cameras: SimCameras, name: str, size: int) -> None:
        self.name = name
        self.height = self.width = size
        self._cameras = cameras

    def connect(self) -> None:
        """Draw once, so that a missing OpenGL shows here; raises DeviceError with the packages to install."""
        self.read()

    def read(self) -> Frame:
        """The image at the present state of the world."""
        return self._cameras.frame(self.name)

    def close(self) -> None:
        """Free the framebuffer that this view shares with the others."""
        self._cameras.close()


class _Canvas:
    """MuJoCo's drawing objects for one model: V square images in a row."""

    def __init__(self, model: Any, views: Sequence[str], size: int) -> None:
        self._gl = process_context()
        self._gl.require_thread()
        self._model = model
        self._size = size
        model.vis.global_.offwidth, model.vis.global_.offheight = size * len(views), size
        try:
            self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50)
        except mujoco.FatalError as error:
            raise no_opengl(error) from error
        self._scene = mujoco.MjvScene(model, maxgeom=model.ngeom + 16)
        for flag in ("SHADOW", "REFLECTION", "SKYBOX", "FOG", "HAZE"):
            self._scene.flags[getattr(mujoco.mjtRndFlag, f"mjRND_{flag}")] = 0
        self._option = mujoco.MjvOption()
        self._perturb = mujoco.MjvPerturb()
        self._cameras = []
        for view in views:
            camera = mujoco.MjvCamera()
            camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
            camera.fixedcamid = model.camera(view).id
            self._cameras.append(camera)
        self._tiles = [mujoco.MjrRect(i * size, 0, size, size) for i in range(len(views))]
        self._whole = mujoco.MjrRect(0, 0, size * len(views), size)
        self._pixels = np.empty((size, size * len(views), 3), np.uint8)

    def draw(self, data: Any) -> list[Image]:
        """V images (size, size, 3)."""
        self._gl.require_thread()
        self._gl.context.make_current()
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        mujoco.mjv_updateScene(
            self._model,
            data,
            self._option,
            self._perturb,
            self._cameras[0],
            mujoco.mjtCatBit.mjCAT_ALL,
            self._scene,
        )
        for i, (camera, tile) in enumerate(zip(self._cameras, self._tiles, strict=True)):
            if i > 0:  # the geometry is the same for every view
                mujoco.mjv_updateCamera(self._model, data, camera, self._scene)
            mujoco.mjr_render(tile, self._scene, self._context)
        mujoco.mjr_readPixels(self._pixels, None, self._whole, self._context)
        upright = self._pixels[::-1]  # OpenGL counts rows from below
        size = self._size
        return [upright[:, i * size : (i + 1) * size].copy() for i in range(len(self._cameras))]

    def free(self) -> None:
        self._gl.require_thread()
        self._gl.context.make_current()
        self._context.free()
