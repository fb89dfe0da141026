"""What a run imagined, for its summary: the share and every gate over time, the queues, and why nothing was used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Records = Sequence[Mapping[str, Any]]
RATIO = "selection/ratio"
GATES = {
    "world-model gate": "selection/gate_world_model",
    "selection gate": "selection/gate_selection",
    "calibration gate": "selection/gate_calibration",
    "alive": "selection/alive",
}
_CLOSED = "calibration/closed_"


def imagined_anything(records: Records) -> bool:
    """Whether the run had somebody who imagines."""
    return any(record.get(RATIO) is not None for record in records)


def describe(records: Records) -> str:
    """One line: how much was imagined, admitted and used; and where the share is 0, which gates are shut and why."""
    generated, admitted, used = (
        int(_last(records, name) or 0)
        for name in ("world_model/generated", "world_model/admitted", "selection/used")
    )
    text = f"imagined {generated} transitions, {admitted} admitted, {used} used"
    ratio = _last(records, RATIO) or 0.0
    if ratio > 0.0:
        return f"{text}; share of a batch at the end {ratio:.1%}"
    return (
        f"{text}; share of a batch at the end 0, as {'; '.join(shut_gates(records)) or 'it has just begun'}"
    )


def shut_gates(records: Records) -> list[str]:
    """The factors of the share that are 0 by the newest metrics, with their reasons."""
    shut = [_reasoned(name, key, records) for name, key in GATES.items() if _last(records, key) == 0.0]
    if _last(records, "selection/paced") == 0.0:
        unsure = _last(records, "selection/uncertainty") == 1.0
        shut.append(f"{'the policy is too unsure' if unsure else 'too few real steps'} (pacing)")
    return shut


def _reasoned(name: str, key: str, records: Records) -> str:
    if key == GATES["alive"]:
        return "the world-model worker does not answer"
    if key == GATES["calibration gate"]:
        newest = next((r for r in reversed(records) if any(n.startswith(_CLOSED) for n in r)), {})
        reasons = [n.removeprefix(_CLOSED).replace("_", " ") for n, v in newest.items() if _closes(n, v)]
        seen = newest.get("calibration/effective_anchors")
        told = ", ".join([*reasons, *([] if seen is None else [f"{seen:.0f} episodes seen"])])
        return f"the {name} is shut ({told or 'nothing was labelled yet'})"
    if key == GATES["selection gate"]:
        held = [
            f"{int(_last(records, f'selection/queue_{sign}') or 0)} {sign}"
            for sign in ("successes", "failures")
        ]
        return f"the {name} is shut (transitions to draw from: {', '.join(held)})"
    gained, copied = (_last(records, f"world_model/held_out_{score}") for score in ("psnr", "copy_psnr"))
    following = _last(records, "world_model/held_out_following")
    if gained is None or copied is None:
        return f"the {name} is shut (no version was measured yet)"
    followed = "not measured" if following is None else f"{following:.2f}"
    return (
        f"the {name} is shut ({gained - copied:+.1f} dB over the copied frame, action following {followed})"
    )


def _closes(name: str, value: Any) -> bool:
    return name.startswith(_CLOSED) and value == 1.0


def draw_share(axes: Any, records: Records) -> None:
    """The share of a batch that is imagined, and the gates that scale it."""
    for name, key in GATES.items():
        _plot(axes, records, key, "-", name, lw=1.0, alpha=0.7)
    _plot(axes, records, RATIO, "-", "imagined share of a batch", lw=2.5, color="black")
    axes.set(ylim=(-0.03, 1.05), title="what is imagined: its share and the gates")
    axes.legend(fontsize=7)


def draw_queues(axes: Any, records: Records) -> None:
    """Transitions that may be drawn, and how many have been imagined and admitted."""
    for sign in ("successes", "failures"):
        _plot(axes, records, f"selection/queue_{sign}", "-", f"queue of {sign}")
    _plot(axes, records, "world_model/generated", "--", "imagined", color="grey")
    _plot(axes, records, "world_model/admitted", ":", "admitted", color="grey")
    axes.set(ylabel="transitions", title="queues")
    axes.legend(fontsize=7)


def _plot(axes: Any, records: Records, name: str, style: str, label: str, **how: Any) -> None:
    points = [(r["updates"], r[name]) for r in records if r.get(name) is not None]
    axes.plot([x for x, _ in points], [y for _, y in points], style, label=label, **how)
    axes.set_xlabel("updates")
    axes.title.set_fontsize(10)


def _last(records: Records, name: str) -> float | None:
    return next((r[name] for r in reversed(records) if r.get(name) is not None), None)
