"""What every Camera must do. A new driver joins with a case here; real devices run under `-m hardware`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from robot.clock import VirtualClock
from robot.factory import make_task
from robot.interfaces import Camera
from robot.sim.arm import SimFaults
from robot.sim.camera import SimCameras
from robot.sim.scene import build_scene
from robot.sim.world import SimWorld


@dataclass
class Case:
    camera: Camera
    clock: VirtualClock
    silence: Callable[[], None]


def sim_case() -> Case:
    task, clock, faults = make_task("press"), VirtualClock(start=50.0), SimFaults()
    world = SimWorld(build_scene(task.objects(), task.scene), clock)
    (camera,) = SimCameras(world, ["side"], 48, faults).cameras
    return Case(camera, clock, lambda: faults.stalled_views.add("side"))


@pytest.fixture(params=[pytest.param(sim_case, id="sim")])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    make: Callable[[], Case] = request.param
    made = make()
    made.camera.connect()
    yield made
    made.camera.close()


def test_frames_have_the_announced_size_and_a_fresh_time(case: Case) -> None:
    case.clock.advance(0.2)
    frame = case.camera.read()
    assert frame.image.shape == (case.camera.height, case.camera.width, 3)
    assert frame.image.dtype == np.uint8 and frame.image.flags.c_contiguous
    assert frame.image.std() > 1.0
    assert 0.0 <= case.clock.now() - frame.timestamp <= 0.1
    assert case.camera.name


def test_time_never_runs_back_and_images_are_not_overwritten(case: Case) -> None:
    first = case.camera.read()
    kept = first.image.copy()
    case.clock.advance(0.1)
    second = case.camera.read()
    assert second.timestamp > first.timestamp
    np.testing.assert_array_equal(first.image, kept)
    assert not np.shares_memory(first.image, second.image)


def test_a_silent_camera_shows_as_an_old_timestamp(case: Case) -> None:
    last = case.camera.read()
    case.silence()
    case.clock.advance(1.0)
    frame = case.camera.read()
    assert frame.timestamp == last.timestamp
    np.testing.assert_array_equal(frame.image, last.image)


def test_close_may_be_repeated(case: Case) -> None:
    case.camera.close()
    case.camera.close()
