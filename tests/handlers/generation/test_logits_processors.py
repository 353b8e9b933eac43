"""Penalties, biases and log probabilities are those of a loop over the model's own forward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import GeneratedToken, Request, TextStream
from tests.samples import FINE, ODD
from tests.sentences import Sentence
from tests.serving import Served

MODE = "text_generation"
FEW: dict[str, Any] = {"max_new_tokens": 12, "return_full_text": False}
PENALTIES: list[dict[str, Any]] = [
    {"frequency_penalty": 0.7},
    {"presence_penalty": 1.5},
    {"frequency_penalty": -0.4, "presence_penalty": -0.5},
    {"logit_bias": {"16": -100, "7": 2.5}},
    {"frequency_penalty": 2, "presence_penalty": 2, "logit_bias": {"16": 3, "399": -1}},
]
Settings = dict[str, Any]


@pytest.fixture(scope="module", params=["GPT2", "Llama"])
def model(request: Any, served: Callable[..., Served]) -> Served:
    return served(MODE, family=request.param)


def prompt_ids(model: Served, text: str) -> list[int]:
    return list(model.engine.task.checkpoint.tokenizer(text)["input_ids"])


def logits_after(model: Served, ids: list[int]) -> torch.Tensor:
    """Return the model's logits of the token after each of some tokens."""
    with torch.inference_mode():
        outputs = model.engine.model.forward({"input_ids": torch.tensor([ids])})
    return outputs["logits"][0].clone()


def likeliest(model: Served, text: str, given: Settings) -> list[int]:
    """Return the tokens that are likeliest under penalties and biases, one after another."""
    ids, new = prompt_ids(model, text), list[int]()
    for _ in range(FEW["max_new_tokens"]):
        logits = logits_after(model, ids + new)[-1]
        for token, count in Counter(new).items():
            logits[token] -= given.get("frequency_penalty", 0) * count
            logits[token] -= given.get("presence_penalty", 0)
        for token, bias in given.get("logit_bias", {}).items():
            logits[int(token)] += bias
        new.append(int(logits.argmax()))
    return new


def tokens_of(model: Served, text: str, **given: Any) -> list[int]:
    """Return the tokens that are generated, the last of which may end the text."""
    (outcome,) = model.ask(text, **FEW, **given, details=True)
    return [token["id"] for token in outcome["details"]["tokens"]]


@pytest.mark.parametrize("given", PENALTIES)
def test_penalties_and_biases_change_the_logits_as_openai_defines(
    model: Served, given: Settings
) -> None:
    for text in (FINE, ODD, "Ada"):
        assert tokens_of(model, text, **given) == likeliest(model, text, given)


def test_prompts_with_other_settings_share_a_batch_and_change_nothing(model: Served) -> None:
    """Also with beams, whose rows change their places."""
    for beams in (1, 2):
        every = [{**FEW, **given, "num_beams": beams} for given in ({}, *PENALTIES)]
        bodies = [
            {"inputs": text, "parameters": each} for text in (FINE, FINE[:-6]) for each in every
        ]
        alone = [model.post(body)[0] for body in bodies]
        assert model.post(*bodies) == alone
        assert len({str(answer) for answer in alone}) > 3
        meter = Meter()
        model.dispatcher.dispatch([HttpRequest({"body": each}, {}) for each in bodies], meter)
        assert meter.counts["forwards"] <= FEW["max_new_tokens"]


def test_several_sequences_of_a_prompt_have_its_settings(model: Served) -> None:
    given = {"do_sample": True, "seed": 3, "num_return_sequences": 3, "temperature": 3.0}
    banned = {str(token): -100 for token in range(200)}
    answers = model.ask("Ada", **FEW, **given, logit_bias=banned, details=True, top_n_tokens=1)
    for answer in answers:
        details = answer["details"]
        assert details["tokens"] and all(token["id"] >= 200 for token in details["tokens"])
        assert len(details["top_tokens"]) == len(details["tokens"])


def close(values: Any) -> Any:
    """Compare to 5e-5: with a cache the model itself computes other last digits."""
    return pytest.approx(values, rel=1e-5, abs=5e-5)


RECORDED: list[Settings] = [
    {},
    {"repetition_penalty": 1.5, "min_new_tokens": 4},
    {"frequency_penalty": 1.2, "logit_bias": {"16": -100}},
    {"do_sample": True, "seed": 5, "temperature": 2.0, "top_k": 4},
]


@pytest.mark.parametrize("given", RECORDED)
def test_log_probabilities_are_those_of_the_model_before_anything_else(
    model: Served, given: Settings
) -> None:
    for text in (FINE, ODD):
        (answer,) = model.ask(text, **FEW, **given, details=True, top_n_tokens=5)
        details, ids = answer["details"], prompt_ids(model, text)
        new = [token["id"] for token in details["tokens"]]
        logprobs = logits_after(model, ids + new).log_softmax(-1)[len(ids) - 1 :]
        pairs = zip(details["tokens"], details["top_tokens"], strict=True)
        for row, (token, top) in zip(logprobs, pairs, strict=False):
            assert token["logprob"] == close(float(row[token["id"]]))
            values, likely = row.topk(5)
            assert [each["id"] for each in top] == likely.tolist()
            assert [each["logprob"] for each in top] == close(values.tolist())
        assert details["prefill"] == []


def test_log_probabilities_do_not_depend_on_the_other_prompts_of_a_batch(model: Served) -> None:
    counts: list[Settings] = [{}, {"top_n_tokens": 20}, {"top_n_tokens": 1}, {"logprobs": False}]
    given = [{**FEW, "details": True, **count, **other} for count in counts for other in RECORDED]
    bodies = [{"inputs": text, "parameters": each} for each in given for text in (FINE, "Ada")]
    alone = [model.post(body)[0] for body in bodies]
    for (status, together), (_, answer) in zip(model.post(*bodies), alone, strict=True):
        assert status == 200
        assert digest(together) == digest(answer)
        assert logprobs_of(together) == pytest.approx(logprobs_of(answer), abs=1e-4)


def digest(answer: Any) -> Any:
    """Return the texts and ids of an answer."""
    details = answer[0]["details"]
    top = [[each["id"] for each in tokens] for tokens in details.get("top_tokens", ())]
    tokens = [(token["id"], token["text"]) for token in details.get("tokens", ())]
    return answer[0]["generated_text"], tokens, top


def logprobs_of(answer: Any) -> list[float]:
    return [token["logprob"] for token in answer[0]["details"].get("tokens", ())]


@pytest.mark.parametrize("stop", [[], ["e"], ["never in it"], [" ", "0"], ["Pa"]])
def test_the_tokens_are_those_of_the_text(model: Served, stop: list[str]) -> None:
    """Also of one that ends within a token, or whose characters have several tokens."""
    for text in (FINE, ODD, "北京 是 中国"):
        given = {"stop": stop, "max_new_tokens": 40, "return_full_text": False, "details": True}
        (answer,) = model.ask(text, **given)
        tokens = answer["details"]["tokens"]
        assert "".join(token["text"] for token in tokens) == answer["generated_text"]
        assert len(tokens) <= answer["details"]["generated_tokens"]


@pytest.mark.parametrize("given", [{}, {"stop": ["e"]}, {"top_n_tokens": 2, "stop": ["zz", "}}"]}])
def test_a_stream_has_the_tokens_of_the_whole_answer_in_parts(
    model: Served, given: Settings
) -> None:
    parts: list[tuple[str, list[GeneratedToken]]] = []
    stream = TextStream(lambda text, tokens: parts.append((text, list(tokens))))
    settings = {"max_new_tokens": 24, "return_full_text": False, "details": True, **given}
    answers: list[Any] = model.engine.predict([Request(FINE, settings, stream=stream)])
    ((answer,),) = answers
    for text, tokens in parts:
        assert tokens and "".join(token.text for token in tokens) == text
    sent = [token for _, tokens in parts for token in tokens]
    whole = answer["details"]["tokens"]
    assert [token.as_json() for token in sent] == whole[: len(sent)]
    assert len(sent) >= min(3, len(whole) - 1)
    if "top_n_tokens" in given:
        top = answer["details"]["top_tokens"]
        assert [token.top_as_json() for token in sent] == top[: len(sent)]


def test_a_token_with_a_part_of_a_character_has_its_bytes(model: Served) -> None:
    for text, part in (("上", list("上".encode())[:1]), ("a", None)):
        first, *_ = prompt_ids(model, text)
        (answer,) = model.ask("Ada", max_new_tokens=1, details=True, logit_bias={str(first): 100})
        (token,) = answer["details"]["tokens"]
        assert (token["id"], token.get("bytes")) == (first, part)


@pytest.mark.parametrize(
    ("given", "status", "facts"),
    [
        ({"frequency_penalty": 3}, 400, ["frequency_penalty", "3"]),
        ({"presence_penalty": -3}, 400, ["presence_penalty", "-3"]),
        ({"logit_bias": {"5": 101}}, 400, ["logit_bias.5", "101"]),
        ({"logit_bias": {"5": "a"}}, 400, ["logit_bias.5", "'a'"]),
        ({"logit_bias": [5]}, 400, ["logit_bias", "[5]"]),
        (
            {"logit_bias": {"-5": 1}},
            400,
            ["-5", "logit_bias"],
        ),
        ({"logit_bias": {"9" * 5000: 1}}, 400, ["logit_bias"]),
        (
            {"logit_bias": {str(token): 1 for token in range(1025)}},
            400,
            ["logit_bias", "1,025", "1,024"],
        ),
        (
            {"logit_bias": {"7": 1, "400": 1}},
            400,
            ["logit_bias", "400", "0", "399"],
        ),
        ({"top_n_tokens": 21}, 400, ["top_n_tokens", "21"]),
        ({"top_logprobs": -1}, 400, ["top_n_tokens", "-1"]),
        (
            {"logprobs": True, "num_beams": 2},
            422,
            ["logprobs", "num_beams", "2"],
        ),
        (
            {"top_n_tokens": 1, "num_beams": 2},
            422,
            ["top_n_tokens", "num_beams", "2"],
        ),
        ({"penalty_alpha": 0.6, "top_k": 4}, 422, ["penalty_alpha"]),
    ],
)
def test_wrong_settings_are_refused(
    served: Callable[..., Served], given: Settings, status: int, facts: list[str]
) -> None:
    model = served(MODE, family="GPT2")
    found, message = model.refuse("Ada", **given)
    assert (found, message) == (status, Sentence(*facts))


def test_details_of_beams_have_no_tokens(model: Served) -> None:
    (answer,) = model.ask("Ada", **FEW, num_beams=2, details=True)
    assert "tokens" not in answer["details"]
