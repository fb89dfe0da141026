"""What relived experience on video saves, from pixels where data are short, beside the same learner without it.

    OMP_NUM_THREADS=1 python -m benchmarks.closed_loop --tasks press --arms hil_serl full --seeds 0 1 2

World model and reward model are trained once per task, before the runs and on recordings of the same cell that no run
shares: `--episodes` of them, led as `WIDE` says, half of them in random motion, most of it close to success.
`--anchors` more, from which neither learns, calibrate. What they took is written beside the rows. The runs are those of
`groundhog bench` (resumable, inline, one thread) on the experiments of PRESETS. Writes
benchmarks/results/closed_loop/<experiment>/<arm>/<seed>.json and the tables of
docs/closed_loop.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.ceiling import table, take_over, write_tables
from benchmarks.loop_tables import accounts, links
from benchmarks.reward_model_data import WIDE, record
from rl import bench, finetune_world_model, train_reward_model
from rl.config import load
from rl.provenance import RESULTS, header, write_json
from rl.schemas import TrainConfig
from rl.world_models.inputs import published_path
from rl.world_models.training import MARK
from robot.factory import make_task
from worldmodel.adapt import Versions

PRESETS = {"press": "press_scarce", "insert": "insert_alone", "pick_place": "pick_place_scarce"}
KEPT = RESULTS / "closed_loop"
EXTRA_STEPS = 15  # of a recording, in which a random motion close to success shows what contact does


def prepare(task: str, options: argparse.Namespace) -> list[str]:
    """Overrides that name a world model and a reward model of `task`; makes what is not there yet.

    A call that was interrupted is continued: recordings and a training that was begun go on where they stopped.
    """
    folder, experiment = options.directory / "models" / task, PRESETS[task]
    play, anchors = folder / "play", folder / "anchors"
    world, judge = folder / "world_model", folder / "reward_model.safetensors"
    asked = {name: getattr(options, name) for name in ("episodes", "anchors", "minutes")}
    asked["shares"] = {kind.value: share for kind, share in WIDE.items()}
    asked["extra_steps"], asked["readings"] = EXTRA_STEPS, options.readings
    made, costs = folder / "made_with.json", folder / "costs.json"
    # What models from before there was a choice were made with.
    before = {"extra_steps": 0, "readings": []}
    if made.exists() and before | json.loads(made.read_text()) != asked:
        raise SystemExit(
            f"{folder}: models made with {made.read_text().strip()}, asked for {asked}; choose another --directory"
        )
    if not judge.exists():
        write_json(made, asked)
        config = load("train", [f"experiment={experiment}_pixels"])
        assert isinstance(config, TrainConfig)
        with counted(costs, "record_cpu_s", play):
            record(play, config.robot, options.episodes, 0, WIDE, EXTRA_STEPS)
            record(anchors, config.robot, options.anchors, 1, WIDE, EXTRA_STEPS)
        with counted(costs, "world_model_cpu_s", world):
            train_world_model(play, world, options.minutes)
        with counted(costs, "reward_model_cpu_s", judge):
            hold = make_task(task).spec.hold_steps
            learned = [f"data.paths=[{play}]", f"replay.world_model={published_path(world)}"]
            learned += [f"classifier.readings=[{','.join(options.readings)}]"]
            finish(train_reward_model.main([*learned, f"labels.hold_frames={hold}", f"out={judge}"]))
        head = header("closed_loop/models", "python -m benchmarks.closed_loop", ["torch", "mujoco"])
        write_json(KEPT / experiment / "models.json", {**head, **asked, **json.loads(costs.read_text())})
    return [
        f"synthetic.video.world_model={published_path(world)}",
        f"synthetic.video.reward_model={judge}",
        f"synthetic.video.anchors={anchors}",
        f"synthetic.video.recordings={play}",
    ]


def train_world_model(data: Path, out: Path, minutes: float) -> None:
    """Publish one that has learned from `data` for so many processor minutes, unless one is published there."""
    if Versions(out / "versions").all():
        return
    begun = ["resume=true"] if (out / MARK).exists() else []
    asked = [f"data={data}", f"out={out}", f"cpu_minutes={minutes}", "horizon=12"]
    finish(finetune_world_model.main([*asked, *begun]))


@contextmanager
def counted(costs: Path, name: str, made: Path) -> Iterator[None]:
    """Add the processor seconds of what is done within to `name` of the file `costs`.

    None where they are not known: a process was killed at it, or `made` is older than the account.
    """
    told = json.loads(costs.read_text()) if costs.exists() else {}
    before = told.get(name, None if made.exists() else 0)
    write_json(costs, {**told, name: None})  # for as long as nothing has ended it
    begun = time.process_time()
    try:
        yield
    finally:
        spent = None if before is None else before + round(time.process_time() - begun)
        write_json(costs, {**told, name: spent})


def add_models(parser: argparse.ArgumentParser) -> None:
    """The options that `prepare` reads."""
    parser.add_argument("--episodes", type=int, default=300, help="recordings for the two models")
    parser.add_argument("--anchors", type=int, default=60, help="recordings that calibrate")
    parser.add_argument("--minutes", type=float, default=8.0, help="processor time of the world model")
    parser.add_argument(
        "--readings",
        nargs="*",
        default=["ee_x", "ee_y", "ee_z"],
        help="of the arm, shown to the reward model",
    )
    parser.add_argument("--directory", type=Path, default=Path("runs/closed_loop"))


def finish(code: int) -> None:
    """End with `code` where a command did not succeed."""
    if code:
        raise SystemExit(code)


def main() -> int:
    """Train the models, do the runs, write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list(PRESETS), choices=list(PRESETS))
    parser.add_argument("--arms", nargs="+", default=["hil_serl", "full"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--parallel", type=int, default=1)
    add_models(parser)
    options = parser.parse_args()
    runs, results = options.directory / "runs", options.directory / "results"
    for task in options.tasks:
        models = prepare(task, options)
        finish(
            bench.main(
                [
                    f"tasks=[{PRESETS[task]}]",
                    f"arms=[{','.join(options.arms)}]",
                    f"seeds={options.seeds}".replace(" ", ""),
                    f"train=[{','.join(models)}]",
                    f"parallel={options.parallel}",
                    f"runs_dir={runs}",
                    f"results_dir={results}",
                    f"docs_dir={options.directory / 'docs'}",
                ]
            )
        )
    take_over(runs, results, KEPT)
    write_pages()
    return 0


def write_pages() -> None:
    """The tables of docs/closed_loop.md from the rows: what is saved, what it cost, what each link costs."""
    for mark, make in (("closed loop", table), ("accounts", accounts), ("links", links)):
        print(write_tables(KEPT, mark, make))


if __name__ == "__main__":
    raise SystemExit(main())
