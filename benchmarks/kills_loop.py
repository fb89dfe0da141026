"""Faults of the closed loop: what imagines, judges or computes goes wrong in a running run; the robot must not notice.

    python -m benchmarks.kills_loop [--seeds 0 1] [--env-steps 1200]

Writes benchmarks/results/closed_loop_kills.json and the table of docs/closed_loop.md. Press from state without
corrections; the simulator imagines, and a judge that knows its truth scores the clips with a little noise, through
the calibrator and the gates that judge video. Clips of 8 steps, one of eight a replay, all else by default but for
pacing, which is off, so that only selection and gates stand between a fault and the learner. A fault begins after
`AT_UPDATE` updates, when the share is open and the task is not learned yet. All workers run in one process; one that
died or is stuck is treated as the supervisor would, but does not come back. Two contrasts hold the gates open: from
the fault on, and from the first update on, there without selection, whose queue of failures would stay empty.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import barnard_exact

from reward_model.calibration.calibrator import CalibrationConfig, Calibrator
from reward_model.labels import Thresholds
from rl.agent.adam import load_optimiser
from rl.config import load_dict
from rl.imagination.clip import ImaginedClip, Origin, Start
from rl.imagination.labels import LabelledClip, RewardModelLabeller
from rl.imagination.starts import StartPool
from rl.metrics import read_metrics
from rl.pages import write_between
from rl.preparation import prepare
from rl.provenance import RESULTS, header, write
from rl.replay.reader import StoreReader
from rl.runtime import imagining
from rl.runtime.imagining import make_world_model
from rl.runtime.inline import run_inline
from rl.runtime.parts import Parts
from rl.runtime.run_dir import RunDir
from rl.schemas import TrainConfig
from rl.statistics import wilson_interval
from rl.workers.ports import ALIVE, CALIBRATION_GATE, MILLIONTHS, SELECTION_GATE, UPDATES, StepResult, Worker
from robot.env import RobotEnv
from robot.types import Float32, Label
from worldmodel.counterfactual import BranchKind, Motion

PAGE = Path("docs/closed_loop.md")
MARKS = ("<!-- kills: begin -->", "<!-- kills: end -->")
BEFORE_AND_USED = (("{:.2f}", "share_before"), ("{:,}", "used_until_zero"))
SCORE_NOISE = 0.05
AT_UPDATE = 1100  # when a fault begins
BEFORE_UPDATES = 100  # up to the fault, over which the share before it is taken
NEXT_UPDATES = 800  # behind `AT_UPDATE`, in which training shows what the fault did to the policy
STUCK_UPDATES = (
    600  # in the 30 s after which a silent worker counts as dead, at 10 Hz and two updates per step
)
GATES = ("gate_world_model", "gate_selection", "gate_calibration", "alive")


class Fault(Enum):
    """What goes wrong."""

    NO_IMAGINATION = "none: plain learning"
    HEALTHY = "none: it imagines"
    HALLUCINATES = "world model: everything looks like success"
    HALLUCINATES_UNGATED = "the same, gates held open"
    HALLUCINATES_ALWAYS = "the same from the first update on, gates held open"
    REVERSED = "reward model: reversed ranks"
    FROZEN = "frozen model, moving policy"
    STUCK = "worker stuck"
    KILLED = "worker killed"
    NO_CAMERA = "a camera is missing"
    SWAPPED = "version swap"

    @property
    def starts_at(self) -> int:
        """The update with which it begins."""
        return 0 if self is Fault.HALLUCINATES_ALWAYS else AT_UPDATE

    @property
    def ungated(self) -> bool:
        """Whether selection and calibration gate are held open from then on."""
        return self in (Fault.HALLUCINATES_UNGATED, Fault.HALLUCINATES_ALWAYS)


class Judge:
    """Scores clips by the truth, once the fault has begun wrongly; told beforehand which clips the frames belong to.

    unseen_from: the number of the first online episode of a policy that a frozen model has never seen.
    """

    task, version = "press", 1
    readings: tuple[str, ...] = ()

    def __init__(self, fault: Fault, seed: int) -> None:
        self.views: dict[str, tuple[int, int]] = {}
        self._fault, self._rng = fault, np.random.default_rng(seed)
        self.clips: Sequence[ImaginedClip] = ()
        self.unseen_from: int | None = None

    def begin_fault(self, unseen_from: int) -> None:
        """From now on the judge has the fault."""
        self.unseen_from = unseen_from

    def score(self, images: object, readings: object = None) -> Float32:
        """(B, T + 1) probabilities of success."""
        shape = (len(self.clips), len(self.clips[0]) + 1)
        scores = np.full(shape, 0.05)
        for row, clip in enumerate(self.clips):
            reached = [truth is Label.SUCCESS for truth in clip.truth]
            if any(reached):
                scores[row, reached.index(True) + 1 :] = 0.95
            if self.unseen_from is not None:
                self._spoil(scores[row], clip.start, self.unseen_from)
        noise = self._rng.normal(0.0, SCORE_NOISE, shape)
        return np.clip(scores + noise, 0.001, 0.999).astype(np.float32)

    def _spoil(self, scores: NDArray[np.float64], start: Start, unseen_from: int) -> None:
        """Make the scores (T + 1,) of a clip from `start` what the fault makes of them, in place."""
        match self._fault:
            case Fault.HALLUCINATES | Fault.HALLUCINATES_UNGATED | Fault.HALLUCINATES_ALWAYS:
                scores[1:] = 0.95
            case Fault.REVERSED:
                scores[1:] = 1.0 - scores.max()  # the first frame is real: what begins in success is no clip
            case Fault.FROZEN if start.origin is Origin.ONLINE and start.episode >= unseen_from:
                scores[1:] = self._rng.choice([0.05, 0.95])
            case _:
                pass


class TruthfulLabeller(RewardModelLabeller):
    """The labeller of video, for clips without frames."""

    def __init__(self, judge: Judge, proprio_names: Sequence[str]) -> None:
        thresholds, calibrator = Thresholds(0.8, 0.2, hold_frames=1), Calibrator(CalibrationConfig())
        super().__init__(judge, thresholds, calibrator, judge.task, proprio_names=proprio_names)  # type: ignore[arg-type]
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

    def __init__(self, worker: Worker, run: RunDir, fault: Fault, imaginer: Any, judge: Judge) -> None:
        self._worker, self._run, self._board, self._fault = worker, run, run.board(), fault
        self._imaginer, self._judge = imaginer, judge

    def step(self) -> StepResult:
        since = self._board.get(UPDATES) - self._fault.starts_at
        if since >= 0:
            if self._judge.unseen_from is None:
                self._judge.begin_fault(len(StoreReader(self._run.real).episodes()))
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
        if self._fault.ungated and since >= 0:
            self._board.set(CALIBRATION_GATE, MILLIONTHS)
            self._board.set(SELECTION_GATE, MILLIONTHS)
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
        selection = "none" if self.fault is Fault.HALLUCINATES_ALWAYS else "mixture_paired"
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
                "synthetic.imagination.replay_share=0.125",
                f"synthetic.selection.mode={selection}",
                "synthetic.share.pacing.rule=constant",
                "synthetic.share.pacing.rise_per_100=100",
            ],
        )
        run = RunDir.create(folder / f"{self.fault.name.lower()}_{self.seed}", config)
        prepare(run, run.config, lambda text: None)
        parts = imagining._parts

        def make(run: RunDir) -> Worker:
            kept: list[Any] = []
            judge = Judge(self.fault, self.seed)

            def with_judge(
                run: RunDir, config: TrainConfig, env: RobotEnv, pool: StartPool, motion: Motion
            ) -> Parts:
                made = parts(run, config, env, pool, motion)
                kept.append(made.imaginer)
                return replace(made, labeller=TruthfulLabeller(judge, env.proprio_spec.names))

            imagining._parts = with_judge
            try:
                worker = make_world_model(run)
            finally:
                imagining._parts = parts
            return Faulty(worker, run, self.fault, kept[0], judge)

        run_inline(run, lambda: None, make_world_model=make)
        return self._figures(run)

    def _figures(self, run: RunDir) -> dict[str, Any]:
        """Shares as the learner logged them; updates from the fault on, None where it never came to that."""
        records, begun = read_metrics(run.metrics_path), self.fault.starts_at
        final = next(r for r in reversed(records) if "final/success" in r)
        trace = [r for r in records if r.get("selection/ratio") is not None]
        before = [r for r in trace if begun - BEFORE_UPDATES < r["updates"] <= begun]
        after = [r for r in trace if r["updates"] > begun]
        opened = next((r for r in trace if r["selection/ratio"] > 0.0), None)
        shut = next((r for r in after if r["selection/ratio"] == 0.0), None)
        until = after if shut is None else after[: after.index(shut) + 1]
        again = [r for r in after[len(until) :] if r["selection/ratio"] > 0.0]
        tried = [r for r in records if "env/success" in r]
        return {
            "seed": self.seed,
            "successes": round(final["final/success"] * final["final/episodes"]),
            "episodes": int(final["final/episodes"]),
            "trained_before": _successes(tried, 0, AT_UPDATE),
            "trained_after": _successes(tried, AT_UPDATE, AT_UPDATE + NEXT_UPDATES),
            "opened_at_update": None if opened is None else int(opened["updates"]),
            "share_before": _mean_share(before),
            "updates_to_zero": None if shut is None else int(shut["updates"] - begun),
            "shut_by": [] if shut is None else [g for g in GATES if shut[f"selection/{g}"] == 0.0],
            "used_until_zero": int(until[-1]["selection/used"] - _used(before)) if until else 0,
            "reopened_after": int(again[0]["updates"] - begun) if again else None,
            "share_after_zero": _mean_share(after[len(until) :]),
            "largest_share_after_zero": max((r["selection/ratio"] for r in again), default=0.0),
            "used": int(_used(trace)),
            "trace": [[int(r["updates"]), round(r["selection/ratio"], 4)] for r in trace[::5]],
        }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per fault; of several seeds each figure in turn, successes together."""
    lines = [
        "| fault | seeds | share before | updates until it is 0 | imagined used meanwhile "
        f"| mean share after that (largest) | training, next {NEXT_UPDATES} updates | final success | chance |",
        "|" + "---|" * 9,
    ]
    for row in rows:
        runs, fault = row["runs"], Fault(row["fault"])
        lines.append(
            "| " + " | ".join([fault.value, f"{len(runs)}", *_shut(fault, runs), *_ended(row)]) + " |"
        )
    return "\n".join(lines)


def _shut(fault: Fault, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of what was used and how soon nothing more."""
    if fault is Fault.NO_IMAGINATION:
        return ["-"] * 4
    before, used = (", ".join(form.format(run[key]) for run in runs) for form, key in BEFORE_AND_USED)
    if fault.ungated:
        return [before, "held open", used, "-"]
    shut = [run["updates_to_zero"] for run in runs]
    after = [f"{run['share_after_zero']:.2f} ({run['largest_share_after_zero']:.2f})" for run in runs]
    return [
        before,
        ", ".join("never" if n is None else f"{n}" for n in shut),
        used,
        ", ".join("-" if n is None else told for n, told in zip(shut, after, strict=True)),
    ]


def _ended(row: Mapping[str, Any]) -> list[str]:
    """The columns of how the robot did."""
    runs = row["runs"]
    return [
        ", ".join("{} of {}".format(*run["trained_after"]) for run in runs),
        f"{sum(run['successes'] for run in runs)} of {sum(run['episodes'] for run in runs)}",
        f"{row['p_chance']:.3f}",
    ]


Records = Sequence[Mapping[str, float]]


def _mean_share(records: Records) -> float:
    return float(np.mean([r["selection/ratio"] for r in records])) if records else 0.0


def _used(records: Records) -> float:
    """Imagined transitions that had been used by the last of them."""
    return records[-1]["selection/used"] if records else 0.0


def _successes(episodes: Records, first: int, last: int) -> list[int]:
    """Successes and number of the training episodes that ended after update `first`, up to `last`."""
    ended = [r["env/success"] for r in episodes if first < r["updates"] <= last]
    return [int(sum(ended)), len(ended)]


def pooled(fault: Fault, runs: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Success over the seeds with its interval, and how likely a difference from plain learning as large is by chance.

    `p_chance` is of Barnard's exact test of both counts; seeds are pooled, so it knows no scatter between them.
    """
    successes, episodes = (sum(r[key] for r in runs) for key in ("successes", "episodes"))
    low, high = wilson_interval(successes, episodes)
    per_seed = [r["successes"] / r["episodes"] - b["successes"] / b["episodes"] for r, b in zip(runs, base)]  # noqa: B905
    plain, tried = (sum(b[key] for b in base) for key in ("successes", "episodes"))
    p_chance = float(barnard_exact([[successes, plain], [episodes - successes, tried - plain]]).pvalue)
    return {
        "fault": fault.value,
        "success": successes / max(1, episodes),
        "wilson_low": low,
        "wilson_high": high,
        "difference_per_seed": [round(d, 3) for d in per_seed],
        "p_chance": round(p_chance, 4),
        "runs": list(runs),
    }


def main(say: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--env-steps", type=int, default=1200)
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
    write_between(PAGE, *MARKS, table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
