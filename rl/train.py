"""`groundhog train`: demonstrations, then actor and learner until the last evaluation, then the summary."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rich.console import Console

from rl import command
from rl.agent.adam import load_optimiser
from rl.config import load_dict, to_object
from rl.metrics import SESSION
from rl.preparation import prepare
from rl.runtime import locks
from rl.runtime.display import Display
from rl.runtime.inline import run_inline
from rl.runtime.local import Supervisor
from rl.runtime.run_dir import RunDir
from rl.runtime.wandb_log import WandbLog
from rl.schemas import RuntimeKind, TrainConfig
from rl.workers.ports import ENV_STEPS, UPDATES


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("train", argv, _train)


def _train(overrides: list[str]) -> int:
    console = Console()
    run = _open(overrides)
    config = run.config
    console.print(f"run {run.path}", soft_wrap=True, highlight=False)
    load_optimiser()  # before the first demonstration is drawn: an inline learner, and at the end the agent whose
    # values are shown, share this process
    with locks.session(run.path):
        return _session(run, config, console)


def _session(run: RunDir, config: TrainConfig, console: Console) -> int:
    try:
        prepare(run, config, lambda text: console.print(text, soft_wrap=True, highlight=False))
    except BaseException:
        run.withdraw()
        raise
    board = run.board()
    run.metrics().write("run", board.get(ENV_STEPS), board.get(UPDATES), {SESSION: 1.0})
    wandb = WandbLog(run, config)
    with Display(run, console, wandb) as display:
        match config.runtime.kind:
            case RuntimeKind.INLINE:
                code = run_inline(run, display.tick)
            case RuntimeKind.LOCAL:
                code = Supervisor(run, config.runtime, display.say).run(display.tick)
    wandb.close()
    from rl.report import write_report  # matplotlib, which the worker processes need not load

    write_report(run, config, console)
    if code:
        console.print(f"not finished; continue with: groundhog train resume={run.path}", soft_wrap=True)
    return code


def _open(overrides: list[str]) -> RunDir:
    """The run to continue, or a new one."""
    resume = [o for o in overrides if o.startswith("resume=")]
    if resume:
        others = tuple(o for o in overrides if o not in resume)
        return RunDir.open(Path(resume[-1].partition("=")[2]), others)
    composed = load_dict("train", overrides)
    config = to_object(composed)
    assert isinstance(config, TrainConfig)
    name = config.name or f"{config.robot.task}-s{config.seed}-{datetime.now():%Y%m%d-%H%M%S}"
    return RunDir.create(Path(config.runs_dir) / name, composed)


if __name__ == "__main__":
    raise SystemExit(main())
