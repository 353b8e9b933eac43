"""Log probabilities of prompts are the result of one forward pass of the model in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hf_serve.handlers.generation import logits_processors
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request, TextStream
from tests.samples import FINE, ODD
from tests.sentences import Sentence
from tests.serving import Served, read_json

MODE = "text_generation"
SCORED: dict[str, Any] = {"decoder_input_details": True, "details": True, "return_full_text": False}
TEXTS = (FINE, ODD, "Ada")


@pytest.fixture(scope="module", params=["GPT2", "Llama"])
def model(request: Any, served: Callable[..., Served]) -> Served:
    return served(MODE, family=request.param)


def logprobs_of(model: Served, ids: list[int]) -> torch.Tensor:
    """Return the log probabilities of the token after each of some tokens."""
    with torch.inference_mode():
        outputs = model.engine.model.forward({"input_ids": torch.tensor([ids])})
    return outputs["logits"][0].log_softmax(-1)


def close(values: Any) -> Any:
    """Compare to 5e-5: the model itself computes other last digits with a cache."""
    return pytest.approx(values, rel=1e-5, abs=5e-5)


def check(model: Served, text: str, details: Any, top: int = 0) -> None:
    """Compare the tokens of a prompt with a forward pass."""
    ids = list(model.engine.task.checkpoint.tokenizer(text)["input_ids"])
    first, *others = details["prefill"]
    assert [token["id"] for token in details["prefill"]] == ids
    assert first["logprob"] is None
    scores = logprobs_of(model, ids)
    expected = [float(scores[place, token]) for place, token in enumerate(ids[1:])]
    assert [token["logprob"] for token in others] == close(expected)
    better = [int((row > row[token]).sum()) for row, token in zip(scores, ids[1:], strict=False)]
    assert [token["rank"] for token in others] == [1 + count for count in better]
    assert ("prefill_top_tokens" in details) == bool(top)
    for row, likely in zip(scores, details.get("prefill_top_tokens", [[]])[1:], strict=False):
        values, best = row.topk(top)
        assert [each["id"] for each in likely] == best.tolist()
        assert [each["logprob"] for each in likely] == close(values.tolist())


@pytest.mark.parametrize("new", [0, 1, 6])
@pytest.mark.parametrize("top", [0, 3])
def test_a_prompt_has_the_log_probabilities_of_a_forward_pass(
    model: Served, new: int, top: int
) -> None:
    given = {**SCORED, "max_new_tokens": new, "top_n_tokens": top}
    bodies = [{"inputs": text, "parameters": given} for text in TEXTS]
    plain = {"details": True, "top_n_tokens": top, "return_full_text": False}
    for (status, together), text in zip(model.post(*bodies), TEXTS, strict=True):
        (alone,) = model.ask(text, **given)
        assert (status, together) == (200, [alone])
        details = alone["details"]
        check(model, text, details, top)
        assert "".join(token["text"] for token in details["prefill"]).strip() == text.strip()
        assert (len(details["tokens"]), details["generated_tokens"]) == (new, new)
        if new:
            (same,) = model.ask(text, **plain, max_new_tokens=new)
            assert same["generated_text"] == alone["generated_text"]
            assert same["details"]["prefill"] == []
        else:
            assert (alone["generated_text"], details["finish_reason"]) == ("", "length")


def test_prompts_with_and_without_them_share_a_request(model: Served) -> None:
    given: list[dict[str, Any]] = [{}, SCORED, {**SCORED, "max_new_tokens": 0}, {"details": True}]
    bodies = [
        {"inputs": text, "parameters": {"max_new_tokens": 4, **each}}
        for each in given
        for text in TEXTS
    ]
    for (status, (together,)), body in zip(model.post(*bodies), bodies, strict=True):
        ((_, (alone,)),) = model.post(body)
        assert (status, together["generated_text"]) == (200, alone["generated_text"])
        details, same = together.get("details", {}), alone.get("details", {})
        assert details.get("prefill") == same.get("prefill")


def test_every_sequence_of_a_prompt_has_them(model: Served) -> None:
    drawn = {"do_sample": True, "seed": 3, "num_return_sequences": 2, "max_new_tokens": 3}
    for answer in model.ask(FINE, **SCORED, **drawn):
        check(model, FINE, answer["details"])


def test_tokens_in_pieces_are_those_in_one(model: Served, monkeypatch: Any) -> None:
    whole = model.ask(FINE, **SCORED, max_new_tokens=0, top_n_tokens=2)
    monkeypatch.setattr(logits_processors, "SCORED_TOGETHER", 2)
    assert model.ask(FINE, **SCORED, max_new_tokens=0, top_n_tokens=2) == whole


def test_a_prompt_whose_scores_have_no_room_is_refused_alone(
    model: Served, monkeypatch: Any
) -> None:
    vocabulary = len(model.engine.task.checkpoint.tokenizer)
    monkeypatch.setattr(logits_processors, "MAX_PROMPT_SCORES", 6 * vocabulary)
    body = {"parameters": {**SCORED, "max_new_tokens": 2}}
    (short, long) = model.post({"inputs": "Ada", **body}, {"inputs": FINE * 3, **body})
    assert short[0] == 200
    assert (long[0], long[1]["message"]) == (413, Sentence(6))


def test_such_a_prompt_is_not_streamed(model: Served) -> None:
    parts: list[str] = []
    stream = TextStream(lambda text, _: parts.append(text))
    request = Request("Ada", {**SCORED, "max_new_tokens": 4}, stream=stream)
    outcome: Any
    (outcome,) = model.engine.predict([request])
    assert not parts and outcome[0]["details"]["prefill"]


@pytest.mark.parametrize(
    ("given", "status", "facts"),
    [
        ({"max_new_tokens": 0}, 400, ["max_new_tokens", 0]),
        ({"decoder_input_details": True, "num_beams": 2}, 422, ["decoder_input_details", 2]),
        (
            {"decoder_input_details": True, "max_new_tokens": 0, "min_new_tokens": 2},
            400,
            ["min_new_tokens", 2, 0],
        ),
    ],
)
def test_what_excludes_them_is_refused(
    model: Served, given: Any, status: int, facts: list[Any]
) -> None:
    assert model.refuse("Ada", **given) == (status, Sentence(*facts))


@pytest.mark.parametrize("path", ["generate", "generate_stream", ""])
def test_text_generation_inference_has_them_without_a_stream(model: Served, path: str) -> None:
    given = {"inputs": FINE, "parameters": {**SCORED, "max_new_tokens": 2}}
    body = given if path else {**given, "stream": True}
    ((status, answer),) = model.post(HttpRequest({"body": body}, {"url_path": path}))
    if path == "generate":
        check(model, FINE, answer["details"])
    else:
        assert (status, answer["error"]) == (422, Sentence("decoder_input_details"))


def complete(model: Served, /, **body: Any) -> Any:
    headers = {"url_path": "v1/completions"}
    ((status, answer),) = model.post(HttpRequest({"body": {"temperature": 0, **body}}, headers))
    assert status == 200, answer
    return answer


@pytest.mark.parametrize("new", [0, 1])
def test_lm_evaluation_harness_reads_the_log_probability_of_a_continuation(
    model: Served, new: int
) -> None:
    """Its local-completions sends ids of context and continuation, and skips the new token."""
    tokenizer = model.engine.task.checkpoint.tokenizer
    prompts = [list(tokenizer(text)["input_ids"]) for text in TEXTS]
    answer = complete(
        model, prompt=prompts, max_tokens=new, logprobs=1, echo=True, seed=1234, model="any"
    )
    assert answer["usage"] == {
        "prompt_tokens": sum(map(len, prompts)),
        "completion_tokens": new * len(prompts),
        "total_tokens": sum(map(len, prompts)) + new * len(prompts),
    }
    for choice, ids in zip(answer["choices"], prompts, strict=True):
        found, context = choice["logprobs"], max(1, len(ids) // 2)
        assert len(found["tokens"]) == len(found["text_offset"]) == len(ids) + new
        assert (found["token_logprobs"][0], found["top_logprobs"][0]) == (None, None)
        end = -1 if new else None
        scores = logprobs_of(model, ids)
        expected = sum(float(scores[place - 1, ids[place]]) for place in range(context, len(ids)))
        assert sum(found["token_logprobs"][context:end]) == close(expected)
        pairs = zip(found["tokens"][context:end], found["top_logprobs"][context:end], strict=True)
        is_greedy = [token == max(top, key=top.get) for token, top in pairs]
        best = scores.argmax(-1).tolist()
        assert is_greedy == [best[place - 1] == ids[place] for place in range(context, len(ids))]


def test_an_echo_without_new_tokens_is_the_prompt(model: Served) -> None:
    answer = complete(model, prompt=[FINE, "Ada"], max_tokens=0, echo=True)
    assert [choice["text"] for choice in answer["choices"]] == [FINE, "Ada"]
    assert all(choice["logprobs"] is None for choice in answer["choices"])
    assert all(choice["finish_reason"] == "length" for choice in answer["choices"])
    assert answer["usage"]["completion_tokens"] == 0


def test_a_stream_has_the_prompt_with_its_log_probabilities(model: Served) -> None:
    for new in (0, 3):
        body = {"prompt": FINE, "echo": True, "logprobs": 2, "max_tokens": new, "temperature": 0}
        (choice,) = complete(model, **body)["choices"]
        sent: list[Any] = []
        http_request = HttpRequest(
            {"body": {**body, "stream": True}}, {"url_path": "v1/completions"}, sent.append
        )
        (last,) = model.dispatcher.dispatch([http_request], Meter())
        data = b"".join(part.body for part in (*sent, last)).decode().split("\n\n")
        events = [read_json(each[6:].encode()) for each in data if each[6:] not in ("", "[DONE]")]
        parts = [each["choices"][0] for each in events]
        assert "".join(part["text"] for part in parts) == choice["text"]
        tokens = [token for part in parts for token in (part["logprobs"] or {}).get("tokens", ())]
        assert tokens == choice["logprobs"]["tokens"]
