"""`groundhog ablate`: a recorded run shown again to changed learners, without a robot; table and picture."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from rl import command
from rl.ablation.config import AblateConfig
from rl.ablation.recording import Recording
from rl.ablation.report import write_ablation_report
from rl.ablation.results import online_success
from rl.ablation.runs import AblationRun, Clocks, out_dir, plan_runs, run_all
from rl.config import load
from rl.runtime import locks


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("ablate", argv, _ablate)


def _ablate(overrides: list[str]) -> int:
    config = load("ablate", overrides)
    assert isinstance(config, AblateConfig)
    console = Console()

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    recording = Recording.open(Path(config.run), config.device)
    recording.verify()
    runs = plan_runs(recording, config)
    online_success(config, recording)  # read before the minutes that the replays take
    todo = [] if config.report else [run for run in runs if not run.result.exists()]
    typed = shlex.join(["groundhog", "ablate", *overrides])
    say(
        f"{recording.env_steps} env steps of {recording.run.path}; {len(runs)} replays, {len(todo)} still to do"
    )
    failed: list[AblationRun] = []
    if todo:
        out_dir(config).mkdir(parents=True, exist_ok=True)
        with locks.session(out_dir(config)):
            failed = run_all(todo, config, typed, Clocks(time.monotonic, time.process_time), say)
    for path in write_ablation_report(recording, config, runs, typed):
        say(str(path))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
