"""A judge behind an OpenAI-compatible endpoint (vLLM, llama.cpp, a hosted model), by the standard library alone."""

from __future__ import annotations

import base64
import io
import json
import math
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image as PilImage

from reward_model.interface import RewardModelError
from reward_model.judge import NO, YES, NoAnswer, plain, yes_share
from robot.types import Image

REFUSED = (400, 401, 403, 404)  # HTTP codes that the same request will get again
MAX_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True)
class EndpointConfig:
    """url: of the API, up to `/v1`. min_side: smaller pictures are enlarged to so many pixels, without smoothing."""

    url: str = "http://localhost:8000/v1"
    model: str = ""
    timeout_s: float = 20.0
    min_side: int = 256

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"judge.url: expected http:// or https://, got {self.url!r}")
        if self.timeout_s <= 0.0 or self.min_side < 1:
            raise ValueError("judge: expected timeout_s > 0 and min_side >= 1")


Fetch = Callable[[urllib.request.Request, float], bytes]


def fetch(request: urllib.request.Request, timeout_s: float) -> bytes:
    """The body of the answer, at most MAX_ANSWER_BYTES of it."""
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        body: bytes = answer.read(MAX_ANSWER_BYTES)
        return body


class HttpBackend:
    """One chat completion of one token per question; P(yes) from its log-probabilities, or the word where none come."""

    def __init__(self, config: EndpointConfig, *, key: str | None = None, fetch: Fetch = fetch) -> None:
        """key: sent as bearer token. fetch: how a request is sent; tests replay recorded answers."""
        self._config, self._key, self._fetch = config, key, fetch

    @property
    def name(self) -> str:
        return self._config.model

    def probability(self, question: str, images: Sequence[Image]) -> float:
        """P(yes); see `Backend`."""
        request = urllib.request.Request(
            self._config.url.rstrip("/") + "/chat/completions",
            data=json.dumps(self._body(question, images)).encode(),
            headers={"Content-Type": "application/json"}
            | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
        )
        try:
            answer = self._fetch(request, self._config.timeout_s)
        except urllib.error.HTTPError as error:
            if error.code in REFUSED:
                raise RewardModelError(
                    f"judge: {self._config.url} refuses with HTTP {error.code}; check judge.url, judge.model "
                    "and the key"
                ) from error
            raise NoAnswer("http_error", str(error.code)) from error
        except TimeoutError as error:
            raise NoAnswer("timeout") from error
        except OSError as error:  # URLError, a reset connection, no route
            late = isinstance(getattr(error, "reason", None), TimeoutError)
            raise NoAnswer("timeout" if late else "unreachable", str(error)) from error
        return read_answer(answer)

    def _body(self, question: str, images: Sequence[Image]) -> dict[str, Any]:
        pictures = [
            {"type": "image_url", "image_url": {"url": data_url(image, self._config.min_side)}}
            for image in images
        ]
        return {
            "model": self._config.model,
            "messages": [{"role": "user", "content": [*pictures, {"type": "text", "text": question}]}],
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": 10,
        }


def read_answer(body: bytes) -> float:
    """P(yes) in a chat completion; raises NoAnswer for anything else than yes and no."""
    try:
        choice = json.loads(body)["choices"][0]
        tokens = (choice.get("logprobs") or {}).get("content") or []
        if tokens:
            tops = tokens[0].get("top_logprobs") or [tokens[0]]
            return yes_share(_masses(tops))
        word = plain(choice["message"]["content"])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise NoAnswer("garbage", repr(error)) from error
    if word not in (YES, NO):
        raise NoAnswer("garbage", word[:40])
    return 1.0 if word == YES else 0.0


def _masses(tops: Sequence[dict[str, Any]]) -> dict[str, float]:
    masses: dict[str, float] = {}
    for top in tops:
        token = str(top["token"])
        masses[token] = masses.get(token, 0.0) + math.exp(float(top["logprob"]))
    return masses


def data_url(image: Image, min_side: int) -> str:
    """(H, W, 3) as a PNG data URL, its shorter side at least `min_side` pixels."""
    picture = PilImage.fromarray(image)
    factor = -(-min_side // min(picture.size))
    if factor > 1:
        size = (picture.width * factor, picture.height * factor)
        picture = picture.resize(size, PilImage.Resampling.NEAREST)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
