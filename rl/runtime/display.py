"""What a person sees while a run goes on: two bars, what each side waits for, and the newest evaluation."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rl.metrics import MetricsTail
from rl.runtime.board import Board
from rl.runtime.run_dir import RunDir
from rl.runtime.wandb_log import WandbLog
from rl.workers.ports import ENV_STEPS, HUMAN, TARGET_ENV_STEPS, UPDATES

LINE_EVERY_S = 10.0  # without a terminal: one line now and then


class Display:
    """Follows the board and the metrics file; passes each record on to wandb."""

    def __init__(self, run: RunDir, console: Console, wandb: WandbLog) -> None:
        config = run.config
        self._board: Board = run.board()
        self._tail = MetricsTail(run.metrics_path)
        for _ in self._tail.read():
            pass  # what earlier sessions said is not news
        self._console, self._wandb = console, wandb
        self._pacing, self._warm = config.pacing, config.learner.all_warm_updates
        self._live = console.is_terminal
        self._progress = Progress(
            TextColumn("{task.description:8}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
        )
        self._bars = {
            name: self._progress.add_task(name, total=1, note="starting") for name in ("actor", "learner")
        }
        self._notes = {"actor": "", "learner": ""}
        self._last_line = float("-inf")

    def __enter__(self) -> Display:
        if self._live:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tick()
        if self._live:
            self._progress.stop()

    def say(self, text: str) -> None:
        """A message that stays on the screen."""
        self._console.print(text, soft_wrap=True)

    def tick(self) -> None:
        """Redraw from the board and read new metrics."""
        for record in self._tail.read():
            self._wandb.log(record)
            self._note(record)
        env_steps, target = self._board.get(ENV_STEPS), self._board.get(TARGET_ENV_STEPS)
        updates, due = self._board.get(UPDATES), self._pacing.updates_due(target, self._warm)
        for name, done, total in (("actor", env_steps, target), ("learner", updates, due)):
            status = self._board.status(name)
            style = "bold dark_orange" if status == HUMAN else "dim"
            note = f"{self._notes[name]}  [{style}]{escape(status)}[/]"
            self._progress.update(self._bars[name], completed=done, total=max(1, total), note=note)
        now = self._progress.get_time()
        if not self._live and now - self._last_line >= LINE_EVERY_S:
            self._last_line = now
            waits = ", ".join(f"{n} {self._board.status(n)}" for n in ("actor", "learner"))
            self._console.print(
                f"env steps {env_steps}/{target}  updates {updates}/{due}  {self._notes['actor']}  ({waits})",
                soft_wrap=True,
                highlight=False,
            )

    def _note(self, record: dict[str, float]) -> None:
        if "env/train_success" in record:
            self._notes["actor"] = (
                f"success {record['env/train_success']:.0%}, corrected {record['actor/correction_rate']:.0%}"
            )
        if record.get("learner/q_mean") is not None:
            self._notes["learner"] = f"Q {record['learner/q_mean']:.2f}"
        for prefix in ("eval", "final"):
            if f"{prefix}/success" in record:
                self.say(
                    f"{'final evaluation' if prefix == 'final' else 'evaluation'} at {record['env_steps']} env steps:"
                    f" success {record[f'{prefix}/success']:.0%} of {record[f'{prefix}/episodes']:.0f}"
                    f" ({record[f'{prefix}/wilson_low']:.0%}-{record[f'{prefix}/wilson_high']:.0%}),"
                    f" {record[f'{prefix}/mean_steps']:.1f} steps per episode"
                )
