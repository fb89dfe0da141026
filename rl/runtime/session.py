"""Session: one worker in its runtime, with heartbeat, status line and metrics."""

from __future__ import annotations

from rl.runtime.run_dir import RunDir
from rl.workers.ports import ENV_STEPS, UPDATES, StepResult, Worker


class Session:
    """Steps a worker and reports what it did; the worker itself knows no file, no clock and no process."""

    def __init__(self, name: str, worker: Worker, run: RunDir) -> None:
        self.name = name
        self.finished = False
        self._worker = worker
        self._board = run.board()
        self._metrics = run.metrics()

    def step(self) -> StepResult:
        """One step of the worker."""
        result = self._worker.step()
        self.finished = result.finished
        waits = f"waits for {result.waiting}" if result.waiting else result.doing
        self._board.beat(self.name, "done" if result.finished else waits)
        env_steps, updates = self._board.get(ENV_STEPS), self._board.get(UPDATES)
        self._metrics.write(self.name, env_steps, updates, result.metrics)
        return result

    def close(self) -> None:
        """Let the worker leave everything durable."""
        try:
            self._worker.close()
            self._board.beat(self.name, "closed")
        finally:
            self._metrics.close()
