"""Judge: a larger model that answers questions about pictures, as a RewardModel; no usable answer is unknown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from reward_model.interface import Images, Readings, RewardModelError, blank, check_images
from robot.types import Float32, Image

YES, NO = "yes", "no"
MIN_MASS = 0.5  # of the answer's probability that yes and no must have together; less is no answer


class NoAnswer(RuntimeError):
    """The judge did not answer in time or not as asked; `reason` is one word for the metrics."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class Backend(Protocol):
    """Where a judge's model runs."""

    @property
    def name(self) -> str:
        """The model, for the record."""

    def probability(self, question: str, images: Sequence[Image]) -> float:
        """P(yes) in [0, 1] for a question about pictures (H, W, 3) uint8.

        Raises NoAnswer where there is none, RewardModelError where asking again cannot help.
        """


@dataclass(frozen=True)
class JudgeConfig:
    """What is asked, and how often.

    stride: every so many frames, and at a clip's last frame, one question; its answer stands for the frames since
    the one before, so a success that is shorter may be missed. `{instruction}` in the question is the task's.
    """

    stride: int = 8
    question: str = (
        "The first picture of each camera was taken before, the second now. The robot's task: {instruction}. "
        "Is the task completed in the pictures taken now? Answer with one word, yes or no."
    )

    def __post_init__(self) -> None:
        if self.stride < 1:
            raise ValueError(f"judge.stride: expected >= 1 frames, got {self.stride}")
        if "{instruction}" not in self.question:
            raise ValueError("judge.question: expected the place {instruction} in it")


class Judge:
    """A RewardModel that asks. unanswered: how many questions had no usable answer, by reason."""

    readings: tuple[str, ...] = ()

    def __init__(
        self,
        backend: Backend,
        config: JudgeConfig,
        *,
        task: str,
        instruction: str,
        views: Mapping[str, tuple[int, int]],
        version: int,
    ) -> None:
        """version: change it with the model or the question, since scores are then not comparable."""
        self.config = config
        self.task = task
        self.views = dict(views)
        self.version = version
        self.unanswered: Counter[str] = Counter()
        self._backend = backend
        self._instruction = instruction

    def score(self, images: Images, readings: Readings | None = None) -> Float32:
        """(B, T) answers; NaN where a view is blank or there was no usable answer. It looks at no readings."""
        batch, length = check_images(self.views, images)
        wanted = {view: images[view] for view in self.views}
        prob = np.full((batch, length), np.nan, np.float32)
        dead = blank(wanted)
        for clip in range(batch):
            start = 0
            for end in range(length - 1, -1, -self.config.stride)[::-1]:
                if not (dead[clip, 0] or dead[clip, end]):
                    prob[clip, start : end + 1] = self._ask(
                        [f for frames in wanted.values() for f in (frames[clip, 0], frames[clip, end])]
                    )
                start = end + 1
        prob[dead] = np.nan
        return prob

    def save(self, path: Path) -> None:
        """Write what was asked and of whom, as JSON; a judge's weights are its own."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "judge": self._backend.name,
            "task": self.task,
            "instruction": self._instruction,
            "views": self.views,
            "version": self.version,
            **asdict(self.config),
        }
        beside = path.with_suffix(".part")
        beside.write_text(json.dumps(content, indent=2) + "\n")
        beside.replace(path)

    def _ask(self, pictures: Sequence[Image]) -> float:
        question = self.config.question.format(instruction=self._instruction)
        try:
            answer = self._backend.probability(question, pictures)
        except NoAnswer as silence:
            self.unanswered[silence.reason] += 1
            return float("nan")
        if not 0.0 <= answer <= 1.0:  # NaN as well
            self.unanswered["garbage"] += 1
            return float("nan")
        return answer


def yes_share(masses: Mapping[str, float]) -> float:
    """P(yes | yes or no) from the probabilities of first words; raises NoAnswer where other words dominate."""
    yes = sum(mass for word, mass in masses.items() if plain(word) == YES)
    no = sum(mass for word, mass in masses.items() if plain(word) == NO)
    if not yes + no >= MIN_MASS:
        raise NoAnswer("garbage", f"yes and no have {yes + no:.2f} of the probability")
    return yes / (yes + no)


def plain(word: str) -> str:
    """A word without case, blanks, quotes and punctuation."""
    return word.strip(" \t\n\r.,!:;\"'`*").lower()


def check_answerable(instruction: str) -> None:
    """Raise RewardModelError without an instruction: a judge cannot guess what the task is."""
    if not instruction.strip():
        raise RewardModelError("judge: the task has no instruction in words; record with one, or pass it")
