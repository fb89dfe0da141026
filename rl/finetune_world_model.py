"""`groundhog finetune-world-model`: train the world model on a run, a store or a LeRobot dataset, and publish it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from rl import command
from rl.config import load
from rl.metrics import MetricsLog
from rl.replay.lerobot.importer import import_dataset
from rl.replay.lerobot.layout import is_dataset
from rl.runtime.interrupt import InterruptFlag
from rl.world_models.config import FinetuneWorldModelConfig
from rl.world_models.cost import foretell
from rl.world_models.data import ClipData, real_stores
from rl.world_models.training import Finetuning
from worldmodel.adapt import Verdict


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("finetune-world-model", argv, _finetune)


def _finetune(overrides: list[str]) -> int:
    config = load("finetune-world-model", overrides)
    assert isinstance(config, FinetuneWorldModelConfig)
    console, data = Console(), Path(config.data)
    dataset = is_dataset(data)
    beside = data.with_name(f"{data.name}_world_model") if dataset else data / "world_model"
    out = Path(config.out) if config.out else beside
    stores = [_imported(config, data, out, console)] if dataset else real_stores(data)
    clips = ClipData.open(stores, config.holdout)
    for line in foretell(config, len(config.views or clips.schema.views)):
        console.print(line, soft_wrap=True, highlight=False)
    training = Finetuning(config, clips, out, time.process_time)
    if config.resume:
        console.print(f"continues at update {training.first} of {training.target}, the end it was begun with")
    if not _train(training, MetricsLog(out / "metrics.jsonl", time.time), console):
        console.print(f"stopped; continue with resume=true out={out}", soft_wrap=True, highlight=False)
        return 130
    verdict = training.publish()
    for line in _describe(verdict, training):
        console.print(line, soft_wrap=True, highlight=False)
    return 0


def _imported(config: FinetuneWorldModelConfig, data: Path, out: Path, console: Console) -> Path:
    """The replay store of a LeRobot dataset, made on the first run."""
    store = out / "store"
    if not store.exists():
        for line in import_dataset(data, store, config.mapping).describe():
            console.print(line, highlight=False, soft_wrap=True, markup=False)
    return store


def _train(training: Finetuning, log: MetricsLog, console: Console) -> bool:
    """Rounds with a progress bar; False where the person stopped it."""
    interrupted = InterruptFlag()
    try:
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("training", total=training.target, completed=training.first)
            for done in training.rounds():
                log.write("world_model", 0, done.updates, done.metrics)
                progress.update(bar, completed=done.updates)
                if interrupted.seen and done.updates < done.target:
                    return False
    finally:
        interrupted.restore()
        log.close()
    return True


def _describe(verdict: Verdict, training: Finetuning) -> list[str]:
    scores, extra = verdict.challenger, verdict.challenger.extra
    following = "not measured" if scores.following is None else f"{scores.following:.2f}"
    lines = [
        f"held-out clips: PSNR {scores.psnr:.2f} dB, the last frame copied {extra['copy_psnr']:.2f} dB; "
        f"SSIM {extra['ssim']:.3f}, copied {extra['copy_ssim']:.3f}; action following {following}"
    ]
    if verdict.published:
        lines.append(f"published version {verdict.version}: {training.versions.path(verdict.version)}")
    else:
        lines.append(f"not published, version {verdict.version} stays: {verdict.objection}")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
