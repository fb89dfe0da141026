"""Views and words as the released model saw them in training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from rl.vla.policy import PolicyError

# Of the released preprocessor_config.json; DINOv2's are ImageNet's, rounded to bfloat16 when they were written.
DINO_MEAN, DINO_STD = (0.484375, 0.455078125, 0.40625), (0.228515625, 0.2236328125, 0.224609375)
SIGLIP_MEAN, SIGLIP_STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
EMPTY_PIECE = "▁"  # stands between the prompt and the actions in Llama's tokens of the training text


def pixels(images: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Images (N, H, W, 3) uint8 for DINOv2 and for SigLIP, each (N, 3, size, size) float32.

    Squeezed to a square, bicubic with antialiasing, rounded to 8 bits as the released processor does.
    """
    scaled = images.permute(0, 3, 1, 2).float()
    if scaled.shape[-2:] != (size, size):
        scaled = F.interpolate(scaled, (size, size), mode="bicubic", antialias=True, align_corners=False)
    scaled = scaled.round().clamp(0.0, 255.0) / 255.0
    return _normalised(scaled, DINO_MEAN, DINO_STD), _normalised(scaled, SIGLIP_MEAN, SIGLIP_STD)


def prompt(instruction: str) -> str:
    """The sentence around an instruction."""
    words = re.sub(r"\s+", " ", instruction).strip().rstrip(".").lower()
    return f"In: What action should the robot take to {words}?\nOut:"


class PromptReader:
    """Instructions to token ids; reads tokenizer.json alone, so that no class or code of a checkpoint matters."""

    def __init__(self, checkpoint: Path, begin: int) -> None:
        """begin: id of the token that every text begins with. Raises PolicyError without a readable tokenizer."""
        from tokenizers import Tokenizer

        path = checkpoint / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise PolicyError(
                f"{path}: cannot be read ({error.strerror}); copy the whole checkpoint"
            ) from error
        except Exception as error:  # the library raises nothing narrower for a broken file
            raise PolicyError(f"{path}: no tokenizer ({error})") from error
        self._begin = begin
        self._suffix = self._tokenizer.token_to_id(EMPTY_PIECE)
        self._known: dict[str, list[int]] = {}

    def ids(self, instruction: str) -> list[int]:
        """Of the whole prompt, the begin token first."""
        if instruction not in self._known:
            ids = [self._begin, *self._tokenizer.encode(prompt(instruction), add_special_tokens=False).ids]
            if self._suffix is not None and ids[-1] != self._suffix:
                ids.append(self._suffix)
            self._known[instruction] = ids
        return self._known[instruction]

    def batch(self, instructions: Sequence[str], device: torch.device) -> tuple[Tensor, Tensor]:
        """ids (B, L) int64 without the begin token, padded on the left with it; real (B, L) bool."""
        rows = [self.ids(instruction)[1:] for instruction in instructions]
        length = max(len(row) for row in rows)
        ids = torch.tensor([[self._begin] * (length - len(row)) + row for row in rows], device=device)
        counts = torch.tensor([len(row) for row in rows], device=device)
        return ids, torch.arange(length, device=device) >= length - counts[:, None]


def _normalised(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    middle, spread = (images.new_tensor(values).view(3, 1, 1) for values in (mean, std))
    return (images - middle) / spread
