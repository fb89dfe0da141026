"""The parts of a world-model worker that depend on who imagines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rl.imagination.clip import Imaginer
from rl.imagination.labels import Labeller


@dataclass(frozen=True)
class Parts:
    """Who imagines, who judges, what is learned meanwhile, and what is still waited for ("": nothing)."""

    imaginer: Imaginer
    labeller: Labeller
    adapt: Callable[[], Mapping[str, float]] = dict
    lacks: Callable[[], str] = str
