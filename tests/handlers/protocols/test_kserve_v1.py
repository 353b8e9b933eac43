"""KServe's V1 as in its documentation; tests/e2e has tests with KServe's own client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.telemetry.metrics import Meter
from tests.handlers.generation.test_chat import CHAT, TEMPLATE
from tests.modes import each_mode
from tests.samples import FINE, INPUTS, ODD, PARAMETERS, explained_modes
from tests.sentences import Sentence
from tests.serving import Served, differences, explanation_of

Model = Callable[..., Served]
MODE = "sequence_classification"
every_mode = pytest.mark.parametrize("mode", each_mode())


def predictions_of(model: Served, **body: Any) -> list[Any]:
    ((status, answer),) = model.post(body)
    assert (status, answer.keys()) == (200, {"predictions"}), answer
    return list(answer["predictions"])


def explanations_of(model: Served, **body: Any) -> list[Any]:
    ((status, answer),) = model.post(explanation_of(body))
    assert (status, answer.keys()) == (200, {"explanations"}), answer
    return list(answer["explanations"])


@every_mode
def test_each_instance_is_answered_as_an_item_of_a_list(served: Model, mode: str) -> None:
    model, given = served(mode), PARAMETERS[mode][0]
    expected = model.ask(INPUTS[mode], **given)
    found = predictions_of(model, instances=INPUTS[mode], parameters=given)
    assert len(found) == len(INPUTS[mode])
    assert not differences(found, expected, 1e-5)
    first = predictions_of(model, instances=INPUTS[mode][:1], parameters=given)
    assert not differences(first, expected[:1], 1e-5)


@pytest.mark.parametrize("mode", each_mode(explained_modes()))
def test_an_explanation_route_gives_explanations(served: Model, mode: str) -> None:
    model, texts = served(mode, explain_timeout=60), INPUTS[mode][:2]
    ((status, expected),) = model.post(explanation_of({"inputs": texts}))
    assert status == 200
    assert not differences(explanations_of(model, instances=texts), expected, 1e-3)


def test_a_page_shows_the_error_of_an_instance_that_cannot_be_read(served: Model) -> None:
    headers = {"explain": "True", "Accept": "text/html"}
    http_request = HttpRequest({"body": {"instances": [{"txt": FINE}, FINE]}}, headers)
    (answer,) = served(MODE, explain_timeout=60).dispatcher.dispatch([http_request], Meter())
    page = answer.body.decode()
    assert answer.status == 200
    assert page.index("The instance has the keys txt; send") < page.index("film")


def test_a_target_is_explained_and_does_not_stop_a_prediction(served: Model) -> None:
    model = served(MODE, explain_timeout=60)
    instances = [{"data": FINE, "target": target} for target in (0, 2)]
    found = explanations_of(model, instances=instances)
    assert [each["target"]["index"] for each in found] == [0, 2]
    predictions = predictions_of(model, instances=instances)
    assert not differences(predictions, model.ask([FINE, FINE]), 1e-5)


def test_an_instance_may_be_a_list_of_columns(served: Model) -> None:
    texts, pair = served(MODE), {"text": FINE, "text_pair": ODD}
    found = predictions_of(texts, instances=[[FINE], [FINE, ODD]])
    assert not differences(found, texts.ask([FINE, pair]), 1e-5)
    ((status, answer),) = texts.post({"instances": [[FINE, ODD, FINE]]})
    assert (status, answer["error"]) == (400, Sentence(3))
    question = {"question": "Who?", "context": "Ada sings."}
    reader = served("question_answering")
    found = predictions_of(reader, instances=[list(question.values())])
    assert not differences(found, [reader.ask(question)], 1e-5)


def test_parameters_of_an_instance_override_those_of_the_body(served: Model) -> None:
    model = served(MODE)
    instances = [FINE, {"inputs": FINE, "parameters": {"top_k": 3}}, {"text": FINE}]
    whole = {"top_k": 2, "function_to_apply": "sigmoid"}
    first, second, third = predictions_of(model, instances=instances, parameters=whole)
    assert not differences(first, third, 1e-5)
    assert [len(first), len(second)] == [2, 3]
    assert not differences(second[:2], first, 1e-5)
    assert not differences(second, model.ask(FINE, top_k=3, function_to_apply="sigmoid"), 1e-5)


def test_a_chat_is_one_instance(served: Model, monkeypatch: Any) -> None:
    model = served("text_generation", family="GPT2")
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", TEMPLATE)
    few = {"max_new_tokens": 4}
    found = predictions_of(model, instances=[CHAT, {"messages": CHAT}], parameters=few)
    assert found == [model.ask(CHAT, **few)] * 2


def test_bodies_of_one_batch_get_their_own_answers(served: Model) -> None:
    model = served(MODE)
    bodies = [{"instances": [FINE, ODD]}, {"inputs": ODD}, {"instances": [{"data": ODD}]}]
    replies = model.post(*bodies)
    assert not differences(
        [list(reply) for reply in replies], [list(model.post(body)[0]) for body in bodies], 1e-5
    )


def test_a_bad_instance_has_its_error_in_its_place(served: Model) -> None:
    model = served(MODE)
    instances = [FINE, "", {"data": ODD}, {"txt": ODD}, {"text": FINE, "parameters": {"topk": 1}}]
    fine, empty, odd, unread, typo = predictions_of(model, instances=instances)
    assert not differences([fine, odd], model.ask([FINE, ODD]), 1e-5)
    assert [each["code"] for each in (empty, unread, typo)] == [400] * 3
    assert unread["message"].startswith("The instance has the keys txt; ")
    assert typo["message"].startswith("parameters: unknown key topk; ")


@pytest.mark.parametrize("instances", [[""], ["", {"txt": FINE}], [{"txt": FINE}, {"txt": ODD}]])
def test_instances_that_all_fail_get_kserves_error(served: Model, instances: Any) -> None:
    ((status, answer),) = served(MODE).post({"instances": instances})
    assert (status, answer.keys()) == (400, {"error"})
    assert isinstance(answer["error"], str)


@pytest.mark.parametrize(
    ("body", "status", "facts"),
    [
        ({"instances": []}, 400, ["instances"]),
        ({"instances": FINE}, 400, ["instances"]),
        ({"instances": None}, 400, ["instances"]),
        ({"instances": ["a"] * 129}, 413, ["instances", "129"]),
        ({"instances": [FINE], "parameters": 5}, 400, ["parameters"]),
        ({"instances": [FINE], "paramters": {}}, 400, ["paramters"]),
        ({"instances": [FINE], "inputs": FINE}, 400, ["inputs"]),
    ],
)
def test_a_body_that_cannot_be_understood_gets_kserves_error(
    served: Model, body: Any, status: int, facts: list[str]
) -> None:
    ((found, answer),) = served(MODE).post(body)
    assert (found, answer.keys()) == (status, {"error"})
    assert answer["error"] == Sentence(*facts)


def test_what_tensorflows_clients_add_is_ignored(served: Model) -> None:
    model = served(MODE)
    body = {"instances": [FINE], "signature_name": "serving_default"}
    assert not differences(predictions_of(model, **body), model.ask([FINE]), 1e-5)


@pytest.mark.parametrize("path", ["v1/models/m:predict", "v1/models/org/m:predict", "anything"])
def test_raw_json_is_answered_on_any_path(served: Model, path: str) -> None:
    model = served(MODE)
    raw = HttpRequest({"body": b'{"instances": ["dull"]}'}, {"url_path": path})
    ((status, answer),) = model.post(raw)
    assert status == 200
    assert not differences(answer["predictions"], model.ask(["dull"]), 1e-5)


@pytest.mark.parametrize("inputs", ["A fine film", ["A fine film", "A dull film"]])
def test_inputs_are_instances_below_the_route(served: Model, inputs: Any) -> None:
    model, headers = served(MODE), {"url_path": "v1/models/M:predict"}
    ((status, answer),) = model.post(HttpRequest({"body": {"inputs": inputs}}, headers))
    instances = inputs if isinstance(inputs, list) else [inputs]
    assert (status, answer) == model.post({"instances": instances})[0]
