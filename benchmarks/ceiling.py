"""What relived experience could be worth at best: tasks where data are short, the simulator itself as world model.

    groundhog bench tasks=[insert_alone] obs=STATE arms=[hil_serl,compute_control,ceiling_policy,...] \
        runs_dir=runs/ceiling results_dir=runs/ceiling_results docs_dir=runs/ceiling_docs
    python -m benchmarks.ceiling [--runs runs/ceiling --results runs/ceiling_results]

With --runs, takes over the finished runs into benchmarks/results/ceiling/<task>_<obs>/<arm>/<seed>.json, each a bench
result with `running_env_steps` and `share_trace` beside. Then writes the tables of docs/closed_loop.md.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl.bench_runs import seeds_cell
from rl.metrics import read_metrics
from rl.pages import write_between
from rl.provenance import RESULTS

LEVEL = 0.9
RUNNING_EPISODES = 20
SEEDS_FOR_T = 4  # with fewer the standard error itself is a guess
TRACE_POINTS = 24
TRACED = ("ratio", "paced", "gate_world_model", "gate_selection", "gate_calibration", "alive")
BASE = "hil_serl"
PAGE = Path("docs/closed_loop.md")
NAMES = {
    "hil_serl": "none",
    "compute_control": "none, 1.5x updates",
    "ceiling_local": "real actions perturbed (s .2, sigma .05)",
    "ceiling_local_large": "real actions perturbed more (s .5, sigma .2)",
    "ceiling_policy": "policy, clips of 8",
    "ceiling_policy_long": "policy, clips of 24",
    "ceiling_failures": "policy, from online episodes that failed",
    "oracle_policy": "policy, clips of 8, begun before the first step",
    "oracle_policy_exact": "the same, imagined batches with their share of successes on average",
    "oracle_policy_rise": "the same, its share grows by .3 in 100 updates",
    "oracle_policy_chance": "the same with other random numbers",
    "oracle_policy_replays": "the same, an eighth of the clips are replays",
    "oracle_policy_clips_of_16": "the same in clips of 16",
    "oracle_policy_clips_of_4": "the same in clips of 4",
    "oracle_paced": "the same, under pacing and selection of `full`, an eighth of the clips replays",
    "oracle_paced_constant": "under those, without pacing",
    "oracle_paced_unselected": "under those, without selection",
    "oracle_paced_neither": "under those, without both",
    "oracle_paced_clips_of_4": "under those, in clips of 4",
    "oracle_paced_more": "under those, 4 times as much imagined",
    "oracle_paced_often": "under those, 4 clips at a time instead of 16",
    "oracle_policy_demo": "D: policy, early, demonstration states only, 8 per real step",
    "ceiling_trains_policy": "D, and imagined states train the policy",
    "ceiling_mixed": "D from demonstration and online states, and imagined states train the policy",
    "ceiling_half": "half policy, half perturbed more, begun before the first step",
    "ceiling_around": "half policy, half perturbed more, 8 per real step, and imagined states train the policy",
    "ceiling_short": "D in clips of 4, and imagined states train the policy",
    "naive": "video, neither pacing nor selection",
    "no_schedule": "video, no pacing",
    "no_selection": "video, no selection",
    "full": "video, the whole loop",
    "full_linear": "video, paced by the linear approximation",
    "full_carried": "video, no pacing, 4 times as much imagined, and imagined states train the policy",
    "full_anchored": "video, and a tenth carried out as anchors",
    "oracle_labels": "video, true labels",
    "ceiling_fresh": "D, newest 1,000 of each sign only, and imagined states train the policy",
}

Result = Mapping[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    kept = RESULTS / "ceiling"
    if arguments.runs is not None:
        take_over(arguments.runs, arguments.results or arguments.runs, kept)
    print(write_tables(kept, "ceiling", table))
    return 0


def read_groups(kept: Path) -> dict[str, dict[str, dict[int, Result]]]:
    """All results under `kept`: by experiment, arm and seed."""
    groups: dict[str, dict[str, dict[int, Result]]] = defaultdict(lambda: defaultdict(dict))
    for path in sorted(kept.glob("*/*/*.json")):
        folder, arm, seed = path.parts[-3:]
        groups[folder][arm][int(Path(seed).stem)] = json.loads(path.read_text())
    return groups


def write_tables(kept: Path, mark: str, make: Callable[[Mapping[str, Mapping[int, Result]]], str]) -> str:
    """What `make` tells of each experiment under `kept`, put between the marks `mark` of the page."""
    told = {folder: make(arms) for folder, arms in sorted(read_groups(kept).items())}
    text = "\n\n".join(f"**{folder}**\n\n{lines}" for folder, lines in told.items() if lines)
    write_between(PAGE, f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->", text)
    return text


def take_over(runs: Path, results: Path, kept: Path) -> None:
    """Copy each bench result, with the measure that only the run's own metrics hold."""
    for path in sorted(results.glob("*/*/*.json")):
        folder, arm, seed = path.parts[-3:]
        metrics = runs / folder / arm / Path(seed).stem / "metrics.jsonl"
        if not metrics.exists():
            continue
        result = json.loads(path.read_text())
        records = read_metrics(metrics)
        result["running_env_steps"] = running_env_steps(records)
        result["share_trace"] = share_trace(records)
        target = kept / folder / arm / seed
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(result, indent=1) + "\n")


def running_env_steps(records: Sequence[Mapping[str, Any]]) -> int | None:
    """Env steps after which the newest 20 training episodes first succeed in 90% of cases; None: never."""
    outcomes: list[float] = []
    for record in records:
        if record.get("env/success") is not None:
            outcomes.append(record["env/success"])
            newest = outcomes[-RUNNING_EPISODES:]
            if len(newest) == RUNNING_EPISODES and np.mean(newest) >= LEVEL:
                return int(record["env_steps"])
    return None


def share_trace(records: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """The imagined share of a batch and what makes it, as the learner measured them; about TRACE_POINTS of a run.

    Each with `env_steps`, `updates`, `ratio`, `paced` (before any gate) and the gates; empty without imagination.
    """
    told = [record for record in records if record.get("selection/ratio") is not None]
    kept = told[:: max(1, len(told) // TRACE_POINTS)]
    return [
        {"env_steps": point["env_steps"], "updates": point["updates"]}
        | {name: round(point[f"selection/{name}"], 4) for name in TRACED}
        for point in kept
    ]


def points(result: Result) -> tuple[list[float], list[float]]:
    """Env steps and success of each evaluation, the final one included."""
    steps = [float(p["env_steps"]) for p in result["curve"]]
    success = [float(p["success"]) for p in result["curve"]]
    if result["env_steps"] > (steps[-1] if steps else -1):
        steps.append(float(result["env_steps"]))
        success.append(float(result["final_success"]))
    return steps, success


def evaluated_env_steps(result: Result) -> float | None:
    """Env steps at which the evaluated success first reaches .9, between two evaluations by a straight line."""
    steps, success = points(result)
    for i, value in enumerate(success):
        if value >= LEVEL:
            if i == 0:
                return steps[0]
            share = (LEVEL - success[i - 1]) / (value - success[i - 1])
            return steps[i - 1] + share * (steps[i] - steps[i - 1])
    return None


def area(result: Result) -> float:
    """Mean success over the run's env steps: the area under the evaluation curve, 0..1."""
    steps, success = points(result)
    return float(np.trapezoid(success, steps) / (steps[-1] - steps[0])) if len(steps) > 1 else math.nan


def table(arms: Mapping[str, Mapping[int, Result]]) -> str:
    """One line per arm; a run that never got there counts as its whole length, so that its mean is a lower bound."""
    lines = [
        "| synthetic data | seeds | trained to .9 at env steps | never | evaluated to .9 at | sustained, each seed "
        "| area | area - none (t) | saved | final success | imagined | used | mean share |",
        "|" + "---|" * 13,
    ]
    base = arms.get(BASE, {})
    for arm in in_order(arms):
        runs = arms[arm]
        trained = {seed: steps_or_end(r, r["running_env_steps"]) for seed, r in runs.items()}
        tested = {seed: steps_or_end(r, evaluated_env_steps(r)) for seed, r in runs.items()}
        never = sum(r["running_env_steps"] is None for r in runs.values())
        both = sorted(set(runs) & set(base))
        gained = [area(runs[seed]) - area(base[seed]) for seed in both]
        cells = [
            NAMES.get(arm, arm),
            seeds_cell(list(runs.values())),
            spread(list(trained.values()), "{:.0f}"),
            f"{never}",
            spread(list(tested.values()), "{:.0f}"),
            ", ".join(str(runs[seed]["sustained_env_steps"] or "-") for seed in sorted(runs)),
            spread([area(r) for r in runs.values()], "{:.3f}"),
            "" if arm == BASE else paired(gained),
            "" if arm == BASE or not both else saved([runs[s] for s in both], [base[s] for s in both]),
            f"{np.mean([r['final_success'] for r in runs.values()]):.0%}",
            f"{np.mean([r['generated'] for r in runs.values()]):.0f}",
            f"{np.mean([r['used'] for r in runs.values()]):.0f}",
            f"{np.mean([r['ratio_mean'] or 0.0 for r in runs.values()]):.2f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def in_order(arms: Collection[str]) -> list[str]:
    """As NAMES has them; those that it does not have at the end."""
    return [name for name in NAMES if name in arms] + sorted(set(arms) - set(NAMES))


def steps_or_end(result: Result, steps: float | None) -> float:
    return float(result["env_steps"]) if steps is None else steps


def spread(values: Sequence[float], form: str) -> str:
    """Mean and standard error over seeds."""
    mean = form.format(float(np.mean(values)))
    if len(values) < 2:
        return mean
    return f"{mean} +- {form.format(float(np.std(values, ddof=1) / math.sqrt(len(values))))}"


def saved(runs: Sequence[Result], base: Sequence[Result]) -> str:
    """Share of the env steps to training success that `runs` need less than `base` on the same seeds.

    A run that never got there counts as its whole length: >= where that is so of `base` alone, <= where of `runs`
    alone, and nothing is bounded, ~, where of both.
    """
    took, was = (
        float(np.mean([steps_or_end(one, one["running_env_steps"]) for one in of])) for of in (runs, base)
    )
    never, never_before = (any(one["running_env_steps"] is None for one in of) for of in (runs, base))
    bound = {(False, False): "", (False, True): ">= ", (True, False): "<= ", (True, True): "~ "}
    return f"{bound[never, never_before]}{1.0 - took / was:.0%}"


def paired(differences: Sequence[float]) -> str:
    """Mean difference over the seeds that both have, its standard error and, from four seeds on, t."""
    if len(differences) < 2:
        return f"{differences[0]:+.3f}" if differences else "-"
    mean, error = (
        float(np.mean(differences)),
        float(np.std(differences, ddof=1) / math.sqrt(len(differences))),
    )
    if len(differences) < SEEDS_FOR_T or error == 0.0:
        return f"{mean:+.3f} +- {error:.3f}"
    return f"{mean:+.3f} +- {error:.3f} ({mean / error:.1f})"


if __name__ == "__main__":
    raise SystemExit(main())
