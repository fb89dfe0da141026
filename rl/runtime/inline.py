"""Inline runtime: all workers in one process, round robin and deterministic; for tests and debugging."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from rl.runtime.assemble import make_actor, make_learner
from rl.runtime.imagining import make_world_model
from rl.runtime.interrupt import InterruptFlag
from rl.runtime.run_dir import RunDir
from rl.runtime.session import Session
from rl.workers.ports import ALIVE, OPERATOR_STOP, STOP, Worker


def run_inline(
    run: RunDir,
    on_tick: Callable[[], None],
    make_actor: Callable[[RunDir], Worker] = make_actor,
    make_world_model: Callable[[RunDir], Worker] = make_world_model,
) -> int:
    """Run to the end; returns the exit code. Ctrl-C ends cleanly: the arm holds, the learner checkpoints.

    make_actor, make_world_model: others than a robot's and an imagining one, such as those that replay a recording.
    """
    board = run.board()
    interrupted = InterruptFlag(lambda: board.set(STOP, 1))  # an actor that waits, or resets, looks at that
    # The learner first: what its optimisers import must precede the GL context of the actor's cameras.
    learner = Session("learner", make_learner(run), run)
    actor = Session("actor", make_actor(run), run)
    world_model = None
    if run.config.synthetic.on:
        world_model = Session("world_model", make_world_model(run), run)
        board.set(ALIVE, 1)

    def imagine() -> None:
        while world_model is not None and not (world_model.finished or interrupted.seen):
            if world_model.step().waiting:
                return

    try:
        while not (actor.finished and learner.finished):
            imagine()
            while not learner.finished and not learner.step().waiting and not interrupted.seen:
                imagine()
                on_tick()
            actor.step()
            on_tick()
            if interrupted.seen:
                return 130
            if board.get(OPERATOR_STOP):
                return 0
        return 0
    finally:
        with ExitStack() as end:  # last in, first out, each of them even if one before fails
            end.callback(interrupted.restore)
            end.callback(learner.close)
            if world_model is not None:
                end.callback(world_model.close)
            end.callback(actor.close)
            end.callback(board.set, STOP, 1)
