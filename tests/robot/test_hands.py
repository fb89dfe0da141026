"""What all correction devices share: dead zone, release, gripper, silence, and the scripted one."""

import logging
from typing import Any

import numpy as np
import pytest

from robot.clock import VirtualClock
from robot.interfaces import TeleopCommand, TeleopEvent
from robot.teleop.hands import Hands, HandsConfig, RawInput, opened
from robot.teleop.keyboard import KeyboardConfig
from robot.teleop.scripted import ScriptedTeleop


def raw(dead_man: bool = True, presses: int = 0, age: float = 0.0, **axes: float) -> RawInput:
    delta = np.array([axes.get(name, 0.0) for name in ("x", "y", "z", "rx", "ry", "rz")])
    return RawInput(delta, dead_man, presses, (), age)


def test_dead_zone_is_still_and_full_deflection_stays_full() -> None:
    hands = Hands("test", VirtualClock(), HandsConfig(), opened)
    delta = hands.command(raw(x=0.05, y=-0.04, z=1.0, rx=-1.0, ry=0.525)).delta
    np.testing.assert_allclose(delta, [0.0, 0.0, 1.0, -1.0, 0.5, 0.0], atol=1e-12)


def test_release_must_last_before_the_policy_is_back() -> None:
    clock = VirtualClock()
    hands = Hands("test", clock, HandsConfig(release_time=0.3), opened)
    told = []
    for dead_man in (False, True, False, False, True, False, False, False, False):
        command = hands.command(raw(dead_man=dead_man, x=1.0))
        told.append((command.engaged, command.delta[0]))
        clock.advance(0.11)
    # Up for 0.11 and 0.22 s: still a person's; from 0.33 s on the policy's. No motion while it is up.
    assert told == [
        (False, 0.0),
        (True, 1.0),
        (True, 0.0),
        (True, 0.0),
        (True, 1.0),
        (True, 0.0),
        (True, 0.0),
        (False, 0.0),
        (False, 0.0),
    ]


def test_gripper_toggles_and_its_opinion_ends_with_the_correction() -> None:
    clock, held = VirtualClock(), [1.0]
    hands = Hands("test", clock, HandsConfig(release_time=0.1), lambda: held[0])
    told = []
    for dead_man, presses in ((True, 0), (True, 1), (True, 0), (True, 2), (False, 0), (True, 0), (True, 1)):
        gripper = hands.command(raw(dead_man=dead_man, presses=presses)).gripper
        held[0] = gripper or held[0]  # the arm does as it is told
        told.append(gripper)
        clock.advance(0.2)
    assert told == [0.0, -1.0, -1.0, -1.0, 0.0, 0.0, 1.0]


def test_the_first_press_turns_round_what_the_gripper_holds_whoever_closed_it() -> None:
    clock, held = VirtualClock(), [1.0]
    hands = Hands("test", clock, HandsConfig(), lambda: held[0])
    assert hands.command(raw(presses=1)).gripper == -1.0
    hands.reset()  # which opens the gripper
    assert hands.command(raw(presses=1)).gripper == -1.0
    clock.advance(1.0)
    hands.command(raw(dead_man=False))
    held[0] = -1.0  # the policy closed it
    assert hands.command(raw(presses=1)).gripper == 1.0
    assert (
        hands.command(raw(presses=1)).gripper == -1.0
    )  # its own wish, though the arm may not have followed yet


def test_a_silent_device_is_let_go_of_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    hands = Hands("pad", VirtualClock(), HandsConfig(), opened)
    assert hands.command(raw(x=1.0, age=0.2)).engaged
    with caplog.at_level(logging.WARNING):
        for age in (0.21, 0.3, 0.4):
            command = hands.command(raw(x=1.0, age=age))
            assert not command.engaged and not command.delta.any() and command.age == age
        assert hands.command(raw(x=1.0)).engaged
        assert len(caplog.records) == 1 and "pad has been silent for 0.21 s" in caplog.text
        hands.command(raw(age=1.0))
    assert len(caplog.records) == 2


def test_scripted_plays_its_commands_over_episodes_then_lets_go() -> None:
    script = [TeleopCommand(engaged=True), TeleopCommand(events=(TeleopEvent.SUCCESS,))]
    teleop = ScriptedTeleop(script)
    teleop.reset()
    assert teleop.read() is script[0]
    teleop.reset()
    assert teleop.read() is script[1]
    assert not teleop.read().engaged and not teleop.read().events
    teleop.close()


@pytest.mark.parametrize(
    "wrong", [{"dead_zone": 1.0}, {"release_time": -0.1}, {"signs": [1.0] * 5}, {"signs": [0.5] * 6}]
)
def test_bad_configuration_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^correction\.<device>\.hands.*: expected"):
        HandsConfig(**wrong)
    with pytest.raises(ValueError, match=r"correction\.keyboard\.deflection"):
        KeyboardConfig(deflection=1.5)


def test_a_motion_can_be_turned_round() -> None:
    hands = Hands(
        "test", VirtualClock(), HandsConfig(dead_zone=0.0, signs=[-1.0, -1.0, 1.0, -1.0, -1.0, 1.0]), opened
    )
    delta = hands.command(raw(x=0.5, y=-1.0, z=0.25, rx=1.0)).delta
    assert delta.tolist() == [-0.5, 1.0, 0.25, -1.0, 0.0, 0.0]
