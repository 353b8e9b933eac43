"""TorchServe's own envelope classes around the handler, as its worker uses them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ts.model_loader import TsModelLoader
from ts.protocol.otf_message_handler import create_predict_response
from ts.service import Service

from hf_serve.handlers import tasks
from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.torchserve.worker import Envelope, passed_by_envelope
from hf_serve.handlers.transformers_handler import TransformersHandler
from tests.handlers.test_transformers_handler import context
from tests.modes import cases, each_mode
from tests.samples import FINE, INPUTS, ODD, explained_modes
from tests.serving import Served, differences

JSON = "application/json"
LEGACY = {"responses": "legacy"}
LEGACY_MODES = [mode for mode in modes() if tasks.get(mode).description.wire.legacy_response]
every_mode = pytest.mark.parametrize("mode", each_mode())


class Worker:
    """A handler behind an envelope."""

    def __init__(self, handler: TransformersHandler, envelope: str) -> None:
        self.context = handler.context
        self.handle = TsModelLoader()._load_default_envelope(envelope)(handler.handle).handle

    def send(self, *bodies: Any, kind: str = JSON, explain: bool = False) -> list[tuple[int, Any]]:
        """Return status and content of the answer to each body of a batch."""
        batch = [_request(body, kind, explain) for body in bodies]
        processors, rows, ids = Service.retrieve_data_for_inference(batch)
        self.context.request_processor, self.context.request_ids = processors, ids
        self.context.metrics.request_ids = ids
        found = self.handle(rows, self.context)
        assert len(found) == len(bodies)
        assert create_predict_response(found, ids, "", 200, self.context)
        statuses = [self.context.get_response_status(at)[0] for at in range(len(bodies))]
        return list(zip(statuses, map(_content, found), strict=True))

    def types(self) -> list[str | None]:
        """Return the content type of each answer."""
        count = len(self.context.request_processor)
        return [self.context.get_response_content_type(at) for at in range(count)]


def _request(body: Any, kind: str, explain: bool) -> dict[str, Any]:
    parameter = {"name": "body", "value": body, "contentType": kind}
    headers = {"explain": str(explain), "Content-Type": kind, "url_path": ""}
    encoded = [{"name": name.encode(), "value": value.encode()} for name, value in headers.items()]
    return {"requestId": b"id", "parameters": [parameter], "headers": encoded}


def _content(value: Any) -> Any:
    """Return the content that a client reads of a value that TorchServe sends."""
    if isinstance(value, (str, bytes)):
        text = value if isinstance(value, str) else value.decode()
        return json.loads(text) if text.startswith(("{", "[")) else text
    return json.loads(json.dumps(value, indent=2))


@pytest.fixture(scope="module")
def worker(checkpoint: Callable[..., Path]) -> Callable[..., Worker]:
    """A worker: `worker("kserve", mode, responses="legacy")`."""

    @cache
    def handler(mode: str, **settings: Any) -> TransformersHandler:
        own = {**cases(mode).repeatable, **cases(mode).settings}
        config = {"handler": {"mode": mode, **own, **settings}}
        made = TransformersHandler()
        made.initialize(context(checkpoint(mode, family="Bert"), config))
        return made

    def make(envelope: str, mode: str = "sequence_classification", **settings: Any) -> Worker:
        return Worker(handler(mode, **settings), envelope)

    return make


@pytest.fixture
def plain(served: Callable[..., Served]) -> Callable[..., Any]:
    """The answer of a model to a body, without an envelope."""

    def ask(mode: str, body: Any) -> Any:
        ((status, answer),) = served(mode, family="Bert", **cases(mode).settings).post(body)
        assert status == 200, answer
        return answer

    return ask


@every_mode
def test_instances_of_kserve_get_their_predictions(worker: Any, plain: Any, mode: str) -> None:
    bodies = [{"inputs": INPUTS[mode][0]}, INPUTS[mode][1]]
    sent = {"instances": bodies}
    for body, kind in ((sent, JSON), (json.dumps(sent).encode(), "application/octet-stream")):
        model = worker("kserve", mode)
        ((status, found),) = model.send(body, kind=kind)
        assert (status, model.types()) == (200, [JSON])
        expected = {"predictions": [plain(mode, each) for each in bodies]}
        assert not differences(found, expected, 1e-5)


@pytest.mark.parametrize("mode", each_mode(LEGACY_MODES))
def test_one_instance_of_kserve_is_explained(worker: Any, mode: str) -> None:
    sent = {"instances": [{"data": INPUTS[mode][0]}]}
    ((status, found),) = worker("kserve", mode, **LEGACY).send(sent, explain=True)
    (explanation,) = found["explanations"]
    assert status == 200
    ends = (
        {"delta_start", "delta_end"} if mode == "question_answering" else {"importances", "delta"}
    )
    assert {"words", *ends} <= explanation.keys()


def test_kserve_gets_legacy_labels_if_configured(worker: Any, plain: Any) -> None:
    ((best,), (other,)) = (plain("sequence_classification", text) for text in (FINE, ODD))
    model = worker("kserve", **LEGACY)
    sent = {"instances": [{"data": FINE, "target": 0}, ODD]}
    assert model.send(sent) == [(200, {"predictions": [best["label"], other["label"]]})]
    assert model.send({"instances": [FINE]}) == [(200, {"predictions": [best["label"]]})]


def test_a_wrong_instance_affects_no_other_instance(worker: Any, plain: Any) -> None:
    for name, key in (("kserve", "predictions"), ("json", "predictions")):
        ((status, found),) = worker(name).send({"instances": [FINE, 5, ""]})
        good, *wrong = found[key]
        assert (status, good) == (200, plain("sequence_classification", FINE))
        assert [each["code"] for each in wrong] == [400, 400]


@pytest.mark.parametrize("body", [{"instances": [5]}, {"instances": [5, ""]}])
def test_the_status_is_400_if_all_instances_are_wrong(worker: Any, body: Any) -> None:
    for name in ("kserve", "json"):
        ((status, _),) = worker(name).send(body)
        assert status == 400


@pytest.mark.parametrize("body", [{"text": FINE}, {"instances": {}}, {"instances": "a text"}])
def test_a_body_without_a_list_of_instances_is_refused(worker: Any, body: Any) -> None:
    ((status, found),) = worker("kserve").send(body)
    assert status == 400 and "instances" in json.dumps(found)


@every_mode
def test_json_gives_each_body_its_own_predictions(worker: Any, plain: Any, mode: str) -> None:
    first, second, third = INPUTS[mode][:3]
    # TorchServe's envelope has no instances that are lists.
    first, second = (
        {"inputs": each} if isinstance(each, list) else each for each in (first, second)
    )
    sent = [{"instances": [first, second]}, {"instances": [{"inputs": third}]}]
    model = worker("json", mode)
    found = model.send(*sent)
    expected = [
        {"predictions": [plain(mode, first), plain(mode, second)]},
        {"predictions": [plain(mode, {"inputs": third})]},
    ]
    assert [status for status, _ in found] == [200, 200] and model.types() == [JSON, JSON]
    assert not differences([content for _, content in found], expected, 1e-5)


def test_json_takes_texts_in_base64(worker: Any, plain: Any) -> None:
    def encoded(text: bytes) -> dict[str, str]:
        return {"b64": base64.b64encode(text).decode()}

    texts = [encoded(ODD.encode()), {"text": encoded(b"\xff")}]
    found = [worker("json").send({"instances": [each]})[0] for each in (texts[0], texts[1])]
    assert found[0][1]["predictions"] == [plain("sequence_classification", ODD)]
    assert found[1][0] == 400


@every_mode
def test_each_tensor_of_kservev2_gets_an_answer(worker: Any, plain: Any, mode: str) -> None:
    inputs = INPUTS[mode][0]
    texts = [json.dumps({"inputs": inputs}), json.dumps(inputs) if mode[0] == "q" else inputs]
    model = worker("kservev2", mode)
    ((status, found),) = model.send(tensors(*texts))
    assert (status, model.types(), found["id"]) == (200, [JSON], "7")
    assert [each["name"] for each in found["outputs"]] == ["in-0", "in-1"]
    assert {(each["datatype"], *each["shape"]) for each in found["outputs"]} == {("BYTES", 1)}
    read = [json.loads(each["data"][0]) for each in found["outputs"]]
    assert not differences(read, [plain(mode, {"inputs": inputs}), plain(mode, inputs)], 1e-5)


def test_tensors_of_kservev2_are_explained_and_refused(worker: Any) -> None:
    model = worker("kservev2", **LEGACY)
    ((status, found),) = model.send(tensors(FINE), explain=True)
    explanation = json.loads(found["outputs"][0]["data"][0])
    assert (status, explanation.keys()) == (200, {"words", "importances", "delta"})
    numbers = {"name": "in-0", "shape": [2], "datatype": "INT64", "data": [101, 102]}
    ((status, found),) = model.send({"id": "7", "inputs": [numbers]})
    assert status == 400 and json.loads(found["outputs"][0]["data"][0])["code"] == 400
    ((status, found),) = model.send(tensors(FINE))
    assert found["outputs"][0]["data"][0] in ("NEGATIVE", "NEUTRAL", "POSITIVE")


def tensors(*texts: str) -> dict[str, Any]:
    """Return a body with a tensor for each text."""
    rows = [
        {"name": f"in-{number}", "shape": [1], "datatype": "BYTES", "data": [text]}
        for number, text in enumerate(texts)
    ]
    return {"id": "7", "inputs": rows}


@every_mode
def test_each_body_is_answered_with_its_status(worker: Any, plain: Any, mode: str) -> None:
    inputs = INPUTS[mode][0]
    model = worker("body", mode)
    (good, wrong, other) = model.send({"inputs": inputs}, {"inputs": 5}, inputs)
    assert [good[0], wrong[0], other[0]] == [200, 400, 200]
    assert model.types() == [JSON] * 3
    expected = [plain(mode, {"inputs": inputs}), plain(mode, inputs)]
    assert not differences([good[1], other[1]], expected, 1e-5)
    ((status, explanation),) = model.send({"inputs": inputs}, explain=True)
    explained = mode in explained_modes()
    assert (status, "converged" in explanation) == (200 if explained else 422, explained)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (FINE, "text/plain"),
        (bytearray(FINE.encode()), ""),
        (bytearray(json.dumps({"text": FINE, "target": 1}).encode()), ""),
        ({"data": FINE, "target": 0}, JSON),
    ],
)
def test_bodies_of_the_old_example_are_answered_in_the_body_envelope(
    worker: Any, plain: Any, body: Any, kind: str
) -> None:
    (best,) = plain("sequence_classification", FINE)
    model = worker("body", **LEGACY)
    assert model.send(body, kind=kind) == [(200, best["label"])]
    assert model.types() == [None]


DECODED = pytest.mark.parametrize("decoded", [False, True], ids=["as bytes", "decoded"])


def received(content: Any, *, decoded: bool, kind: str = JSON) -> Any:
    """Return JSON as TorchServe passes it with a value of decode_input_request."""
    sent = content if isinstance(content, bytes) else json.dumps(content).encode()
    try:
        return json.loads(sent) if decoded and kind == JSON else bytearray(sent)
    except ValueError:
        return bytearray(sent)


@DECODED
@pytest.mark.parametrize("kind", [JSON, "application/json; charset=utf-8"])
@pytest.mark.parametrize(
    "content", [FINE, 'a "caf\u00e9"', {"inputs": FINE}, {"inputs": ["a", "b"]}, [[FINE]]]
)
def test_json_in_the_body_envelope_is_read_whoever_parses_it(
    worker: Any, plain: Any, content: Any, kind: str, decoded: bool
) -> None:
    model = worker("body")
    found = model.send(received(content, decoded=decoded, kind=kind), kind=kind)
    expected = worker("body").send(content)
    assert not differences(found, expected, 1e-6) and model.types() == [JSON]
    if content != [[FINE]]:
        assert not differences(found, [(200, plain("sequence_classification", content))], 1e-5)


@DECODED
@pytest.mark.parametrize("content", [b'["a", ', b"a text", b'{"inputs": ', b'"a'])
def test_broken_json_in_the_body_envelope_is_refused(
    worker: Any, content: bytes, decoded: bool
) -> None:
    ((status, found),) = worker("body").send(received(content, decoded=decoded))
    assert status == 400 and found["message"].startswith("The body is not JSON: ")


@DECODED
def test_the_part_of_a_form_in_the_body_envelope_has_its_own_type(decoded: bool) -> None:
    value = received(FINE, decoded=decoded)
    headers = {"data": {"content-type": JSON}, "Content-Type": "multipart/form-data; boundary=b"}
    assert passed_by_envelope([value], [headers], SimpleNamespace())
    envelope = Envelope([value], [headers], tensors=False)
    assert [HttpRequest(*each).content for each in envelope.rows()] == [FINE]


def test_an_empty_body_is_refused(worker: Any) -> None:
    bodies: list[Any] = [{}, b"", None]
    for body in bodies:
        ((status, found),) = worker("body").send(body, kind="")
        assert status == 400 and found["message"].startswith("The ")


@pytest.mark.parametrize("headers", [{"a": "x"}, {"a": {"content-type": ""}}, {}])
def test_rows_of_torchserve_are_not_read_as_items(headers: Any) -> None:
    described = {"b": {"content-type": ""}, "explain": "False"}
    row = {"a": b"1", "b": b"2"}
    both = [{**described, **headers}, {}]
    assert not passed_by_envelope([row, {}], both, SimpleNamespace())
