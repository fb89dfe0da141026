"""Training a world model from stores, by itself: rounds of updates, a checkpoint after each, a published version."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from rl.replay.sampler import Split
from rl.world_models.config import FinetuneWorldModelConfig
from rl.world_models.data import ClipData, make_spec
from worldmodel import checkpoint
from worldmodel.adapt import Champion, Scores, Verdict, Versions
from worldmodel.evaluate import evaluate
from worldmodel.factory import ModelKind, WorldModelConfig, load_world_model, make_world_model
from worldmodel.following import action_following
from worldmodel.interface import WorldModel, WorldModelError
from worldmodel.trainer import OptimiserConfig

CALIBRATION_STEPS = 10  # per pass; single steps and unrolls in the proportion of the real fit
FOLLOWING_PAIRS = 512  # real clips on which the probe of action following is fitted
MARK = "finetune.json"


@dataclass(frozen=True)
class Progress:
    """After a round: updates so far and at the end, and what `adapt` returned."""

    updates: int
    target: int
    metrics: dict[str, float]


class Finetuning:
    """One training in the directory `out`. cpu_clock: processor seconds of this process."""

    def __init__(
        self, config: FinetuneWorldModelConfig, data: ClipData, out: Path, cpu_clock: Callable[[], float]
    ) -> None:
        self._config, self._data, self._out, self._clock = config, data, out, cpu_clock
        self._device = torch.device(config.device)
        self._train = data.sampler(Split.TRAIN)
        if self._train.size == 0:
            raise WorldModelError("every episode is held out; record more, or hold out fewer (holdout.every)")
        self._spec = make_spec(
            data.schema, config.model.context_frames, config.model.max_horizon, config.views
        )
        past, rng = self._spec.context_frames - 1, np.random.default_rng([config.seed, 1])
        self._held_out = data.held_out(config.clips, config.horizon, past, rng)
        self._probe = self._train.sample(FOLLOWING_PAIRS, 1, rng, past)
        self._load = partial(load_world_model, device=self._device, spec=self._spec)
        self.versions = Versions(out / "versions")
        self._inherited: Collection[str] | None = ()  # what the model had learned from before
        self._taught = data.learned()
        self.first, self.target, model = self._begin()
        self.champion = Champion(model, self.versions, self.judge, self._load, config.champion, self._learned)

    def rounds(self) -> Iterator[Progress]:
        """Train to the target, with a checkpoint after each round; a resumed training repeats nothing."""
        config, updates = self._config, self.first
        while updates < self.target:
            # Drawn from the count, so that a resumed round is the one that would have come.
            rng = np.random.default_rng([config.seed, 2, updates])
            steps = min(config.round_steps, self.target - updates)
            metrics = self.champion.train(self._train, steps, rng)
            updates += steps
            self.champion.challenger.save(self._checkpoint, learned=self._learned())
            self._mark(updates)
            yield Progress(updates, self.target, metrics)

    def judge(self, model: WorldModel) -> Scores:
        """PSNR and SSIM over the horizon, those of the last frame copied, and whether commands are followed."""
        report = evaluate(model, self._held_out)
        steps = report.steps
        extra = {
            "ssim": report.mean("ssim", steps),
            "copy_psnr": report.mean("psnr", steps, copied=True),
            "copy_ssim": report.mean("ssim", steps, copied=True),
        }
        for view in report.views:
            extra[f"psnr_{view}"] = report.mean("psnr", steps, view=view)
            extra[f"copy_psnr_{view}"] = report.mean("psnr", steps, view=view, copied=True)
        return Scores(report.mean("psnr", steps), self._following(model), extra)

    def publish(self) -> Verdict:
        """Judge the trained model against the version before it, if there is one."""
        return self.champion.compete()

    def _learned(self) -> Collection[str] | None:
        return None if self._inherited is None else self._taught.union(self._inherited)

    def _following(self, model: WorldModel) -> float | None:
        try:
            score = action_following(
                model, self._probe, self._held_out, np.random.default_rng([self._config.seed, 3])
            ).score
        except WorldModelError:  # too few clips to tell, which is no verdict on the model
            return None
        return score if math.isfinite(score) else None

    @property
    def _checkpoint(self) -> Path:
        return self._out / "training.safetensors"

    def _begin(self) -> tuple[int, int, WorldModel]:
        """Updates so far, updates at the end, and the model to train."""
        config, mark = self._config, self._out / MARK
        if config.resume:
            try:
                stored = json.loads(mark.read_text())
                updates, target = int(stored["updates"]), int(stored["target"])
                self._inherited = checkpoint.read(self._checkpoint).learned
                model = self._load(self._checkpoint)
            except (OSError, ValueError, KeyError, TypeError) as error:
                if isinstance(error, WorldModelError):
                    raise
                raise WorldModelError(f"{mark}: nothing to resume ({error}); drop resume=true") from error
            if updates >= target and self._is_published():
                newest = self.versions.newest_path()
                raise WorldModelError(
                    f"{self._out}: finished after {updates} updates, and published; to train on, begin anew with "
                    f"start={newest}, another out= and without resume=true"
                )
            return updates, target, model
        if mark.exists():
            raise WorldModelError(
                f"{self._out}: holds a training already; continue it with resume=true, or choose another out="
            )
        self._out.mkdir(parents=True, exist_ok=True)
        if config.start is not None:
            start = Path(config.start)
            self._inherited = checkpoint.read(start).learned
            target = config.steps or self._affordable(lambda _: self._load(start))
            return 0, target, self._load(start)
        target = config.steps or self._affordable(self._fresh)
        return 0, target, self._fresh(target)

    def _is_published(self) -> bool:
        """Whether the newest version is the model of the checkpoint."""
        if not self.versions.all():
            return False
        newest = checkpoint.read(self.versions.newest_path()).tensors
        mine = checkpoint.read(self._checkpoint).tensors
        return newest.keys() == mine.keys() and all(torch.equal(newest[name], mine[name]) for name in mine)

    def _fresh(self, fit_steps: int) -> WorldModel:
        model = with_fit_steps(self._config.model, fit_steps)
        return make_world_model(model, self._spec, device=self._device, seed=self._config.seed)

    def _affordable(self, make: Callable[[int], WorldModel]) -> int:
        """How many updates the processor time buys, from a trial that is thrown away and counted."""
        assert self._config.cpu_minutes is not None
        begun, rng = self._clock(), np.random.default_rng([self._config.seed, 4])
        make(CALIBRATION_STEPS).adapt(self._train, CALIBRATION_STEPS, rng)  # kernels are chosen at first use
        trial = make(CALIBRATION_STEPS)
        start = self._clock()
        trial.adapt(self._train, CALIBRATION_STEPS, rng)
        end = self._clock()
        left = 60.0 * self._config.cpu_minutes - (end - begun)
        return max(1, int(left / max(1e-6, end - start) * CALIBRATION_STEPS))

    def _mark(self, updates: int) -> None:
        beside = self._out / f"{MARK}.tmp"
        beside.write_text(json.dumps({"updates": updates, "target": self.target}))
        beside.rename(self._out / MARK)


def with_fit_steps(config: WorldModelConfig, steps: int) -> WorldModelConfig:
    """The config whose first fit is `steps` long, for the models that have one."""

    def longer(optimiser: OptimiserConfig) -> OptimiserConfig:
        return dataclasses.replace(optimiser, fit_steps=steps)

    match config.kind:
        case ModelKind.FLOW_WARP:
            return dataclasses.replace(
                config,
                flow_warp=dataclasses.replace(config.flow_warp, optimiser=longer(config.flow_warp.optimiser)),
            )
        case ModelKind.EDM:
            return dataclasses.replace(
                config, edm=dataclasses.replace(config.edm, optimiser=longer(config.edm.optimiser))
            )
        case _:
            return config
