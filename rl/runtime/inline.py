"""Inline runtime: all workers in one process, round robin and deterministic; for tests and debugging."""

from __future__ import annotations

from collections.abc import Callable

from rl.runtime.assemble import make_actor, make_learner
from rl.runtime.interrupt import InterruptFlag
from rl.runtime.run_dir import RunDir
from rl.runtime.session import Session
from rl.workers.ports import OPERATOR_STOP, STOP


def run_inline(run: RunDir, on_tick: Callable[[], None]) -> int:
    """Run to the end; returns the exit code. Ctrl-C ends cleanly: the arm holds, the learner checkpoints."""
    interrupted = InterruptFlag()
    # The learner first: what its optimisers import must precede the GL context of the actor's cameras.
    learner = Session("learner", make_learner(run), run)
    actor = Session("actor", make_actor(run), run)
    board = run.board()
    try:
        while not (actor.finished and learner.finished):
            while not learner.finished and not learner.step().waiting and not interrupted.seen:
                on_tick()
            actor.step()
            on_tick()
            if interrupted.seen:
                return 130
            if board.get(OPERATOR_STOP):
                return 0
        return 0
    finally:
        board.set(STOP, 1)
        actor.close()
        learner.close()
        interrupted.restore()
