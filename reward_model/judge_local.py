"""A judge on this machine: an image-text-to-text model of the library transformers, imported only here."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image as PilImage

from reward_model.interface import RewardModelError
from reward_model.judge import NO, YES, yes_share
from robot.types import Image

SPELLINGS = ("{}", " {}")  # tokenizers differ in whether a first word carries a blank


class LocalBackend:
    """One forward pass per question; P(yes) from the probabilities of the first word of the answer."""

    def __init__(self, name: str, model: Any, processor: Any) -> None:
        """model, processor: as transformers' AutoModelForImageTextToText and AutoProcessor give them."""
        self.name = name
        self._model, self._processor = model, processor
        self._words = _first_tokens(processor.tokenizer)

    @classmethod
    def load(cls, folder: Path, device: torch.device) -> LocalBackend:
        """The model in `folder`, as `save_pretrained` writes it; nothing is downloaded."""
        if importlib.util.find_spec("transformers") is None:
            raise RewardModelError("judge: the package transformers is missing; pip install transformers")
        if not (folder / "config.json").is_file():
            raise RewardModelError(f"judge: expected a folder with a transformers model, got {folder}")
        transformers = importlib.import_module("transformers")
        settings = {"local_files_only": True, "trust_remote_code": False}
        processor = transformers.AutoProcessor.from_pretrained(folder, **settings)
        model = transformers.AutoModelForImageTextToText.from_pretrained(
            folder, dtype="auto", use_safetensors=True, **settings
        )
        return cls(folder.name, model.to(device).eval(), processor)

    @torch.inference_mode()
    def probability(self, question: str, images: Sequence[Image]) -> float:
        """P(yes); see `Backend`."""
        pictures = [{"type": "image", "image": PilImage.fromarray(image)} for image in images]
        messages = [{"role": "user", "content": [*pictures, {"type": "text", "text": question}]}]
        inputs = self._processor.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        ).to(self._model.device)
        logits = self._model(**inputs).logits[0, -1].float()
        prob = torch.softmax(logits, dim=-1)
        return yes_share({word: float(prob[tokens].sum()) for word, tokens in self._words.items()})


def _first_tokens(tokenizer: Any) -> dict[str, list[int]]:
    """For yes and no, the tokens that are the whole word in some spelling."""
    words: dict[str, list[int]] = {}
    for word in (YES, NO):
        spelled = [s.format(w) for s in SPELLINGS for w in (word, word.capitalize(), word.upper())]
        tokens = [tokenizer.encode(text, add_special_tokens=False) for text in spelled]
        words[word] = sorted({ids[0] for ids in tokens if len(ids) == 1})
        if not words[word]:
            raise RewardModelError(
                f"judge: its tokenizer has no single token for {word!r}; use another model"
            )
    return words
