"""What the cameras and the arm's feedback deliver while nothing moves: rates, ages, skew, settings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from robot.cameras.view import CameraView
from robot.env import RobotEnv
from robot.feedback import FeedbackLimits
from robot.readiness.finding import Finding, Verdict, judged, milliseconds
from robot.robot import Robot

SAMPLE = 0.005  # s between two looks
RATE_SHARE = 0.9  # of the configured frame rate
MAX_LATENCY = 0.15  # s; the colour images of a D435i take 0.06 to 0.14 s


@dataclass
class Samples:
    """Ages [s] at each look, and the distinct stamps, of one device."""

    ages: list[float] = field(default_factory=list)
    stamps: list[float] = field(default_factory=list)

    def add(self, now: float, stamp: float) -> None:
        self.ages.append(now - stamp)
        if not self.stamps or stamp != self.stamps[-1]:
            self.stamps.append(stamp)

    @property
    def rate(self) -> float:
        """New stamps per second."""
        if len(self.stamps) < 2:
            return 0.0
        return (len(self.stamps) - 1) / (self.stamps[-1] - self.stamps[0])


def examine_sensors(env: RobotEnv, seconds: float) -> Iterator[Finding]:
    """Look for `seconds` at the feedback and at every view; raises DeviceError where one is lost."""
    robot, clock = env.robot, env.clock
    arm, views = Samples(), {camera.name: Samples() for camera in robot.cameras}
    skews: list[float] = []
    end = clock.now() + seconds
    while clock.now() < end:
        measured = robot.arm_state().timestamp
        arm.add(clock.now(), measured)
        stamps = {camera.name: camera.read().timestamp for camera in robot.cameras}
        now = clock.now()
        for name, stamp in stamps.items():
            views[name].add(now, stamp)
        if len(stamps) > 1:
            skews.append(max(stamps.values()) - min(stamps.values()))
        clock.sleep_until(clock.now() + SAMPLE)
    yield _feedback(robot, arm)
    for camera in robot.cameras:
        if isinstance(camera, CameraView):
            yield from _device(camera)
        yield _images(robot, camera.name, views[camera.name], camera)
    if skews:
        yield _skew(robot, skews)


def _feedback(robot: Robot, samples: Samples) -> Finding:
    limits, state = FeedbackLimits(), robot.arm_state()
    values = np.concatenate([state.joint_positions, state.joint_velocities, state.joint_efforts])
    known = bool(np.isfinite(values).all() and np.isfinite(state.gripper_opening))
    verdict = judged(float(np.percentile(samples.ages, 99)), limits.hold_age / 2, limits.hold_age)
    return Finding(
        "arm: feedback",
        verdict if known else Verdict.FAIL,
        f"{samples.rate:.0f} Hz, age {milliseconds(samples.ages)}, gripper {state.gripper_opening:.2f}",
        "check the connection to the vendor's software and what else this machine does; joints and gripper must be "
        "numbers",
    )


def _device(camera: CameraView) -> Iterator[Finding]:
    device, facts = camera.device, camera.device.facts
    if device.name != camera.name or facts is None:
        return  # a second crop of a device that is judged under its own name
    values = ", ".join(
        f"{name} {value:g}" if value is not None else f"{name} not told"
        for name, value in (
            ("exposure", facts.exposure),
            ("gain", facts.gain),
            ("white balance", facts.white_balance),
        )
    )
    played = device.config.recording is not None
    slow = facts.usb is not None and facts.usb.startswith("2")
    yield Finding(
        f"camera {camera.name}: device",
        Verdict.WARN if played or slow else Verdict.PASS,
        f"{facts.device}, USB {facts.usb or 'not told'}; read back: {values}",
        "played back from a file: it does not show the arm" if played else "use a USB 3 port",
    )
    latency = device.latency
    yield Finding(
        f"camera {camera.name}: latency",
        Verdict.WARN if latency is None else judged(latency, MAX_LATENCY, 2 * MAX_LATENCY),
        "not told" if latency is None else f"{1e3 * latency:.0f} ms from capture to arrival",
        "ages leave out what an image takes to arrive; install RealSense's udev rules and kernel patches"
        if latency is None
        else "a shorter exposure, a smaller image, a port of its own",
    )
    yield _repetition(camera)


def _repetition(camera: CameraView) -> Finding:
    count, allowed = camera.device.repeated, camera.device.config.may_repeat
    verdict = Verdict.WARN if count and math.isfinite(allowed) else Verdict.PASS
    found = f"{count} images equal to the one before" if count else "no two images in a row are equal"
    judged_after = f"counts as none after {allowed:g} s" if math.isfinite(allowed) else "not judged"
    return Finding(
        f"camera {camera.name}: repetition",
        Verdict.FAIL if camera.device.newest().frozen else verdict,
        f"{found}; an image that does not change {judged_after}",
        "the camera hangs, its lens is covered, or what it sees has no light: unplug it for a few seconds; where its "
        "images are right, robot.cameras.<view>.frozen_after=<s> lets one come again for so long",
    )


def _images(robot: Robot, name: str, samples: Samples, camera: object) -> Finding:
    timing = robot.timing
    verdict = judged(float(np.percentile(samples.ages, 99)), timing.late_frame_age, timing.max_frame_age)
    expected = camera.device.config.fps if isinstance(camera, CameraView) else None
    if expected is not None and samples.rate < RATE_SHARE * expected and verdict is Verdict.PASS:
        verdict = Verdict.WARN
    if samples.rate < 1.0 / timing.control_period:
        verdict = Verdict.FAIL  # the policy would see the same image twice
    rate = f"{samples.rate:.1f} Hz" + (f" of {expected}" if expected is not None else "")
    return Finding(
        f"camera {name}: images",
        verdict,
        f"{rate}, age {milliseconds(samples.ages)}",
        "a USB 3 port and controller of its own, another cable, a lower fps or size; what else does this machine do?",
    )


def _skew(robot: Robot, skews: list[float]) -> Finding:
    timing = robot.timing
    return Finding(
        "cameras: skew",
        judged(float(np.percentile(skews, 99)), timing.late_frame_age, timing.max_frame_age),
        milliseconds(skews),
        "one camera is later than the others: see its rate and age",
    )
