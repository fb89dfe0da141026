"""Main function of a spawned worker process: build, loop, close; ends with its parent, and says why it ended."""

from __future__ import annotations

import os
import signal
import time
import traceback
from pathlib import Path

from rl.runtime import locks
from rl.runtime.run_dir import RunDir
from rl.workers.ports import STOP

IDLE_SLEEP_S = 0.001  # while a worker waits for another: short against a control step, long against a spin
BACKGROUND_SLEEP_S = 0.02  # of a worker that nobody waits for: it looks into files to see whether it is due
BACKGROUND_NICE = 10  # where cores are scarce, the robot's control step and the learner come first


def worker_main(name: str, run_path: str, parent: int) -> None:
    """Run one worker until it finishes, the run stops or the parent is gone. Exit code 0, or 1 after an exception."""
    # The supervisor alone decides the order of the end (actor, then learner); a terminal sends Ctrl-C to everybody,
    # a service manager SIGTERM.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    run = RunDir(Path(run_path))
    locks.join(run.path)
    try:
        _run(name, run, parent)
    except Exception as error:
        report = run.path / "errors" / f"{name}.txt"
        report.parent.mkdir(exist_ok=True)
        report.write_text(f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}")
        raise SystemExit(1) from error


def _run(name: str, run: RunDir, parent: int) -> None:
    import torch

    from rl.runtime.assemble import make_actor, make_learner
    from rl.runtime.imagining import make_world_model
    from rl.runtime.session import Session

    torch.set_num_threads(run.config.runtime.torch_threads)
    board, idle = run.board(), IDLE_SLEEP_S
    match name:
        case "actor":
            session = Session(name, make_actor(run), run)
        case "learner":
            session = Session(name, make_learner(run), run)
        case "world_model":
            idle = BACKGROUND_SLEEP_S
            session = Session(name, make_world_model(run), run)
            os.nice(
                BACKGROUND_NICE
            )  # not before: it would be minutes before it speaks where cores are scarce
        case _:
            raise ValueError(f"unknown worker {name!r}; known: actor, learner, world_model")
    try:
        while not session.finished and not board.get(STOP) and os.getppid() == parent:
            if session.step().waiting:
                time.sleep(idle)
    finally:
        session.close()
