"""The real reward: every program runs every unit test in an interpreter of its own; nothing is believed on sight."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from reward_model.calibration.demo.programs import Program

UNIT_TESTS: tuple[tuple[str, str], ...] = (  # text, canonical form
    ("hello", "hello"),
    ("Hello World", "hello world"),
    ("  padded  ", "padded"),
    ("two  spaces", "two spaces"),
    ("tab\tand\nline", "tab and line"),
    ("Snake_Case_Name", "snake case name"),
    ("kebab-case", "kebab case"),
    ("dot.dot", "dot dot"),
    ("it's", "its"),
    ("don\u2019t", "dont"),
    ("Cr\u00e8me Br\u00fbl\u00e9e", "creme brulee"),
    ("\u00c9COLE", "ecole"),
    ("cafe\u0301", "cafe"),
    ("Stra\u00dfe", "strasse"),
    ("\ufb01ne", "fine"),
    ("\uff26\uff35\uff2c\uff2c width", "full width"),
    ("no\u00a0break", "no break"),
    (" !?, ", ""),
    ("x\u00b2 + y\u00b2", "x2 y2"),
    ("Room 101, floor 3", "room 101 floor 3"),
)
# The program sees the text alone; its answer comes back as ASCII, whatever the locale.
HARNESS = "import sys\n{source}\nprint(ascii(canonical({text!a})))\n"


class GradingError(RuntimeError):
    """A test that could neither pass nor fail: the grader, not the program, gave up."""


def run_unit_tests(
    programs: Sequence[Program], *, timeout_s: float = 30.0, workers: int | None = None
) -> NDArray[np.bool_]:
    """(programs, tests) bool: which program passes which test; one `python -I -S` for every entry.

    workers: interpreters at one time; default one per usable core. Raises GradingError after `timeout_s`.
    """
    jobs = [(program, *test) for program in programs for test in UNIT_TESTS]
    with ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))) as pool:
        passed = list(pool.map(lambda job: _passes(*job, timeout_s=timeout_s), jobs))
    return np.array(passed).reshape(len(programs), len(UNIT_TESTS))


def _passes(program: Program, text: str, wanted: str, *, timeout_s: float) -> bool:
    command = [sys.executable, "-I", "-S", "-c", HARNESS.format(source=program.source, text=text)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise GradingError(
            f"{program.name}: no answer within {timeout_s} s, so pass or fail is unknown; run on a less busy machine"
        ) from error
    return done.returncode == 0 and done.stdout.rstrip("\n") == ascii(wanted)
