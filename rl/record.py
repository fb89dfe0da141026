"""`groundhog record`: demonstrations by the scripted expert or by hand, written step by step into a store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from rl import command
from rl.config import load
from rl.demonstrations import record_demonstrations
from rl.runtime.interrupt import InterruptFlag
from rl.schemas import RecordConfig
from robot.factory import make_env
from robot.feedback import Reason
from robot.interfaces import RobotFault


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("record", argv, _record)


def _record(overrides: list[str]) -> int:
    config = load("record", overrides)
    assert isinstance(config, RecordConfig)
    console, out = Console(), Path(config.out)
    interrupted = InterruptFlag()
    with ExitStack() as end:
        end.callback(interrupted.restore)
        env = make_env(config.robot, seed=config.seed, keep_waiting=lambda _what: not interrupted.seen)
        end.callback(env.close)
        attempts = record_demonstrations(
            out, env, config.demos, config.correction, seed=config.seed, stop=lambda: interrupted.seen
        )
        try:
            for attempt in attempts:
                console.print(attempt.describe(), highlight=False)
        except RobotFault as fault:
            if not (interrupted.seen or fault.name == Reason.OPERATOR_STOP):  # between two attempts
                raise
    console.print(f"demonstrations in {out}; use them with: groundhog train demos.path={out}", soft_wrap=True)
    return 130 if interrupted.seen else 0


if __name__ == "__main__":
    raise SystemExit(main())
