"""Faults of the closed loop: what imagines, judges or computes goes wrong in a running run; the robot must not notice.

    python -m benchmarks.kills_loop [--seeds 0 1] [--env-steps 1500]

Writes benchmarks/results/closed_loop_kills.json. Press from state without corrections; the simulator imagines, and a
judge that knows its truth scores the clips with a little noise, through the calibrator and the gates that judge video.
Pacing is off, so that only selection and gates stand between a fault and the learner. All workers run in one process;
a worker that died or is stuck is treated as the supervisor would. `gates open` is the contrast: the same hallucination
with nothing in its way.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reward_model.calibration.calibrator import CalibrationConfig, Calibrator
from reward_model.labels import Thresholds
from rl.agent.adam import load_optimiser
from rl.config import load_dict
from rl.imagination.clip import ImaginedClip, Origin
from rl.imagination.labels import LabelledClip, RewardModelLabeller
from rl.metrics import read_metrics
from rl.preparation import prepare
from rl.provenance import RESULTS, header, write
from rl.runtime import imagining
from rl.runtime.imagining import make_world_model
from rl.runtime.inline import run_inline
from rl.runtime.run_dir import RunDir
from rl.statistics import wilson_interval
from rl.workers.ports import ALIVE, CALIBRATION_GATE, MILLIONTHS, UPDATES, StepResult, Worker
from robot.types import Float32, Label
from worldmodel.counterfactual import BranchKind

SCORE_NOISE = 0.05
AT_UPDATE = 1500  # of the faults that come in the middle of a run
MOVED_EPISODE = 15  # online episodes from here on are of a policy that a frozen model has never seen
STUCK_UPDATES = (
    600  # in the 30 s after which a silent worker counts as dead, at 10 Hz and two updates per step
)


class Fault(Enum):
    """What goes wrong."""

    NO_IMAGINATION = "none: plain learning"
    HEALTHY = "none: it imagines"
    HALLUCINATES = "world model: everything looks like success"
    HALLUCINATES_UNGATED = "the same, gates open"
    REVERSED = "reward model: reversed ranks"
    FROZEN = "frozen model, moving policy"
    STUCK = "worker stuck"
    KILLED = "worker killed"
    NO_CAMERA = "a camera is missing"
    SWAPPED = "version swap"

    @property
    def starts_at(self) -> int:
        """The update with which it begins."""
        return AT_UPDATE if self in (Fault.STUCK, Fault.KILLED, Fault.NO_CAMERA, Fault.SWAPPED) else 0


class Judge:
    """Scores clips by the truth, or wrongly; told beforehand which clips the frames belong to."""

    task, version = "press", 1

    def __init__(self, fault: Fault, seed: int) -> None:
        self.views: dict[str, tuple[int, int]] = {}
        self._fault, self._rng = fault, np.random.default_rng(seed)
        self.clips: Sequence[ImaginedClip] = ()

    def score(self, images: object) -> Float32:
        """(B, T + 1) probabilities of success."""
        shape = (len(self.clips), len(self.clips[0]) + 1)
        scores = np.full(shape, 0.05)
        for row, clip in enumerate(self.clips):
            reached = [truth is Label.SUCCESS for truth in clip.truth]
            if any(reached):
                scores[row, reached.index(True) + 1 :] = 0.95
            if self._fault in (Fault.HALLUCINATES, Fault.HALLUCINATES_UNGATED):
                scores[row, 1:] = 0.95
            if self._fault is Fault.REVERSED:
                scores[row] = 1.0 - scores[row].max()
            moved = clip.start.origin is Origin.ONLINE and clip.start.episode >= MOVED_EPISODE
            if self._fault is Fault.FROZEN and moved:
                scores[row, 1:] = self._rng.choice([0.05, 0.95])
        noise = self._rng.normal(0.0, SCORE_NOISE, shape)
        return np.clip(scores + noise, 0.001, 0.999).astype(np.float32)


class TruthfulLabeller(RewardModelLabeller):
    """The labeller of video, for clips without frames."""

    def __init__(self, judge: Judge) -> None:
        thresholds = Thresholds(0.8, 0.2, hold_frames=1)
        super().__init__(judge, thresholds, Calibrator(CalibrationConfig()), judge.task)  # type: ignore[arg-type]
        self._judge = judge
        self._known: dict[int, ImaginedClip] = {}

    def label(self, clips: Sequence[ImaginedClip]) -> list[LabelledClip]:
        """What the simulator knows of a clip is the judge's alone: the calibrator is told of replays, as with video."""
        told = [
            clip if clip.kind is BranchKind.REPLAY else replace(clip, truth=[Label.UNKNOWN] * len(clip))
            for clip in clips
        ]
        self._known = {id(one): clip for one, clip in zip(told, clips, strict=True)}
        return super().label(told)

    def _label_alike(self, clips: Sequence[ImaginedClip]) -> list[LabelledClip]:
        self._judge.clips = [self._known[id(clip)] for clip in clips]
        return super()._label_alike(clips)


class Faulty:
    """A world-model worker whose process has the fault."""

    def __init__(self, worker: Worker, run: RunDir, fault: Fault, imaginer: Any) -> None:
        self._worker, self._board, self._fault, self._imaginer = worker, run.board(), fault, imaginer

    def step(self) -> StepResult:
        since = self._board.get(UPDATES) - AT_UPDATE
        if since >= 0:
            match self._fault:
                case Fault.KILLED | Fault.NO_CAMERA:  # the latter raises at every start, until it is given up
                    self._board.set(ALIVE, 0)
                    return StepResult(waiting="gone")
                case Fault.STUCK:
                    self._board.set(ALIVE, int(since < STUCK_UPDATES))
                    return StepResult(waiting="silent")
                case Fault.SWAPPED:
                    self._imaginer.version = 1
                case _:
                    pass
        result = self._worker.step()
        if self._fault is Fault.HALLUCINATES_UNGATED:
            self._board.set(CALIBRATION_GATE, MILLIONTHS)
        return result

    def close(self) -> None:
        self._worker.close()


@dataclass(frozen=True)
class Trial:
    fault: Fault
    seed: int
    env_steps: int

    def run(self, folder: Path) -> dict[str, Any]:
        """One run with its figures."""
        ungated = self.fault is Fault.HALLUCINATES_UNGATED
        config = load_dict(
            "train",
            [
                "experiment=press_state",
                "correction.kind=none",
                f"seed={self.seed}",
                f"actor.max_env_steps={self.env_steps}",
                "actor.eval_every_env_steps=0",
                "actor.final_eval_episodes=50",
                "learner.diagnose_every=0",
                "learner.log_every=10",
                "runtime.kind=inline",
                "wandb=disabled",
                f"synthetic.model={'none' if self.fault is Fault.NO_IMAGINATION else 'oracle'}",
                "synthetic.imagination.replay_share=0.25",
                "synthetic.imagination.parallel=8",
                f"synthetic.selection.mode={'none' if ungated else 'mixture_paired'}",
                "synthetic.share.pacing.rule=constant",
                "synthetic.share.pacing.rise_per_100=100",
            ],
        )
        run = RunDir.create(folder / f"{self.fault.name.lower()}_{self.seed}", config)
        prepare(run, run.config, lambda text: None)
        parts = imagining._parts

        def make(run: RunDir) -> Worker:
            kept: list[Any] = []

            def with_judge(*arguments: Any) -> imagining.Parts:
                made = parts(*arguments)
                kept.append(made.imaginer)
                return imagining.Parts(
                    made.imaginer, TruthfulLabeller(Judge(self.fault, self.seed)), made.adapt
                )

            imagining._parts = with_judge
            try:
                worker = make_world_model(run)
            finally:
                imagining._parts = parts
            return Faulty(worker, run, self.fault, kept[0])

        run_inline(run, lambda: None, make_world_model=make)
        return self._figures(run)

    def _figures(self, run: RunDir) -> dict[str, Any]:
        records = read_metrics(run.metrics_path)
        final = next(r for r in reversed(records) if "final/success" in r)
        trace = [r for r in records if r.get("selection/ratio") is not None]
        before = [r["selection/ratio"] for r in trace if r["updates"] <= self.fault.starts_at]
        after = [r for r in trace if r["updates"] > self.fault.starts_at]
        shut = next((r for r in after if r["selection/ratio"] == 0.0), None)
        gates = ("gate_world_model", "gate_selection", "gate_calibration", "alive")
        return {
            "seed": self.seed,
            "successes": round(final["final/success"] * final["final/episodes"]),
            "episodes": int(final["final/episodes"]),
            "ratio_before": max(before, default=0.0),
            "ratio_after_mean": float(np.mean([r["selection/ratio"] for r in after])) if after else 0.0,
            "ratio_after_max": max((r["selection/ratio"] for r in after), default=0.0),
            "updates_to_zero": None if shut is None else int(shut["updates"] - self.fault.starts_at),
            "shut_by": [] if shut is None else [g for g in gates if shut[f"selection/{g}"] == 0.0],
            "used": int(max((r["selection/used"] for r in trace), default=0)),
            "trace": [[int(r["updates"]), round(r["selection/ratio"], 4)] for r in trace[::10]],
        }


def pooled(fault: Fault, runs: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Success over the seeds with its interval, and whether that of plain learning lies within the same noise."""
    successes, episodes = (sum(r[key] for r in runs) for key in ("successes", "episodes"))
    low, high = wilson_interval(successes, episodes)
    per_seed = [r["successes"] / r["episodes"] - b["successes"] / b["episodes"] for r, b in zip(runs, base)]  # noqa: B905
    base_low, _ = wilson_interval(sum(b["successes"] for b in base), sum(b["episodes"] for b in base))
    return {
        "fault": fault.value,
        "success": successes / max(1, episodes),
        "wilson_low": low,
        "wilson_high": high,
        "difference_per_seed": [round(d, 3) for d in per_seed],
        "within_noise": high >= base_low,
        "runs": list(runs),
    }


def main(say: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--env-steps", type=int, default=1500)
    parser.add_argument("--more", action="store_true", help="beside the seeds that the results hold already")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    load_optimiser()
    out = RESULTS / "closed_loop_kills.json"
    done: dict[Fault, list[dict[str, Any]]] = {}
    if arguments.more:
        done = {Fault(row["fault"]): row["runs"] for row in json.loads(out.read_text())["rows"]}
    had = {run["seed"] for run in done.get(Fault.NO_IMAGINATION, [])}
    seeds = " ".join(map(str, sorted(had | set(arguments.seeds))))
    command = f"python -m benchmarks.kills_loop --seeds {seeds} --env-steps {arguments.env_steps}"
    with tempfile.TemporaryDirectory() as folder:
        for seed in arguments.seeds:
            for fault in Fault:
                figures = Trial(fault, seed, arguments.env_steps).run(Path(folder))
                done.setdefault(fault, []).append(figures)
                shown = {key: value for key, value in figures.items() if key != "trace"}
                say(f"{fault.value}: {shown}")
                base = done[Fault.NO_IMAGINATION]
                rows = [pooled(f, runs, base[: len(runs)]) for f, runs in done.items()]
                write(
                    out,
                    header("closed_loop_kills", command, ("torch", "numpy", "mujoco")),
                    rows,
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
