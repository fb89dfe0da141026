"""What post-training of a language-conditioned policy is worth per robot execution: five arms, and links of truth.

    python -m benchmarks.vla run --task press --seeds 0       one directory per run, what exists is skipped
    python -m benchmarks.vla run --judge video --world-model <file or run> --reward-model <file> --arms wmrl --seeds 0
    python -m benchmarks.vla run --arms wmrl --settings <name> --set <key=value> ...
    python -m benchmarks.vla collect                          benchmarks/results/vla.json and the table of docs/vla.md

The robot is the simulated one. `world` in each row says who imagined, `judge` who scored; where the world is the
simulator, only the score is wrong, in the way that its name tells. With --judge video both are trained models, and
the policy sees pixels.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl import post_train_vla
from rl.pages import write_between
from rl.provenance import RESULTS, ROOT, header, write, write_json
from rl.statistics import pooled

Row = dict[str, Any]

ARMS = ("sft", "grpo_real", "raw_world_model", "calibrated", "wmrl")
ANCHORED = ("calibrated", "wmrl")
KEY = ("task", "world", "judge", "arm", "settings", "seed")  # of a row
RESULT, PAGE = RESULTS / "vla.json", ROOT / "docs" / "vla.md"
HEAD = "head.json"  # in a run's directory: code, machine and versions that it ran on
LAST = 4  # steps, over which success and scores in training are averaged
PACKAGES = ("torch", "mujoco", "numpy")
START, END = "<!-- vla table: begin -->", "<!-- vla table: end -->"

# What a judge gets wrong. near_miss: a failure that stops near the goal looks almost like a success, as the trained
# reward model's failures do; noise: of each single score.
VIDEO = "video"
JUDGES = {
    "noisy": ["imagination.distortion.noise=0.25"],
    "near_miss": [
        "imagination.distortion.noise=0.1",
        "imagination.distortion.near_miss=0.9",
        "imagination.distortion.near_m=0.05",
    ],
    "lying": ["imagination.distortion.noise=0.1", "imagination.distortion.reversed=true"],
    VIDEO: [],
}
# Few or shaky demonstrations, so that the imitated policy is neither hopeless nor done.
TASKS = {
    "press": ["imitation.episodes=8", "imitation.noise=0.6", "imitation.steps=300"],
    "insert": [
        "imitation.episodes=80",
        "imitation.noise=0.1",
        "imitation.steps=1000",
        "small.hidden=256",
        "small.chunk=3",
        "grpo.learning_rate=0.0003",  # 0.001 loses the imitated millimetres; 0.0001 is no better by 16 steps
    ],
}
COMMON = [
    "grpo.learning_rate=0.001",
    "grpo.kl=0.01",
    "grpo.epochs=4",
    "grpo.minibatch=128",
    "correction.calibration.debias.min_pairs=32",  # one step of executed groups
    "loop.groups=4",
    "loop.group_size=8",
    "loop.save_every=1000",
    "loop.eval_episodes=0",
    "loop.final_eval_episodes=100",
]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "collect"))
    parser.add_argument("--task", choices=tuple(TASKS), default="press")
    parser.add_argument("--judge", choices=tuple(JUDGES), default="near_miss")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument(
        "--world-model", help="with --judge video: a published version of the task, two 64 px views"
    )
    parser.add_argument("--reward-model", help="with --judge video: its file")
    parser.add_argument("--settings", default="", help="name of what --set changes")
    parser.add_argument("--set", nargs="*", default=[], help="more overrides")
    parser.add_argument("--directory", type=Path, default=Path("runs/vla"))
    arguments = parser.parse_args(argv)
    if arguments.judge == VIDEO and not (arguments.world_model and arguments.reward_model):
        parser.error("--judge video needs --world-model and --reward-model")
    if arguments.what == "collect":
        return _collect(arguments.directory)
    for seed in arguments.seeds:
        for arm in arguments.arms:
            code = _run(arguments, arm, seed)
            if code:
                return code
    return 0


def _run(arguments: argparse.Namespace, arm: str, seed: int) -> int:
    name = "-".join(filter(None, (arguments.task, arguments.judge, arm, f"s{seed}", arguments.settings)))
    place = arguments.directory / name
    if (place / "result.json").exists():
        return 0
    overrides = [*COMMON, *TASKS[arguments.task], *_imagined(arguments)]
    if arm != "sft":
        overrides.append(f"loop.steps={arguments.steps}")
    if arm in ANCHORED:
        overrides.append("loop.executed_first=1")
    overrides += arguments.set
    chosen = [f"vla={arm}", f"tasks=[{arguments.task}]", f"seed={seed}", f"name={name}"]
    head = header("vla", "python -m benchmarks.vla run", PACKAGES)  # of the code as it is at the start
    code = post_train_vla.main([*chosen, f"runs_dir={arguments.directory}", *overrides])
    if code == 0:
        write_json(place / HEAD, head)
    return code


def _imagined(arguments: argparse.Namespace) -> list[str]:
    """Who imagines and who judges."""
    if arguments.judge != VIDEO:
        return ["robot.obs=STATE", *JUDGES[arguments.judge]]
    return [
        "robot.obs=PIXELS",
        "imagination.world=VIDEO",
        "imagination.judge=REWARD_MODEL",
        f"imagination.world_models={{{arguments.task}: '{arguments.world_model}'}}",
        f"imagination.reward_models={{{arguments.task}: '{arguments.reward_model}'}}",
    ]


def _collect(directory: Path) -> int:
    """Rows of `directory` in the place of those with the same key; rows measured before stay."""
    measured = list(_rows(directory))
    if not measured:
        print(f"{directory}: no result; run some first", file=sys.stderr)
        return 1
    known = json.loads(RESULT.read_text())["rows"] if RESULT.exists() else []
    rows = merged(known, measured)
    write(RESULT, header("vla", "python -m benchmarks.vla collect", PACKAGES), rows)
    if PAGE.exists():
        write_between(PAGE, START, END, _table(rows))
    return 0


def merged(known: Sequence[Row], measured: Sequence[Row]) -> list[Row]:
    """`known` rows, each replaced by the `measured` one of its key, and the new ones, in the order of the table."""
    of = {tuple(row[name] for name in KEY): row for row in (*known, *measured)}
    return sorted(
        of.values(),
        key=lambda row: (row["task"], row["judge"], row["settings"], ARMS.index(row["arm"]), row["seed"]),
    )


def _rows(directory: Path) -> Iterator[Row]:
    for path in directory.glob("*/result.json"):
        _, judge, _, _, *settings = path.parent.name.split("-")
        (row,) = json.loads(path.read_text())["rows"]
        steps = [
            record
            for record in map(json.loads, (path.parent / "metrics.jsonl").read_text().splitlines())
            if "vla/step" in record
        ]
        gates = _known(steps, f"calibration/{row['task']}/gate")
        drift = _known(steps, "learner/kl")
        yield (
            row
            | {
                "world": VIDEO if judge == VIDEO else "simulator",
                "judge": "reward_model" if judge == VIDEO else judge,
                "settings": "-".join(settings),
                "gate_mean": _mean(gates),
                "kl_last": drift[-1] if drift else None,  # nats per token, from the imitated policy
                "executed_success_last": _mean(
                    _known(steps[-LAST:], "vla/real_success")
                ),  # of samples, not the mode
                "imagined_score_last": _mean(_known(steps[-LAST:], "vla/imagined_score")),
                "commit": json.loads((path.parent / HEAD).read_text())["commit"],
            }
        )


def _known(steps: Sequence[Row], name: str) -> list[float]:
    return [step[name] for step in steps if step.get(name) is not None]


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _table(rows: Sequence[Row]) -> str:
    lines = [
        "| task | world, judge | arm | seeds | success (95%) | robot executions | robot minutes | gate, mean | drift |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    *group, _ = KEY
    for key in dict.fromkeys(tuple(row[name] for name in group) for row in rows):
        task, world, judge, arm, settings = key
        of = [row for row in rows if tuple(row[name] for name in group) == key]
        success = pooled((r["success"], r["episodes"]) for r in of)
        executions = np.mean([r["robot_executions"] for r in of])
        minutes = np.mean([r["robot_seconds"] for r in of]) / 60.0
        gates = _known(of, "gate_mean")
        gate = f"{np.mean(gates):.2f}" if gates and arm in ANCHORED else "-"
        drifts = _known(of, "kl_last")
        drift = f"{np.mean(drifts):.2f}" if drifts else "-"
        name = f"{arm} ({settings})" if settings else arm
        lines.append(
            f"| {task} | {world}, {judge} | {name} | {len(of)} | {success.rate:.3f} "
            f"({success.low:.3f}-{success.high:.3f}) | {executions:.0f} | {minutes:.1f} | {gate} | {drift} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
