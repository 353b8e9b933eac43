from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hf_serve.handlers import protocols
from hf_serve.handlers.dispatcher import Dispatcher
from hf_serve.handlers.http.limits import BodyLimits
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse, encode_json
from hf_serve.handlers.protocols.base import BaseProtocol, ParsedRequest
from hf_serve.handlers.tasks.base import BaseTask
from hf_serve.handlers.telemetry.metrics import Meter
from tests.serving import Served, differences, explanation_of, read_json

Model = Callable[..., Served]
MODE = "sequence_classification"
MALFORMED: list[tuple[Any, str]] = [
    (b'{"inputs": "A film"', "The body is not JSON: "),
    (b"\xff\xfe A film", "The body is not UTF-8: "),
    ({"inputs": ""}, "inputs is empty; "),
    ({"inputs": "A film", "parameters": {"topk": 1}}, "parameters: unknown key topk; "),
]
GOOD: list[Any] = [
    b"A fine film",
    {"inputs": "A dull film", "parameters": {"top_k": None}},
    {"text": "The music is lovely", "target": 1},
    b'{"inputs": ["Nina sings", "Ada walks"]}',
    '["Nina sings", "Ada walks"]',
    {"inputs": {"text": "A fine film", "text_pair": "A dull film"}},
    HttpRequest({"text": b"A form"}, {}),
]


def test_of_32_requests_with_four_malformed_28_get_right_answers(served: Model) -> None:
    model = served(MODE)
    http_requests = [GOOD[number % len(GOOD)] for number in range(32)]
    bad = dict(zip(range(7, 32, 8), MALFORMED, strict=True))
    sent = [bad[at][0] if at in bad else each for at, each in enumerate(http_requests)]
    replies = model.post(*sent)
    for at, (status, answer) in enumerate(replies):
        if at in bad:
            assert (status, answer["code"]) == (400, 400)
            assert answer["message"].startswith(bad[at][1])
        else:
            assert status == 200
            assert not differences(answer, model.post(http_requests[at])[0][1], 1e-5)
    assert len({replies[at][1]["message"] for at in bad}) == 4


def test_an_item_of_a_list_that_fails_has_its_error_in_its_place(served: Model) -> None:
    model = served(MODE)
    fine, wrong, dull = model.ask(["A fine film", "", "A dull film"])
    assert wrong["code"] == 400
    assert not differences([fine, dull], model.ask(["A fine film", "A dull film"]), 1e-5)
    assert model.refuse(["", ""])[0] == 400


PREDICTED = {"inputs": "A fine film"}
TOKENIZED = HttpRequest({"body": PREDICTED}, {"url_path": "tokenize"})
DETOKENIZED = HttpRequest({"body": {"tokens": [5]}}, {"url_path": "detokenize"})
EXPLAINED = explanation_of({**PREDICTED, "parameters": {"method": "feature_ablation"}})


@pytest.mark.parametrize(
    ("contents", "calls"),
    [
        ([PREDICTED], ["predict"]),
        ([TOKENIZED], ["tokenize"]),
        ([EXPLAINED], ["explain"]),
        ([EXPLAINED, PREDICTED, DETOKENIZED], ["detokenize", "predict", "explain"]),
        ([{"inputs": "A film", "wrong": 1}], []),
        ([HttpRequest({}, {"describe": "True"})], []),
    ],
)
def test_only_the_calls_of_a_batch_run(
    served: Model, contents: list[Any], calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, made = served(MODE).engine, []

    def spied(name: str) -> Callable[..., Any]:
        run = getattr(engine, name)

        def call(*arguments: Any) -> Any:
            made.append(name)
            return run(*arguments)

        return call

    for name in ("tokenize", "detokenize", "predict", "explain"):
        monkeypatch.setattr(engine, name, spied(name))
    meter = Meter()
    requests = [
        each if isinstance(each, HttpRequest) else HttpRequest({"body": each}, {})
        for each in contents
    ]
    assert len(served(MODE).dispatcher.dispatch(requests, meter)) == len(contents)
    assert made == calls
    assert ("explain" in meter.seconds) == ("explain" in calls)
    assert ("forward" in meter.seconds) == ("predict" in calls or "explain" in calls)


def test_predictions_and_explanations_of_one_batch_are_answered_separately(served: Model) -> None:
    model = served(MODE, explain_timeout=30)
    texts = ["A fine film", "Nina sings in Paris", "dull", "The music is lovely"]
    bodies: list[Any] = [{"inputs": text} for text in texts]
    mixed = [explanation_of(bodies[0]), bodies[1], explanation_of(bodies[2]), bodies[3]]
    together, alone = model.post(*mixed), [model.post(each)[0] for each in mixed]
    assert [status for status, _ in together] == [200] * 4
    assert [("importances" in answer) for _, answer in together] == [True, False, True, False]
    assert not differences(together, alone, 1e-3)


def test_tokens_share_a_batch_with_predictions_and_explanations(served: Model) -> None:
    model = served(MODE, explain_timeout=30)
    body = {"inputs": "A fine film"}
    tokens, ids = (
        HttpRequest({"body": content}, {"url_path": path})
        for content, path in ((body, "tokenize"), ({"tokens": [5, 6]}, "detokenize"))
    )
    requests = [tokens, explanation_of(body), ids, body, tokens]
    together, alone = model.post(*requests), [model.post(each)[0] for each in requests]
    assert [status for status, _ in together] == [200] * 5
    assert not differences([*map(list, together)], [*map(list, alone)], 1e-3)


@pytest.mark.parametrize("path", ["foo", "explain", "v1/models/m:foo", "embed/all/of/it"])
@pytest.mark.parametrize("body", ["A film", {"inputs": "A film"}, {"text": "A film"}])
def test_a_path_that_no_protocol_has_is_not_found(served: Model, path: str, body: Any) -> None:
    request = HttpRequest({"body": body}, {"url_path": path, "Content-Type": "application/json"})
    ((status, answer),) = served(MODE).post(request)
    assert status == 404
    assert answer["message"].startswith(f"There is no path {path} below this model;")


@pytest.mark.parametrize("row", [{}, {"body": ""}, {"body": bytearray()}])
@pytest.mark.parametrize("path", ["unknown", "metrics", "v1/models/m:tune"])
def test_an_unknown_path_without_a_body_is_not_found(
    served: Model, path: str, row: dict[str, Any]
) -> None:
    request = HttpRequest(row, {"url_path": path})
    ((status, answer),) = served(MODE).post(request)
    assert status == answer["code"] == 404


@pytest.mark.parametrize("path", ["", "/", "v1/models/m:predict", "v1/models/m:explain"])
def test_the_paths_of_a_model_itself_are_found(served: Model, path: str) -> None:
    requests = [
        HttpRequest({"body": body}, {"url_path": path})
        for body in ({"inputs": "A film"}, {"instances": ["A film"]})
    ]
    assert [status for status, _ in served(MODE).post(*requests)] == [200, 200]


def test_tokens_do_not_run_the_model(served: Model, monkeypatch: Any) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError

    model = served(MODE)
    monkeypatch.setattr(model.engine.model, "forward", fail)
    monkeypatch.setattr(model.engine.model, "forward_packed", fail)
    paths = {"tokenize": {"prompt": "A film"}, "detokenize": {"tokens": [5]}}
    requests = [HttpRequest({"body": body}, {"url_path": path}) for path, body in paths.items()]
    assert [status for status, _ in model.post(*requests, {"inputs": "A film"})] == [200, 200, 500]


def test_a_failed_explanation_does_not_affect_predictions(served: Model, monkeypatch: Any) -> None:
    def fail(*_: Any) -> Any:
        raise NotImplementedError

    model = served(MODE)
    monkeypatch.setattr(type(model.engine.model), "embeddings", property(fail))
    body = {"inputs": "A fine film"}
    statuses = [status for status, _ in model.post(explanation_of(body), body, body)]
    assert statuses == [500, 200, 200]


def test_a_model_without_explanations_refuses_them_and_predicts(served: Model) -> None:
    model = served(MODE, captum_explanation=False)
    body = {"inputs": "A fine film"}
    (status, why), (fine, _) = model.post(explanation_of(body), body)
    assert (status, fine) == (422, 200)
    assert "captum_explanation: false" in why["message"]


def test_a_score_that_is_not_a_number_is_an_error(served: Model, monkeypatch: Any) -> None:
    model = served(MODE)
    decode = model.engine.task.decode

    def spoil(query: Any, *rest: Any) -> Any:
        return [{"score": float("nan")}] if "spoil" in query.text[0] else decode(query, *rest)

    monkeypatch.setattr(model.engine.task, "decode", spoil)
    assert isinstance(model.engine.task, BaseTask)
    (first, _), (second, _) = model.post({"inputs": "spoil"}, {"inputs": "A fine film"})
    assert (first, second) == (500, 200)


def test_an_empty_batch_has_no_answers(served: Model) -> None:
    assert served(MODE).post() == []


def test_a_response_above_the_limit_of_the_server_is_the_error_of_its_request(
    served: Model,
) -> None:
    engine = served("token_classification").engine
    dispatcher = Dispatcher(engine, limits=BodyLimits(max_response_bytes=2000))
    sent = [{"inputs": "Nina sings in Paris"}, {"inputs": ["Nina sings in Paris"] * 99}]
    both = [HttpRequest({"body": body}, {}) for body in sent]
    pages = [HttpRequest({"body": sent[0]}, {"explain": "True", "Accept": "text/html"})]
    small, large, page = dispatcher.dispatch([*both, *pages], Meter())
    assert small.status == 200
    assert [large.status, page.status] == [413, 413]
    assert read_json(large.body)["message"].startswith("The response has ")
    assert read_json(large.body)["message"].endswith("max_response_size of 2,000; ask for less.")


READY_PATHS = (
    "v1/models/model",
    "v2/health/ready",
    "v2/models/model/ready",
    "v2/models/model/versions/1.0/ready",
    "health",
)


@pytest.mark.parametrize("part", ["accelerator", "engine"])
def test_a_model_that_has_failed_is_ready_on_no_path(
    served: Model, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    model = served("text_generation")
    asked = [HttpRequest({}, {"url_path": path}) for path in READY_PATHS]
    others = [HttpRequest({}, {"url_path": path}) for path in ("v2/health/live", "v1/models")]
    assert {each.status for each in answers(model, asked)} == {200}
    if part == "engine":
        monkeypatch.setattr(type(model.engine.model), "has_failed", True)
    monkeypatch.setattr(model.engine, "device_failed", part == "accelerator")
    assert {each.status for each in answers(model, asked)} == {503}
    assert {each.status for each in answers(model, others)} == {200}
    # The worker ends, and another one starts.
    assert model.engine.device_failed


def answers(model: Served, http_requests: list[HttpRequest]) -> list[HttpResponse]:
    return model.dispatcher.dispatch(http_requests, Meter())


class Echo(BaseProtocol):
    """A format that says nothing about the keys of its bodies or its paths."""

    def recognises(self, http_request: HttpRequest) -> bool:
        content = http_request.content if http_request.has_body else None
        return http_request.path == "v1/chat/completions" or (
            isinstance(content, dict) and "echo" in content
        )

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        return ParsedRequest(http_request)

    def write(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> HttpResponse:
        return HttpResponse(encode_json("echo"))


@pytest.mark.parametrize("path", ["", "v1/chat/completions"])
def test_a_protocol_without_declarations_is_offered_all_bodies_and_paths(
    served: Model, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    known = protocols.kinds()
    monkeypatch.setattr(protocols, "kinds", lambda: [Echo, *known])
    dispatcher = Dispatcher(served(MODE).engine)
    headers = {"Content-Type": "application/json", "url_path": path}
    (response,) = dispatcher.dispatch([HttpRequest({"body": {"echo": 1}}, headers)], Meter())
    assert read_json(response.body) == "echo"
