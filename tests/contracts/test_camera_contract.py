"""What every Camera must do. A new driver joins with a case here; real devices run under `-m hardware`."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from robot.clock import VirtualClock
from robot.factory import make_task
from robot.interfaces import Camera
from robot.sim.arm import SimFaults
from robot.sim.camera import SimCameras
from robot.sim.scene import build_scene
from robot.sim.world import SimWorld
from tests.contracts.clocks import RealTime, TestClock

pytestmark = pytest.mark.wall_clock


@dataclass
class Case:
    """A camera and its clock. slack: seconds by which a busy machine may be late; none on a virtual clock."""

    camera: Camera
    clock: TestClock
    silence: Callable[[], None]
    slack: float


@contextmanager
def sim_case() -> Iterator[Case]:
    task, clock, faults = make_task("press"), VirtualClock(start=50.0), SimFaults()
    world = SimWorld(build_scene(task.objects(), task.scene), clock)
    (camera,) = SimCameras(world, ["side"], 48, faults).cameras
    yield Case(camera, clock, lambda: faults.stalled_views.add("side"), slack=0.0)


@contextmanager
def realsense_case() -> Iterator[Case]:
    pytest.importorskip("libusb_package", reason="needs the realsense extra: pip install -e '.[realsense]'")
    from robot.cameras.config import CameraConfig
    from robot.cameras.view import make_views
    from tests.robot.recorded_d435i import SIZE, make_recording

    clock = RealTime()
    with TemporaryDirectory() as folder:
        recording = make_recording(Path(folder) / "side.db3", 1.0)
        config = CameraConfig(recording=str(recording), silence=30.0, **SIZE)
        (camera,) = make_views({"side": config}, ["side"], 48, clock)

        def silence() -> None:
            camera.device._stream._pipeline.get_active_profile().get_device().as_playback().pause()  # type: ignore[attr-defined]
            clock.advance(0.2)  # what is on its way still arrives

        yield Case(camera, clock, silence, slack=0.2)


CAMERAS = [pytest.param(case, id=case.__name__) for case in (sim_case, realsense_case)]


@pytest.fixture(params=CAMERAS, scope="module")
def opened(request: pytest.FixtureRequest) -> Iterator[Case]:
    """One camera for all tests."""
    make: Callable[[], AbstractContextManager[Case]] = request.param
    with make() as made:
        yield made


@pytest.fixture
def case(opened: Case) -> Iterator[Case]:
    opened.camera.connect()
    yield opened
    opened.camera.close()


def test_frames_have_the_announced_size_and_a_fresh_time(case: Case) -> None:
    case.clock.advance(0.2)
    frame = case.camera.read()
    assert frame.image.shape == (case.camera.height, case.camera.width, 3)
    assert frame.image.dtype == np.uint8 and frame.image.flags.c_contiguous
    assert frame.image.std() > 1.0
    assert 0.0 <= case.clock.now() - frame.timestamp <= 0.1 + case.slack
    assert case.camera.name


def test_time_never_runs_back_and_images_are_not_overwritten(case: Case) -> None:
    first = case.camera.read()
    kept = first.image.copy()
    case.clock.advance(0.1 + case.slack)
    second = case.camera.read()
    assert second.timestamp > first.timestamp
    np.testing.assert_array_equal(first.image, kept)
    assert not np.shares_memory(first.image, second.image)


def test_a_silent_camera_shows_as_an_old_timestamp(case: Case) -> None:
    case.camera.read()
    case.silence()
    last = case.camera.read()
    case.clock.advance(1.0)
    frame = case.camera.read()
    assert frame.timestamp == last.timestamp
    np.testing.assert_array_equal(frame.image, last.image)


def test_close_may_be_repeated(case: Case) -> None:
    case.camera.close()
    case.camera.close()
