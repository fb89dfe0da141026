"""Judges by recorded answers: what is no clear yes or no is unknown, and an endpoint that refuses is named."""

from __future__ import annotations

import base64
import io
import json
import math
import urllib.error
import urllib.request
from collections.abc import Sequence
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as PilImage

from reward_model.interface import RewardModelError
from reward_model.judge import Judge, JudgeConfig, NoAnswer, check_answerable, yes_share
from reward_model.judge_http import EndpointConfig, HttpBackend, data_url
from reward_model.judge_local import LocalBackend
from robot.types import Image, Label
from tests.reward_model.frames import VIEWS, batch, clip

RECORDED = Path(__file__).parent / "recorded"
PICTURES = [np.full((12, 20, 3), 90, np.uint8)]


class Recorded:
    """Answers a request with a recorded body, or an error; keeps what was sent."""

    def __init__(self, answer: bytes | Exception) -> None:
        self.answer = answer
        self.requests: list[urllib.request.Request] = []
        self.timeouts: list[float] = []

    def __call__(self, request: urllib.request.Request, timeout_s: float) -> bytes:
        self.requests.append(request)
        self.timeouts.append(timeout_s)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def recorded(name: str) -> bytes:
    return (RECORDED / f"{name}.json").read_bytes()


def http_error(code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://judge", code, "", Message(), io.BytesIO(recorded("overloaded")))


def backend(answer: bytes | Exception) -> HttpBackend:
    return HttpBackend(EndpointConfig(model="qwen3-vl-4b-instruct"), fetch=Recorded(answer))


def judge(answers: Any, stride: int = 4) -> Judge:
    return Judge(
        answers,
        JudgeConfig(stride=stride),
        task="press",
        instruction="press down the lever",
        views=VIEWS,
        version=1,
    )


def test_the_probability_of_yes_is_its_share_of_yes_and_no_in_any_spelling() -> None:
    """Recorded: yes .70, Yes .10, no .15, NO .02, The .02."""
    assert backend(recorded("yes_logprobs")).probability("done?", PICTURES) == pytest.approx(
        0.8 / 0.97, abs=1e-3
    )


def test_a_server_without_log_probabilities_is_taken_at_its_word() -> None:
    assert backend(recorded("no_text")).probability("done?", PICTURES) == 0.0


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (recorded("chatter"), "garbage"),
        (recorded("overloaded"), "garbage"),
        (b"<html>502 Bad Gateway</html>", "garbage"),
        (b"", "garbage"),
        (b'{"choices": []}', "garbage"),
        (b'{"choices": [{"message": {"content": null}}]}', "garbage"),
        (b'{"choices": [{"message": {"content": "perhaps"}}]}', "garbage"),
        (b'{"choices": [{"logprobs": {"content": [{"token": "yes", "logprob": 9999}]}}]}', "garbage"),
        (TimeoutError("timed out"), "timeout"),
        (urllib.error.URLError(TimeoutError("timed out")), "timeout"),
        (urllib.error.URLError(ConnectionRefusedError()), "unreachable"),
        (ConnectionResetError(), "unreachable"),
        (http_error(503), "http_error"),
        (http_error(429), "http_error"),
    ],
)
def test_no_clear_answer_is_unknown_and_never_zero(answer: bytes | Exception, reason: str) -> None:
    asked = judge(backend(answer))
    prob = asked.score(batch(clip(0, Label.SUCCESS)))
    assert np.isnan(prob).all()
    assert asked.unanswered == {reason: 2}


@pytest.mark.parametrize("code", [400, 401, 404])
def test_a_refusal_that_will_not_change_is_an_error(code: int) -> None:
    with pytest.raises(RewardModelError, match=f"HTTP {code}"):
        judge(backend(http_error(code))).score(batch(clip(0, Label.SUCCESS)))


def test_the_request_is_what_such_endpoints_take() -> None:
    sent = Recorded(recorded("yes_logprobs"))
    config = EndpointConfig(url="http://localhost:8000/v1/", model="m", timeout_s=3.0, min_side=48)
    HttpBackend(config, key="k", fetch=sent).probability("done?", PICTURES)
    request = sent.requests[0]
    assert request.full_url == "http://localhost:8000/v1/chat/completions"
    assert request.get_header("Authorization") == "Bearer k" and sent.timeouts == [3.0]
    assert isinstance(request.data, bytes)
    body = json.loads(request.data)
    assert (body["model"], body["logprobs"], body["temperature"], body["max_tokens"]) == ("m", True, 0, 1)
    picture, question = body["messages"][0]["content"]
    assert question == {"type": "text", "text": "done?"}
    data = base64.b64decode(picture["image_url"]["url"].removeprefix("data:image/png;base64,"))
    assert PilImage.open(io.BytesIO(data)).size == (80, 48)


def test_large_pictures_keep_their_size() -> None:
    data = data_url(np.zeros((300, 400, 3), np.uint8), 256).partition(",")[2]
    assert PilImage.open(io.BytesIO(base64.b64decode(data))).size == (400, 300)


def test_only_http_is_opened() -> None:
    with pytest.raises(ValueError, match="http"):
        EndpointConfig(url="file:///etc/passwd")


class Scripted:
    """Says what it is told to; keeps what it was asked."""

    name = "scripted"

    def __init__(self, *answers: float) -> None:
        self._answers = iter(answers)
        self.asked: list[tuple[str, list[Image]]] = []

    def probability(self, question: str, images: Sequence[Image]) -> float:
        self.asked.append((question, list(images)))
        return next(self._answers)


def test_an_answer_stands_for_the_frames_since_the_one_before() -> None:
    """Ten frames, stride 4: asked about frames 1, 5 and 9, so that the last is always among them."""
    answers = Scripted(0.1, 0.2, 0.9)
    known = clip(0, Label.SUCCESS, length=10)
    prob = judge(answers).score(batch(known))
    np.testing.assert_allclose(prob[0], [0.1] * 2 + [0.2] * 4 + [0.9] * 4, atol=1e-6)
    question, images = answers.asked[1]
    assert "press down the lever" in question
    for index, view in enumerate(VIEWS):
        np.testing.assert_array_equal(images[2 * index], known.images[view][0])
        np.testing.assert_array_equal(images[2 * index + 1], known.images[view][5])


def test_answers_beyond_zero_and_one_are_unknown() -> None:
    asked = judge(Scripted(1.5, float("nan")))
    assert np.isnan(asked.score(batch(clip(0, Label.SUCCESS)))).all()
    assert asked.unanswered == {"garbage": 2}


def test_nothing_is_asked_about_a_dead_camera() -> None:
    images = batch(clip(0, Label.SUCCESS))
    images["side"][0, 7] = 0
    answers = Scripted(0.3)
    prob = judge(answers).score(images)
    assert len(answers.asked) == 1
    assert np.isnan(prob[0, 4:]).all() and (prob[0, :4] == np.float32(0.3)).all()


def test_what_was_asked_is_written_down(tmp_path: Path) -> None:
    judge(Scripted()).save(tmp_path / "judge.json")
    content = json.loads((tmp_path / "judge.json").read_text())
    assert content["judge"] == "scripted" and content["stride"] == 4 and "key" not in content


def test_a_task_without_words_cannot_be_judged() -> None:
    with pytest.raises(RewardModelError, match="no instruction"):
        check_answerable(" ")


def test_words_that_are_neither_are_no_answer() -> None:
    assert yes_share({"Yes": 0.4, " yes": 0.2, "No.": 0.2}) == pytest.approx(0.75)
    for masses in ({"yes": 0.3, "maybe": 0.7}, {}, {"yes": math.nan, "no": 0.9}):
        with pytest.raises(NoAnswer):
            yes_share(masses)


VOCABULARY = ["<pad>", "yes", " yes", "Yes", "no", "No", "the"]


class Inputs(dict[str, torch.Tensor]):
    """A batch as a processor returns it."""

    def to(self, device: torch.device) -> Inputs:
        return self


class Processor:
    """As transformers' processors: a chat template over pictures and text."""

    def __init__(self, vocabulary: list[str]) -> None:
        self.messages: list[Any] = []
        self.tokenizer = SimpleNamespace(
            encode=lambda text, add_special_tokens: [vocabulary.index(text)] if text in vocabulary else [0, 0]
        )

    def apply_chat_template(self, messages: list[Any], **settings: Any) -> Inputs:
        assert settings["add_generation_prompt"] and settings["return_dict"]
        self.messages.append(messages)
        return Inputs(input_ids=torch.zeros(1, 3, dtype=torch.int64))


def local(*probabilities: float) -> tuple[LocalBackend, Processor]:
    """A model whose next word has these probabilities."""
    logits = torch.tensor(probabilities).log().expand(1, 3, -1)
    model = SimpleNamespace(device=torch.device("cpu"))
    processor = Processor(VOCABULARY)

    class Model:
        device = model.device

        def __call__(self, **inputs: torch.Tensor) -> SimpleNamespace:
            return SimpleNamespace(logits=logits)

    return LocalBackend("tiny", Model(), processor), processor


def test_a_local_model_answers_by_the_probability_of_its_next_word() -> None:
    model, processor = local(0.01, 0.3, 0.2, 0.1, 0.2, 0.0, 0.19)
    assert model.probability("done?", PICTURES * 2) == pytest.approx(0.6 / 0.8, abs=1e-6)
    content = processor.messages[0][0]["content"]
    assert [part["type"] for part in content] == ["image", "image", "text"]


def test_a_local_model_that_would_say_something_else_does_not_know() -> None:
    chatty, _ = local(0.01, 0.2, 0.0, 0.0, 0.1, 0.0, 0.69)
    assert np.isnan(judge(chatty).score(batch(clip(0, Label.SUCCESS)))).all()
    broken, _ = local(*[float("nan")] * 7)
    assert np.isnan(judge(broken).score(batch(clip(0, Label.SUCCESS)))).all()


def test_a_tokenizer_without_yes_is_refused() -> None:
    with pytest.raises(RewardModelError, match="no single token"):
        LocalBackend("tiny", SimpleNamespace(), Processor(["the"]))


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(RewardModelError, match="transformers"):
        LocalBackend.load(tmp_path, torch.device("cpu"))
