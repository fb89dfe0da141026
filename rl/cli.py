"""The console script `groundhog`: one word chooses the command, `key=value` pairs configure it."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Callable, Sequence

from robot.interfaces import DeviceError

COMMANDS = {
    "train": "learn a task on the simulated or the real arm; continue with resume=<run>",
    "record": "record demonstrations, scripted or by hand",
    "evaluate": "success rate of a trained policy with its confidence interval",
    "bench": "tasks x arms x seeds, with a table and learning curves",
    "ablate": "replay a recorded run to changed learners, without a robot",
    "show": "an episode as text, contact sheet and film",
    "clone-policy": "a policy by behaviour cloning from recorded data alone, judged on held-out episodes",
    "import-dataset": "a LeRobot dataset becomes a replay store",
    "export-dataset": "a replay store becomes a LeRobot dataset",
    "post-train-vla": "a language-conditioned policy improves in the world model, anchored on the robot",
    "calibration-demo": "what an unchecked judge costs, and what a tenth of real tests puts right",
    "finetune-world-model": "train the world model on a run, a store or a LeRobot dataset, and publish it",
    "evaluate-world-model": "PSNR, SSIM, LPIPS and action following of a world model on held-out clips",
    "audit-world-model": "imagined futures of actions never taken, against the simulator's",
    "train-reward-model": "a success classifier from stored episodes, with thresholds of bounded error",
    "evaluate-reward-model": "how far a reward model, or a larger judge, can be trusted on unseen episodes",
    "check": "is this machine ready: rendering, versions, speed",
    "check-correction": "what the device in your hand says, live, before an arm is told any of it",
    "check-robot": "is a robot ready: cameras, feedback, correction device, a small motion, the stops",
}
MODULES = {"check": "robot.check"}


def usage() -> str:
    lines = [f"  {name:<21} {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: groundhog <command> [key=value ...]      groundhog <command> --help lists the keys",
            "",
            *lines,
            "",
            "Each command is also a module: python -m rl.train key=value ...",
        ]
    )


def _print_usage() -> int:
    print(usage())
    return 0


def piped(body: Callable[[], int]) -> int:
    """Run and flush; exit code 141, as after SIGPIPE, where the reader of the output has left (`| head`)."""
    try:
        code = body()
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at its exit, and would complain there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        return piped(_print_usage) or (0 if arguments else 2)
    name, *rest = arguments
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean `{close[0]}`?" if close else ""
        print(f"groundhog: unknown command {name!r}{hint}\n\n{usage()}", file=sys.stderr)
        return 2
    try:
        module = importlib.import_module(MODULES.get(name, f"rl.{name.replace('-', '_')}"))
    except (DeviceError, ImportError) as error:  # MuJoCo loads OpenGL when it is imported
        if os.environ.get("GROUNDHOG_TRACEBACK"):
            raise
        print(f"groundhog {name}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return int(module.main(rest))


if __name__ == "__main__":
    raise SystemExit(main())
