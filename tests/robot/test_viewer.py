"""The operator's window: views, who is in charge, and it leaves the keys to the keyboard."""

from types import ModuleType

import numpy as np

from robot.clock import VirtualClock
from robot.interfaces import TeleopEvent
from robot.teleop.keyboard import KeyboardTeleop
from robot.teleop.viewer import (
    HUMAN_COLOUR,
    POLICY_COLOUR,
    SUCCESS_COLOUR,
    WARNING_COLOUR,
    Viewer,
    ViewerConfig,
)
from tests.robot.teleop_devices import Keys


def test_viewer_shows_the_views_and_who_is_in_charge(pygame: ModuleType) -> None:
    viewer = Viewer(ViewerConfig(view_height=96, banner_height=32, footer_height=24))
    wrist = np.zeros((32, 32, 3), dtype=np.uint8)
    wrist[16:, :, 0] = 250
    side = np.full((24, 32, 3), (0, 0, 240), dtype=np.uint8)
    images = {"wrist": wrist, "side": side}
    viewer.show(images, intervened=False)
    frame = viewer.frame()
    assert frame.shape == (32 + 96 + 24, 96 + 128, 3) and frame.dtype == np.uint8
    assert tuple(frame[2, -2]) == POLICY_COLOUR
    assert tuple(frame[32 + 90, 90]) == (250, 0, 0)
    assert tuple(frame[32 + 90, 200]) == (0, 0, 240)
    viewer.show(images, intervened=True)
    human = viewer.frame()
    assert tuple(human[2, -2]) == HUMAN_COLOUR
    viewer.show(images, intervened=True, success=True, counters="step 7   episode 3   successes 2")
    assert tuple(viewer.frame()[2, -2]) == SUCCESS_COLOUR
    assert (viewer.frame()[-24:] != human[-24:]).any()  # the counters
    viewer.show(images, intervened=False, warning="DEVICE SILENT")
    assert tuple(viewer.frame()[2, -2]) == WARNING_COLOUR
    viewer.close()


def test_viewer_leaves_the_keys_to_the_keyboard(
    keyboard: tuple[KeyboardTeleop, Keys, VirtualClock], pygame: ModuleType
) -> None:
    teleop, keys, _ = keyboard
    viewer = Viewer()
    keys.tap("return")
    viewer.show({"wrist": np.zeros((8, 8, 3), dtype=np.uint8)}, intervened=False)
    assert teleop.read().events == (TeleopEvent.SUCCESS,)
