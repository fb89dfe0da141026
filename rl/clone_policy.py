"""`groundhog clone-policy`: behaviour cloning from a store, a run or a LeRobot dataset, judged on held-out episodes."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf
from rich.console import Console
from rich.progress import Progress

from rl import command, provenance
from rl.cloned import CONFIG, RECORDED, RESULT
from rl.cloning import ClonePolicyConfig, Cloning, describe, opened
from rl.config import ConfigError, load_dict, to_object
from rl.metrics import MetricsLog
from rl.replay.lerobot.layout import is_dataset
from rl.runtime.interrupt import InterruptFlag
from rl.runtime.weights import WeightsDirectory
from rl.schemas import check_device

LOG_EVERY = 50  # updates
PACKAGES = ("torch", "numpy")


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("clone-policy", argv, _clone)


def _clone(overrides: list[str]) -> int:
    stored = load_dict("clone-policy", overrides)
    config, console = to_object(stored), Console()
    assert isinstance(config, ClonePolicyConfig)
    check_device(config.device)
    data = Path(config.data)
    beside = data.with_name(f"{data.name}_cloned") if is_dataset(data) else data / "cloned"
    out = Path(config.out or beside)
    if (out / RESULT).exists():
        raise ConfigError(f"{out}: holds a cloned policy already; choose another out=")

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False, markup=False)

    with opened(config, say) as parts:
        cloning = Cloning(config, parts, time.process_time)
        weights = WeightsDirectory(
            out / "weights"
        )  # where nothing can be written, say so before the training
        _train(cloning, MetricsLog(out / "metrics.jsonl", time.time), console)
        kept = cloning.keep()
        rows = cloning.judge(kept)
    version = weights.publish(kept.tensors, kept.update)
    OmegaConf.save(stored, out / CONFIG, resolve=True)
    (out / "spec.json").write_text(json.dumps(cloning.spec.to_json(), indent=1))
    (out / RECORDED).write_text(cloning.schema.to_json())
    head = provenance.header("cloning", shlex.join(["groundhog", "clone-policy", *overrides]), PACKAGES)
    counts = {"updates": cloning.updates, "kept_update": kept.update, "kept_distance": kept.distance}
    provenance.write(out / RESULT, head | counts, rows)
    heading = (
        f"{cloning.updates} updates, kept: the weights after {kept.update}; "
        f"on {rows[0]['steps']} held-out steps, actions in -1..1:"
    )
    say("\n".join([heading, *map(describe, rows), str(weights.path(version))]))
    return 0


def _train(cloning: Cloning, log: MetricsLog, console: Console) -> None:
    """Until the budget is spent, or the person stops it: what was learned by then is judged and published."""
    interrupted = InterruptFlag()
    try:
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("cloning", total=1.0)
            for spent, metrics in cloning.train():
                progress.update(bar, completed=spent)
                if cloning.updates % LOG_EVERY == 0:
                    log.write("learner", 0, cloning.updates, metrics)
                if interrupted.seen:
                    break
    finally:
        interrupted.restore()
        log.close()


if __name__ == "__main__":
    raise SystemExit(main())
