"""`groundhog check-correction`: what the device in your hand says, live, before an arm is told any of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rl import command
from rl.config import load
from rl.corrections import make_device
from rl.schemas import CheckCorrectionConfig
from robot.clock import WallClock
from robot.teleop.live import SILENT, watch


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("check-correction", argv, _check)


def _check(overrides: list[str]) -> int:
    config = load("check-correction", overrides)
    assert isinstance(config, CheckCorrectionConfig)
    clock, kind = WallClock(), config.correction.kind.value
    device = make_device(config.correction, clock)
    if watch(device, clock, config.seconds, lambda line: print(line, flush=True)):
        return 0
    print(
        f"{kind}: nobody was in charge and nothing was pressed for {config.seconds:.0f} s; {SILENT}",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
