"""`responses: legacy`: requests and answers of TorchServe's own example."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hf_serve.handlers import tasks
from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongConfig
from hf_serve.handlers.formats import check_config
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.tasks.text_generation import Task as TextGeneration
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.scripts.paths import ARTIFACTS
from tests.modes import cases
from tests.samples import FINE, INPUTS, ODD
from tests.sentences import refused
from tests.serving import Served, explanation_of, read_json

MODES = [mode for mode in modes() if tasks.get(mode).description.wire.legacy_response]
PLAIN = "text/plain; charset=utf-8"
QUESTION = {"question": "Who sings?", "context": "Nina Vogel sings in Paris."}
PAIR = {"text": "Ada", "text_pair": "Nina"}
BEST_TWO = {"inputs": "Ada", "parameters": {"top_k": 2}}
KEYS = {"words", "importances", "delta"}
KEYS_OF_ANSWERS = {
    "words",
    "importances_answer_start",
    "importances_answer_end",
    "delta_start",
    "delta_end",
}
BODIES = {mode: cases(mode).with_text("Nina Vogel sings in Paris.") for mode in MODES}
Old = Callable[[str], Served]
every_mode = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def old_model(served: Callable[..., Served]) -> Old:
    """A model whose YAML selects the old answers."""
    return lambda mode: served(mode, responses="legacy", **cases(mode).settings)


def answer_to(model: Served, body: Any, **headers: str) -> HttpResponse:
    (answer,) = model.dispatcher.dispatch([HttpRequest({"body": body}, headers)], Meter())
    assert answer.status == 200, answer.body
    return answer


def text_of(model: Served, body: Any) -> str:
    answer = answer_to(model, body)
    assert answer.content_type == PLAIN
    return answer.body.decode()


def value_of(answer: HttpResponse) -> Any:
    text = answer.body.decode()
    return text if answer.content_type == PLAIN else read_json(answer.body)


def test_every_mode_of_the_old_example_has_an_old_answer() -> None:
    assert {path.parent.name for path in ARTIFACTS.glob("*/sample_text.txt")} <= set(MODES)


def test_a_text_gets_its_label_only(old_model: Old) -> None:
    model = old_model("sequence_classification")
    (best,) = model.ask(FINE)
    for body in (FINE, FINE.encode(), {"text": FINE, "target": 1}, {"data": FINE, "target": 0}):
        assert text_of(model, body) == best["label"]


def test_every_token_is_returned_with_its_label(old_model: Old) -> None:
    model = old_model("token_classification")
    answer = answer_to(model, f"{{'text': {ODD!r}, 'target': (1, 2)}}".encode())
    assert answer.content_type == "application/json"
    first, *pairs, last = read_json(answer.body)
    tokens = model.ask(ODD, ignore_labels=[])
    assert (first[0], last[0]) == ("[CLS]", "[SEP]")
    assert [label for _, label in pairs] == [token["entity"] for token in tokens]
    known = [(pair[0], token["word"]) for pair, token in zip(pairs, tokens, strict=True)]
    assert {word for word, expected in known if word != expected} == {"[UNK]"}


def test_a_question_gets_its_answer_only(old_model: Old) -> None:
    model = old_model("question_answering")
    assert text_of(model, QUESTION) == model.ask(QUESTION)["answer"]


def test_a_prompt_gets_its_text_and_continuation(old_model: Old) -> None:
    model = old_model("text_generation")
    ((found,),) = [model.ask("Ada")]
    assert text_of(model, {"text": "Ada", "target": 1}) == found["generated_text"]
    assert found["generated_text"].startswith("Ada")


@pytest.mark.parametrize(
    ("mode", "parameters"),
    [
        ("sequence_classification", {"top_k": 2}),
        ("token_classification", {"aggregation_strategy": "simple", "stride": 2}),
        ("question_answering", {"topk": 3}),
        ("text_generation", {"return_full_text": False, "details": True}),
    ],
)
def test_parameters_of_the_yaml_do_not_change_the_format(
    old_model: Old, checkpoint: Any, mode: str, parameters: Any
) -> None:
    settings = {"parameters": parameters, "responses": "legacy", **cases(mode).settings}
    other = Served(checkpoint(mode, family="Bert"), mode, **settings)
    assert answer_to(other, BODIES[mode]) == answer_to(old_model(mode), BODIES[mode])


@every_mode
def test_a_list_gets_a_list_with_errors_in_place(old_model: Old, mode: str) -> None:
    model = old_model(mode)
    first, second = INPUTS[mode][:2]
    answer = answer_to(model, [first, 5, second])
    assert answer.content_type == "application/json"
    one, wrong, two = read_json(answer.body)
    assert wrong["code"] == 400
    alone = [answer_to(model, each) for each in (first, second)]
    assert [one, two] == [value_of(each) for each in alone]


@every_mode
def test_an_explanation_has_only_the_old_keys(old_model: Old, mode: str) -> None:
    model = old_model(mode)
    explanation = read_json(answer_to(model, BODIES[mode], explain="True").body)
    assert explanation.keys() == (KEYS_OF_ANSWERS if mode == "question_answering" else KEYS)
    usual = read_json(answer_to(model, {"inputs": BODIES[mode]}, explain="True").body)
    assert explanation == {key: usual[key] for key in explanation}


@every_mode
def test_hugging_face_bodies_are_answered_as_without_the_setting(
    served: Callable[..., Served], old_model: Old, mode: str
) -> None:
    usual, body = served(mode, **cases(mode).settings), {"inputs": BODIES[mode]}
    assert answer_to(old_model(mode), body) == answer_to(usual, body)


@every_mode
def test_an_error_has_the_format_of_torchserve(old_model: Old, mode: str) -> None:
    ((status, error),) = old_model(mode).post({"text": ""})
    assert (status, error.keys()) == (400, {"code", "type", "message", "error", "error_type"})


@pytest.mark.parametrize(
    ("mode", "fields", "body"),
    [
        ("sequence_classification", {"data": b"Ada"}, "Ada"),
        ("sequence_classification", {"data": b'{"text": "Ada", "target": 1}'}, "Ada"),
        ("sequence_classification", {"text": b"Ada", "target": b"1"}, "Ada"),
        ("sequence_classification", {"text": b"Ada", "text_pair": b"Nina"}, PAIR),
        ("sequence_classification", {"inputs": b"Ada", "parameters": b'{"top_k": 2}'}, BEST_TWO),
        ("question_answering", {name: text.encode() for name, text in QUESTION.items()}, QUESTION),
        ("question_answering", {"inputs": json.dumps(QUESTION).encode()}, {"inputs": QUESTION}),
    ],
)
@pytest.mark.parametrize("explain", ["True", "False"])
def test_a_form_is_answered_as_the_same_body(
    old_model: Old, mode: str, fields: Any, body: Any, explain: str
) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=x", "explain": explain}
    dispatcher = old_model(mode).dispatcher
    (found,) = dispatcher.dispatch([HttpRequest(fields, headers)], Meter())
    if "target" in str(fields) and explain == "True":
        body = {"text": body, "target": 1}
    assert found == answer_to(old_model(mode), body, explain=explain)


def test_a_mode_without_a_legacy_answer_is_refused(monkeypatch: Any) -> None:
    description = TextGeneration.description
    wire = replace(description.wire, legacy_response=None)
    monkeypatch.setattr(TextGeneration, "description", replace(description, wire=wire))
    with refused(WrongConfig, "responses"):
        check_config(
            ModelConfig.parse({"handler": {"mode": "text_generation", "responses": "legacy"}})
        )


def test_the_number_of_a_class_is_no_target_of_a_generated_text(
    served: Callable[..., Served],
) -> None:
    model = served("text_generation", family="GPT2")
    numbered, plain = (
        model.post(explanation_of(body))[0]
        for body in ({"text": "Ada", "target": 1}, {"text": "Ada"})
    )
    assert numbered[0] == plain[0] == 200
    assert numbered[1]["words"] == plain[1]["words"]
