"""The benchmark's results file: what was measured before is not lost, and what is measured again is replaced."""

from __future__ import annotations

from benchmarks.vla import Row, merged


def row(arm: str, seed: int, success: float, settings: str = "") -> Row:
    place = {"task": "press", "world": "simulator", "judge": "near_miss"}
    return {**place, "arm": arm, "settings": settings, "seed": seed, "success": success}


def test_a_row_replaces_that_of_its_key_and_no_other() -> None:
    known = [row("wmrl", 0, 0.8), row("wmrl", 1, 0.7), row("wmrl", 0, 0.6, "bins40")]
    measured = [row("wmrl", 1, 0.9), row("sft", 0, 0.5)]
    assert merged(known, measured) == [
        row("sft", 0, 0.5),
        row("wmrl", 0, 0.8),
        row("wmrl", 1, 0.9),
        row("wmrl", 0, 0.6, "bins40"),
    ]
