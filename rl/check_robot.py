"""`groundhog check-robot`: a robot's cameras, feedback, correction device, motion and stops, measured and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.table import Table

from rl import command
from rl.config import load
from rl.corrections import make_device
from rl.schemas import CheckRobotConfig
from robot.arm_env import ArmEnv
from robot.env import RobotEnv
from robot.factory import make_env
from robot.interfaces import DeviceError
from robot.readiness.finding import Finding, Verdict
from robot.readiness.motion import examine_motion
from robot.readiness.sensors import examine_sensors
from robot.safety import GovernorTransition
from robot.teleop.live import SILENT, watch

COLOURS = {Verdict.PASS: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("check-robot", argv, _check)


def _check(overrides: list[str]) -> int:
    config = load("check-robot", overrides)
    assert isinstance(config, CheckRobotConfig)
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    found = list(examine(config, lambda line: console.print(line, markup=False, highlight=False)))
    table = Table(title=f"robot.kind={config.robot.kind.value}", title_justify="left")
    for name in ("what", "", "measured", "what to do"):
        table.add_column(name, overflow="fold")
    for finding in found:
        verdict = f"[{COLOURS[finding.verdict]}]{finding.verdict.value}[/]"
        remedy = "" if finding.verdict is Verdict.PASS else finding.remedy
        table.add_row(finding.what, verdict, finding.measured, remedy)
    console.print(table)
    return int(any(finding.verdict is Verdict.FAIL for finding in found))


def examine(config: CheckRobotConfig, say: Callable[[str], None]) -> Iterator[Finding]:
    """Everything that can be found out, in the order in which it is looked at."""
    transitions: list[GovernorTransition] = []
    try:
        env = make_env(config.robot, seed=config.seed, on_transition=transitions.append)
    except DeviceError as error:
        yield Finding("connect", Verdict.FAIL, str(error), "as it says")
        return
    try:
        if isinstance(env, RobotEnv):
            yield from examine_sensors(env, config.seconds)
        if config.correction.kind.by_hand:
            yield _correction(config, env, say)
        if config.motion:
            yield from examine_motion(env, transitions)
    except DeviceError as error:
        yield Finding("devices", Verdict.FAIL, str(error), "as it says")
    finally:
        env.close()


def _correction(config: CheckRobotConfig, env: ArmEnv, say: Callable[[str], None]) -> Finding:
    """The values of the correction device, live; no arm is told of them."""
    what = f"correction: {config.correction.kind.value}"
    try:
        device = make_device(config.correction, env.clock)
    except DeviceError as error:
        return Finding(what, Verdict.FAIL, str(error), "as it says")
    heard = watch(device, env.clock, config.seconds, say)
    return Finding(
        what,
        Verdict.PASS if heard else Verdict.FAIL,
        "its values are shown above" if heard else f"silent for {config.seconds:.0f} s",
        SILENT,
    )


if __name__ == "__main__":
    raise SystemExit(main())
