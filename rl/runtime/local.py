"""Local runtime: one spawned process per worker under a supervisor that restarts the killed and stops on errors."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess

from rl.runtime.interrupt import InterruptFlag
from rl.runtime.process import worker_main
from rl.runtime.run_dir import RunDir
from rl.schemas import RuntimeConfig
from rl.workers.ports import ACTOR_DONE, ALIVE, HOLD, OPERATOR_STOP, STOP

WORLD_MODEL = "world_model"
STOP_ORDER = ("actor", WORLD_MODEL, "learner")  # the arm holds first, the learner saves last
TICK_S = 0.1
WORLD_MODEL_PATIENCE = (
    5.0  # a contest of versions is one long step, and while it is silent nothing imagined is used
)
STARTUP_S = 60.0  # to the first heartbeat of a new process
GRACE_S = 4.5  # for a clean end of each worker; all children are gone within 10 s of an exception


class Supervisor:
    """Starts the workers and watches them.

    A worker killed by a signal, or silent for too long, is restarted from what is on disk, at most `max_restarts`
    times; meanwhile HOLD keeps the arm still. A worker that raised ends the run with exit code 1.

    The world model is different: nothing waits for it. However it ends, ALIVE falls to 0, so that nothing imagined is
    used any more, and it is restarted as often as the others; the run goes on with it or without.
    """

    def __init__(self, run: RunDir, config: RuntimeConfig, say: Callable[[str], None]) -> None:
        self._run, self._config, self._say = run, config, say
        self._imagines = run.config.synthetic.on
        self._board = run.board()
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[str, SpawnProcess] = {}
        self._restarts = self._world_model_restarts = 0
        self._started: dict[str, float] = {}

    def run(self, on_tick: Callable[[], None]) -> int:
        """Run to the end; returns the exit code (0 done, 1 error, 130 Ctrl-C)."""
        interrupted = InterruptFlag()
        try:
            for name in STOP_ORDER:
                if name != WORLD_MODEL or self._imagines:
                    self._start(name)
            return self._watch(on_tick, interrupted)
        finally:
            try:
                self._stop_all()
            finally:
                interrupted.restore()

    def _watch(self, on_tick: Callable[[], None], interrupted: InterruptFlag) -> int:
        while self._processes:
            wait([p.sentinel for p in self._processes.values()], timeout=TICK_S)
            on_tick()
            if interrupted.seen or self._board.get(OPERATOR_STOP):
                self._say("stopping: the arm holds, then the learner saves")
                return 130 if interrupted.seen else 0
            self._kill_silent()
            for name, process in list(self._processes.items()):
                if process.exitcode is None:
                    continue
                del self._processes[name]
                if name == WORLD_MODEL:
                    self._replace_world_model(process.exitcode)
                    continue
                if process.exitcode == 0:
                    continue
                if process.exitcode > 0:
                    self._board.set(HOLD, 1)
                    self._say(self._error_of(name))
                    return 1
                if not self._restart(name, process.exitcode):
                    return 1
            self._board.set(HOLD, int(self._someone_is_coming_up()))
        return 0 if self._board.get(ACTOR_DONE) else 1

    def _start(self, name: str) -> None:
        self._board.forget(name)
        self._started[name] = time.monotonic()
        process = self._context.Process(
            target=worker_main, args=(name, str(self._run.path), os.getpid()), name=name, daemon=True
        )
        process.start()
        self._processes[name] = process
        if name == WORLD_MODEL:
            self._board.set(ALIVE, 1)

    def _replace_world_model(self, exitcode: int) -> None:
        """Say how it ended and start it anew, unless it is done or has ended too often."""
        self._board.set(ALIVE, 0)
        if exitcode == 0:
            return
        cause = self._error_of(WORLD_MODEL) if exitcode > 0 else f"killed by {signal.Signals(-exitcode).name}"
        if self._world_model_restarts >= self._config.max_restarts:
            self._say(f"world_model: {cause}; the run goes on without it")
            return
        self._world_model_restarts += 1
        self._say(
            f"world_model: {cause}; nothing imagined is used until it is back ({self._world_model_restarts})"
        )
        self._start(WORLD_MODEL)

    def _restart(self, name: str, exitcode: int) -> bool:
        """A kill costs at most the step in flight; what happened is said, and the number of restarts is bounded."""
        self._board.set(HOLD, 1)
        cause = signal.Signals(-exitcode).name
        if self._restarts >= self._config.max_restarts:
            self._say(
                f"{name} was killed by {cause} after {self._restarts} restarts; continue with resume={self._run.path}"
            )
            return False
        self._restarts += 1
        self._say(f"{name} was killed by {cause}: the arm holds, restarting it from disk ({self._restarts})")
        self._start(name)
        return True

    def _someone_is_coming_up(self) -> bool:
        """A restarted worker has not spoken yet; at the first start the actor waits for weights anyway."""
        return self._restarts > 0 and any(
            self._board.silence(name) == float("inf") for name in self._processes if name != WORLD_MODEL
        )

    def _kill_silent(self) -> None:
        for name, process in self._processes.items():
            silence, limit = self._board.silence(name), self._config.silent_s
            if name == WORLD_MODEL:
                limit *= WORLD_MODEL_PATIENCE
            if silence == float("inf"):  # still importing and building; a cold disk makes that slow
                silence, limit = time.monotonic() - self._started[name], limit + STARTUP_S
            if silence > limit and process.is_alive():
                self._say(f"{name} has been silent for {limit:.0f} s: ending it")
                process.kill()
                process.join(1.0)

    def _error_of(self, name: str) -> str:
        report = self._run.path / "errors" / f"{name}.txt"
        first = report.read_text().splitlines()[0] if report.exists() else "no report was written"
        return f"{name} failed: {first}\n(full report: {report}; continue with resume={self._run.path})"

    def _stop_all(self) -> None:
        self._board.set(STOP, 1)
        for name in STOP_ORDER:
            process = self._processes.get(name)
            if process is None:
                continue
            process.join(GRACE_S)
            if process.exitcode is None:
                process.kill()
                process.join(1.0)
        self._processes.clear()
