"""Finding: one thing that was looked at, what was measured, and what to do; from the checks to the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np


class Verdict(Enum):
    """PASS; WARN: it works, but look at it; FAIL: do not use it so."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """`remedy`: what to do, where it is not a PASS."""

    what: str
    verdict: Verdict
    measured: str
    remedy: str = ""


def judged(value: float, warn: float, fail: float) -> Verdict:
    """By a value that should be small; one that is not a number fails."""
    if value <= warn:
        return Verdict.PASS
    return Verdict.WARN if value <= fail else Verdict.FAIL


def milliseconds(values: Sequence[float]) -> str:
    """Median and 99th percentile of `values` [s]."""
    median, rare = 1e3 * np.percentile(values, [50, 99])
    return f"{median:.0f} ms (99%: {rare:.0f})"
