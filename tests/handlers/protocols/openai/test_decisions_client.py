"""OpenAI's client and LiteLLM, unmodified, with models in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hf_serve.handlers.http.request import HttpRequest
from tests.e2e.clients import FRAMEWORKS, run_client, run_program
from tests.http_front import front
from tests.samples import FINE, ODD
from tests.sentences import Sentence
from tests.serving import Served, differences

CLASSIFICATION = "sequence_classification"
TEXTS = [FINE, ODD]


def test_openais_client_moderates(served: Callable[..., Served]) -> None:
    model = served(CLASSIFICATION, moderation={"NEGATIVE": "harassment", "POSITIVE": "hate"})
    with front({CLASSIFICATION: model}) as url:
        base_url = f"{url}/{CLASSIFICATION}/1.0/v1"
        found = run_client("decisions_client", base_url=base_url, texts=TEXTS)["moderations"]
    for text, result in zip(TEXTS, found["several"], strict=True):
        own = {each["label"]: each["score"] for each in model.ask(text, top_k=None)}
        expected = {"harassment": own["NEGATIVE"], "hate": own["POSITIVE"]}
        assert not differences(result["category_scores"], expected, 1e-5)
    assert found["flagged"] == [each["flagged"] for each in found["several"]]
    assert not differences(found["single"], found["several"][0]["category_scores"], 1e-5)
    assert found["mistake"]["message"] == Sentence("input[2]")


QUESTIONS = [
    {"type": "predicate", "instructions": "POSITIVE", "name": "praise"},
    {
        "type": "choice",
        "instructions": "Which one?",
        "choices": [{"value": "POSITIVE"}, {"value": "NEGATIVE"}],
    },
    {
        "type": "score",
        "instructions": "How good?",
        "levels": [{"label": "NEGATIVE"}, {"label": "POSITIVE"}],
    },
    {"type": "predicate", "instructions": "It rains."},
]


def test_openais_client_asks_for_decisions(served: Callable[..., Served]) -> None:
    model = served(CLASSIFICATION)
    body = {"input": FINE, "questions": QUESTIONS}
    headers = {"url_path": "v1/decisions", "Content-Type": "application/json"}
    ((_, plain),) = model.post(HttpRequest({"body": body}, headers))
    with front({CLASSIFICATION: model}) as url:
        base_url = f"{url}/{CLASSIFICATION}/1.0/v1"
        found = run_client("decisions_client", base_url=base_url, **body)["decisions"]
    assert [each.removeprefix("AnswerAnswerResource") for each in found["types"]] == [
        "Predicate",
        "Choice",
        "Score",
        "Refusal",
    ]
    assert not differences(found["answers"], plain["answers"], 1e-5)
    assert found["tokens"] == plain["usage"]["total_tokens"]
    assert found["mistake"]["message"] == Sentence("input")


@pytest.mark.nightly
def test_litellm_moderates_and_asks_for_decisions(served: Callable[..., Served]) -> None:
    model = served(CLASSIFICATION, moderation={"NEGATIVE": "harassment", "POSITIVE": "hate"})
    body = {"input": FINE, "questions": QUESTIONS}
    headers = {"url_path": "v1/decisions", "Content-Type": "application/json"}
    ((_, plain),) = model.post(HttpRequest({"body": body}, headers))
    with front({CLASSIFICATION: model}) as url:
        job = {"base_url": f"{url}/{CLASSIFICATION}/1.0/v1", **body}
        found = run_program(FRAMEWORKS, "litellm_decisions_client", job)
    own = {each["label"]: each["score"] for each in model.ask(FINE, top_k=None)}
    (moderated,) = found["moderation"]["results"]
    expected = {"harassment": own["NEGATIVE"], "hate": own["POSITIVE"]}
    scores = moderated["category_scores"]
    assert not differences({name: scores[name] for name in expected}, expected, 1e-5)
    *answers, refusal = found["decision"]["answers"]
    assert not differences(answers, plain["answers"][:3], 1e-5)
    # LiteLLM leaves out why.
    assert refusal["type"] == "refusal"
