"""`python -m robot.check`: can this machine draw without a display, how fast, and what to install if not."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

from robot.sim.gl import PACKAGES

PROBE_TIMEOUT = 120.0  # s
PROBE_FRAMES = 50


@dataclass(frozen=True)
class Probe:
    """One way to draw. milliseconds: median for two 64 px views, None where it fails for `reason`."""

    backend: str
    milliseconds: float | None
    reason: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report; returns 0 where rendering works, else 1."""
    parser = argparse.ArgumentParser(prog="robot.check", description=__doc__)
    parser.add_argument("--install", action="store_true", help="run apt-get where rendering fails (as root)")
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.probe:
        print(f"{_draw():.3f}")
        return 0
    print(f"Python {platform.python_version()}, MuJoCo {metadata.version('mujoco')}, {os.cpu_count()} cores")
    probes = _probe_all()
    missing = [package for package in PACKAGES["egl"] if not _installed(package)]
    if options.install and missing and not _working(probes):
        if os.geteuid() != 0:
            print("--install needs root; run the apt-get line below with sudo")
        elif _install(missing):
            probes = _probe_all()
    return _report(probes)


def _report(probes: Sequence[Probe]) -> int:
    working = _working(probes)
    if working is not None:
        if os.environ.get("MUJOCO_GL", working.backend) != working.backend:
            print(f"set MUJOCO_GL={working.backend}: the present value does not work")
        return 0
    print("nothing draws here. Install one of these (Debian, Ubuntu):")
    for backend, packages in PACKAGES.items():
        missing = [package for package in packages if not _installed(package)]
        if missing:
            print(f"  apt-get install -y {' '.join(missing)}    # then MUJOCO_GL={backend}")
        else:
            print(f"  {' '.join(packages)}: installed, yet MUJOCO_GL={backend} fails; see the reason above")
    return 1


def _probe_all() -> list[Probe]:
    """The configured way first, then the headless ones; each in its own process, for drivers may crash."""
    backends = dict.fromkeys([os.environ.get("MUJOCO_GL", "").lower().strip() or "egl", *PACKAGES])
    probes = []
    for backend in backends:
        probe = _probe(backend)
        speed = f"works, {probe.milliseconds:.2f} ms" if probe.milliseconds is not None else probe.reason
        print(f"rendering two 64 px views with MUJOCO_GL={backend}: {speed}")
        probes.append(probe)
    return probes


def _probe(backend: str) -> Probe:
    command = [sys.executable, "-m", "robot.check", "--probe"]
    environment = {**os.environ, "MUJOCO_GL": backend}
    # PyOpenGL would otherwise keep the platform of the parent's backend.
    environment.pop("PYOPENGL_PLATFORM", None)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PROBE_TIMEOUT)
    except subprocess.TimeoutExpired:
        return Probe(backend, None, f"no answer within {PROBE_TIMEOUT:.0f} s")
    if done.returncode == 0:
        return Probe(backend, float(done.stdout.split()[-1]))
    # The first error of a chain is its cause.
    causes = re.findall(r"^[\w.]*Error: .*", done.stderr, re.MULTILINE)
    return Probe(backend, None, causes[0] if causes else f"ended with exit code {done.returncode}")


def _draw() -> float:
    """Median time [ms] to draw both views of the simulated cell at 64 px."""
    # Imported here: with a broken MUJOCO_GL the import of MuJoCo fails, and the report must still appear.
    from robot.factory import RobotConfig, make_robot_env

    env = make_robot_env(RobotConfig())
    env.reset(seed=0)
    times = []
    for _ in range(PROBE_FRAMES):
        env.robot.clock.sleep_until(env.robot.clock.now() + 0.01)
        env.robot.hold()  # advances the physics, so that only the drawing is timed
        start = time.perf_counter()
        for camera in env.robot.cameras:
            camera.read()
        times.append(1e3 * (time.perf_counter() - start))
    env.close()
    return statistics.median(times)


def _working(probes: Sequence[Probe]) -> Probe | None:
    return next((probe for probe in probes if probe.milliseconds is not None), None)


def _installed(package: str) -> bool:
    if shutil.which("dpkg-query") is None:
        return False
    query = ["dpkg-query", "-W", "-f=${Status}", package]
    return "ok installed" in subprocess.run(query, capture_output=True, text=True).stdout


def _install(packages: Sequence[str]) -> bool:
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", *packages]):
        print(" ".join(command))
        if subprocess.run(command).returncode != 0:
            print("apt-get failed; see its message above")
            return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
