"""`groundhog post-train-vla`: a language-conditioned policy improves in the world model, anchored on the robot."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from pathlib import Path

import torch
from rich.console import Console

from rl import command
from rl.agent.adam import load_optimiser
from rl.config import load_dict, read, to_object
from rl.metrics import SESSION
from rl.runtime import locks
from rl.runtime.run_dir import RunDir
from rl.schemas import check_device
from rl.vla.assemble import assemble
from rl.vla.config import PostTrainVLAConfig
from rl.vla.run import WORKER, VLARun

COMMAND = "post-train-vla"


def main(argv: Sequence[str] | None = None) -> int:
    return command.run(COMMAND, argv, _post_train)


def _post_train(overrides: list[str]) -> int:
    run, config = _open(overrides)
    check_device(config.device)
    torch.set_num_threads(config.torch_threads)
    load_optimiser()  # before anything is drawn
    console = Console()

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False)

    say(f"run {run.path}")
    with locks.session(run.path), closing(run.metrics()) as log, ExitStack() as stack:
        run.commit_config()
        parts = assemble(run.path, config, stack, say)
        post_training = VLARun(run.path, config, parts, log, monotonic=time.monotonic, say=say)
        post_training.resume()
        log.write(WORKER, 0, 0, {SESSION: 1.0})
        path = run.write_json("result.json", post_training.run())
    say(str(path))
    return 0


def _open(overrides: list[str]) -> tuple[RunDir, PostTrainVLAConfig]:
    """The run to continue, or a new one."""
    resume = [o for o in overrides if o.startswith("resume=")]
    if resume:
        path = Path(resume[-1].partition("=")[2])
        stored = read(path / "config.yaml", COMMAND, tuple(o for o in overrides if o not in resume))
        config = to_object(stored)
        assert isinstance(config, PostTrainVLAConfig)
        return RunDir(path, stored), config
    composed = load_dict(COMMAND, overrides)
    config = to_object(composed)
    assert isinstance(config, PostTrainVLAConfig)
    tasks = "-".join(config.tasks)
    name = config.name or f"vla-{config.arm}-{tasks}-s{config.seed}-{datetime.now():%Y%m%d-%H%M%S}"
    return RunDir.create(Path(config.runs_dir) / name, composed), config


if __name__ == "__main__":
    raise SystemExit(main())
