"""The application finds the model of a request, and answers for the server itself."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from openapi_spec_validator import validate

from hf_serve.handlers import tasks
from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.http.html import HTML
from hf_serve.handlers.protocols.openai.responses import id_prefix
from hf_serve.hosts.asgi.access import ApiKeys
from hf_serve.hosts.asgi.addresses import ABILITIES, ADDRESSES, RESPONSES, Address
from hf_serve.hosts.asgi.backend import Answer, ModelEntry, State
from hf_serve.hosts.asgi.metrics import HttpMetrics
from hf_serve.hosts.asgi.server import ServerSettings, create_application
from tests.handlers.generation.test_chat import TEMPLATE
from tests.hosts.asgi.stand_in import (
    BROKEN,
    EMBEDDER,
    WRITER,
    Recorder,
    ServedBackend,
    ask,
    parts,
    send,
)
from tests.serving import Served

COMPRESSED = gzip.compress(b'{"model": "gpt"}')


def asked(backend: Recorder) -> tuple[str, str, str, bool]:
    """Return model, version and path of the one request, and whether TorchServe has its address."""
    (request,) = backend.requests
    route = request.route
    return route.model, route.version, route.headers.get("url_path", ""), request.is_native


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/v1/embeddings",
        "/v1/decisions",
        "/v1/systemone",
        "/v2/rerank",
        "/tokenize",
        "/score",
        "/v1/score",
        "/classify",
        "/pooling",
    ],
)
@pytest.mark.parametrize("model", ["minilm", "gpt"])
def test_the_body_names_the_model(path: str, model: str) -> None:
    backend = Recorder()
    assert ask(backend, "POST", path, json={"model": model}).status_code == 200
    assert asked(backend) == (model, "", path[1:], False)


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/embed?model=gpt", {}),
        ("/embed", {"headers": {"X-Model": "gpt"}}),
        ("/v1/audio/speech", {"data": {"model": "gpt"}}),
        ("/v1/audio/speech", {"data": {"model": "gpt"}, "files": {"file": b"\0"}}),
        (
            "/v1/embeddings",
            {
                "content": gzip.compress(b'{"model": "gpt"}'),
                "headers": {"Content-Encoding": "gzip"},
            },
        ),
    ],
)
def test_query_header_form_and_compressed_body_name_the_model(path: str, options: Any) -> None:
    backend = Recorder()
    assert ask(backend, "POST", path, **options).status_code == 200
    assert asked(backend)[0] == "gpt"


def test_a_stored_response_is_found_at_the_model_that_made_it(
    served: Callable[..., Served], monkeypatch: Any
) -> None:
    models = {
        name: served("text_generation", stored_responses=stored)
        for name, stored in (("first", 2), ("other", 3))
    }
    for model in models.values():
        monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", TEMPLATE)
    backend = ServedBackend(models)
    body = {"input": "Once", "max_output_tokens": 2}
    made = [ask(backend, "POST", RESPONSES, json={"model": name, **body}) for name in models]
    for name, each in zip(models, made, strict=True):
        assert each.status_code == 200, each.text
        path = f"{RESPONSES}/{each.json()['id']}"
        assert ask(backend, "GET", path).json() == each.json()
        listed = ask(backend, "GET", f"{path}/input_items?limit=1&order=asc").json()
        assert listed["data"][0]["content"] == [{"type": "input_text", "text": "Once"}]
        assert backend.requests[-1].route.model == name
        assert "background" in ask(backend, "POST", f"{path}/cancel").json()["error"]["message"]
        assert ask(backend, "DELETE", path).json()["deleted"] is True
        assert ask(backend, "GET", path).status_code == 404
    unknown = ask(backend, "GET", f"{RESPONSES}/resp_0")
    assert unknown.status_code == 404 and "resp_0" in unknown.json()["error"]["message"]
    not_allowed = ask(backend, "POST", f"{RESPONSES}/resp_0", json={})
    assert (not_allowed.status_code, not_allowed.headers["allow"]) == (405, "GET, DELETE")


def test_a_model_is_not_loaded_for_a_response_that_it_no_longer_has() -> None:
    response_id = id_prefix("idle") + "0"
    backend = Recorder([ModelEntry("idle", "1.0", State.UNLOADED)])
    assert ask(backend, "GET", f"{RESPONSES}/{response_id}").status_code == 404
    assert not backend.requests


def test_the_name_of_an_adapter_is_that_of_its_model() -> None:
    backend = Recorder()
    ask(backend, "POST", "/v1/completions", json={"model": "poems"})
    assert asked(backend)[0] == "gpt"
    backend = Recorder()
    ask(backend, "GET", "/v1/models/poems")
    assert asked(backend) == ("gpt", "", "v1/models/poems", False)


def test_invocations_takes_the_name_of_a_model_as_other_addresses_do() -> None:
    for path, headers in (("/invocations?model=gpt", {}), ("/invocations", {"x-model": "gpt"})):
        backend = Recorder([EMBEDDER, WRITER])
        assert ask(backend, "POST", path, json={}, headers=headers).status_code == 200
        assert asked(backend) == ("gpt", "", "", False)
    answer = ask(Recorder(), "POST", "/invocations", json={})
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("gpt, minilm can answer /invocations; name one")
    backend = Recorder([EMBEDDER, BROKEN])
    assert ask(backend, "POST", "/invocations", json={}).status_code == 200
    assert asked(backend) == ("minilm", "", "", False)


@pytest.mark.parametrize(
    ("path", "body", "shape"),
    [
        ("/v1/chat/completions", {"model": "nobody"}, ["error"]),
        ("/v1/messages", {"model": "nobody"}, ["type", "error"]),
        ("/v2/embed", {"model": "nobody"}, ["message", "detail"]),
        ("/embed?model=nobody", {}, ["error", "error_type"]),
        ("/generate?model=nobody", {}, ["error", "error_type"]),
    ],
)
def test_an_unknown_model_has_status_404_in_the_shape_of_the_api(
    path: str, body: Any, shape: list[str]
) -> None:
    answer = ask(Recorder(), "POST", path, json=body)
    assert (answer.status_code, list(answer.json())) == (404, shape)
    assert "There is no model 'nobody' here; there are gpt, minilm." in answer.text
    if shape == ["error"]:
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("model_not_found", "model")


@pytest.mark.parametrize("name", [None, "tgi", "dummy"])
def test_the_only_model_needs_no_name(name: str | None) -> None:
    backend = Recorder([EMBEDDER])
    body = {"model": name} if name else {}
    assert ask(backend, "POST", "/v1/embeddings", json=body).status_code == 200
    assert asked(backend)[0] == "minilm"


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/embed", "minilm"),
        ("/pooling", "minilm"),
        ("/score", "minilm"),
        ("/generate", "gpt"),
        ("/v1/chat/completions", "gpt"),
    ],
)
def test_the_only_model_that_can_answer_needs_no_name(path: str, model: str) -> None:
    backend = Recorder([EMBEDDER, WRITER, BROKEN])
    assert ask(backend, "POST", path, json={}).status_code == 200
    assert asked(backend)[0] == model


def test_one_of_several_models_has_to_be_named() -> None:
    other = ModelEntry("e5", "1.0", mode="sentence_embedding")
    answer = ask(Recorder([EMBEDDER, other]), "POST", "/embed", json={})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("e5, minilm can answer /embed; name one of them")
    answer = ask(Recorder([EMBEDDER, other]), "POST", "/v1/embeddings", json={})
    assert answer.json()["error"]["param"] == "model"


def test_an_address_that_no_model_answers_has_status_404_unless_one_still_loads() -> None:
    assert ask(Recorder(), "POST", "/rerank", json={}).status_code == 404
    loading = ModelEntry("new", state=State.LOADING)
    assert ask(Recorder([EMBEDDER, loading]), "POST", "/rerank", json={}).status_code == 503


def test_a_model_that_did_not_load_says_why() -> None:
    answer = ask(Recorder([EMBEDDER, BROKEN]), "POST", "/v1/embeddings", json={"model": "broken"})
    assert answer.status_code == 503
    assert "broken is not served: handler.mode is wrong" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/predictions/gpt",
        "/predictions/gpt/2.0/v1/completions",
        "/explanations/minilm",
        "/v1/models/gpt:predict",
        "/v2/models/gpt/infer",
        "/models/gpt/invoke?path=/v1/completions",
        "/invocations?model_name=gpt",
    ],
)
def test_addresses_of_torchserve_are_passed_on(path: str) -> None:
    backend = Recorder()
    assert ask(backend, "POST", path, content=b"Hello").status_code == 200
    assert asked(backend)[3]
    assert (backend.requests[0].address, backend.requests[0].body) == (path, b"Hello")


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/v1/models/gpt", ("gpt", "")),
        ("GET", "/v2/models/gpt", ("gpt", "")),
        ("GET", "/v2/models/gpt/ready", ("gpt", "")),
        ("GET", "/v2/models/gpt/versions/1.0", ("gpt", "1.0")),
        ("POST", "/v2/models/gpt/versions/2/infer", ("gpt", "2.0")),
        ("POST", "/v2/models/gpt/versions/7/infer", ("gpt", "7")),
    ],
)
def test_a_model_answers_about_itself_and_versions_have_an_address(
    method: str, path: str, expected: tuple[str, str]
) -> None:
    backend = Recorder()
    assert ask(backend, method, path).status_code == 200
    assert asked(backend) == (*expected, path[1:], False)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/embeddings", 405),
        ("DELETE", "/predictions/gpt", 405),
        ("POST", "/nothing", 404),
        ("POST", "/v1/nothing", 404),
        ("GET", "/v2/models/nobody", 404),
        ("GET", "/models/nobody", 404),
    ],
)
def test_other_addresses_and_methods_are_refused(method: str, path: str, status: int) -> None:
    backend = Recorder()
    answer = ask(backend, method, path)
    assert (answer.status_code, backend.requests) == (status, [])
    assert "error" in answer.json()


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/embeddings", "POST"),
        ("POST", "/info", "GET"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("PUT", "/ping", "GET, HEAD"),
        ("PUT", "/", "GET, HEAD, POST"),
        ("DELETE", "/predictions/gpt", "GET, POST, PUT"),
    ],
)
def test_the_allowed_methods_are_named(method: str, path: str, allowed: str) -> None:
    answer = ask(Recorder(), method, path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)


def test_a_body_that_is_too_large_is_refused() -> None:
    answer = ask(Recorder(), "POST", "/v1/embeddings", content=b" " * 1001)
    assert answer.status_code == 413
    assert "max_request_size of 1,000" in answer.json()["error"]["message"]


def test_an_error_of_torchserve_gets_the_shape_of_the_api_and_those_of_models_keep_theirs() -> None:
    backend = Recorder()
    own = {"code": 503, "type": "ServiceUnavailableException", "message": "No workers."}
    for body, expected in ((own, "No workers."), ({"error": {"message": "Mine."}}, "Mine.")):
        encoded = json.dumps(body).encode()
        backend.reply = Answer(503, [(b"content-length", b"0")], parts(encoded))
        answer = ask(backend, "POST", "/v1/embeddings", json={"model": "minilm"})
        assert (answer.status_code, answer.json()["error"]["message"]) == (503, expected)


def test_an_error_of_torchserve_keeps_its_shape_except_for_clients_of_open_inference() -> None:
    backend = Recorder()
    own = {"code": 503, "type": "ServiceUnavailableException", "message": "No workers."}
    for path, expected in (
        ("/predictions/gpt", own),
        ("/v1/models/gpt:predict", own),
        ("/v2/models/gpt/infer", {"error": "No workers."}),
    ):
        backend.reply = Answer(503, [], parts(json.dumps(own).encode()))
        assert ask(backend, "POST", path).json() == expected
    of_model = {**own, "error": "Mine.", "error_type": "overloaded"}
    backend.reply = Answer(503, [], parts(json.dumps(of_model).encode()))
    assert ask(backend, "POST", "/v2/models/gpt/infer").json() == of_model


def test_lists_have_states_and_last_errors() -> None:
    backend = Recorder([EMBEDDER, WRITER, BROKEN])
    listed = {each["id"]: each for each in ask(backend, "GET", "/v1/models").json()["data"]}
    assert list(listed) == ["minilm", "gpt", "poems", "broken"]
    assert listed["poems"]["parent"] == "gpt"
    limits = {name: each["max_model_len"] for name, each in listed.items()}
    assert limits == {"minilm": None, "gpt": 512, "poems": 512, "broken": None}
    assert [each["root"] for each in listed.values()] == list(listed)
    assert (listed["minilm"]["mode"], listed["gpt"]["mode"]) == (EMBEDDER.mode, WRITER.mode)
    assert listed["broken"]["state"] == "failed"
    assert listed["broken"]["error"] == "handler.mode is wrong"
    assert ask(backend, "GET", "/models").json()["models"][0]["modelName"] == "broken"
    assert ask(backend, "GET", "/models/gpt").json()[0]["status"] == "ready"
    assert ask(backend, "GET", "/v1/models/broken").json()["ready"] is False


@pytest.mark.parametrize(
    ("state", "ping", "ready"), [(State.READY, 200, 200), (State.LOADING, 500, 503)]
)
def test_health_is_that_of_the_models_that_load(state: State, ping: int, ready: int) -> None:
    backend = Recorder([EMBEDDER, BROKEN, ModelEntry("m", state=state)])
    assert ask(backend, "GET", "/ping").status_code == ping
    assert ask(backend, "GET", "/health").status_code == ready
    assert ask(backend, "GET", "/v2/health/ready").status_code == ready
    assert ask(backend, "GET", "/v2/health/live").status_code == 200
    assert ask(Recorder([BROKEN]), "GET", "/health").status_code == 503


def test_metrics_have_requests_and_those_of_the_back_end() -> None:
    text = ask(Recorder(), "GET", "/metrics").text
    assert "own_total 1" in text
    assert "http_request_seconds" in text


class TestDocumentation:
    def test_the_openapi_document_is_valid_and_has_every_address(self) -> None:
        document = ask(Recorder(), "GET", "/openapi.json").json()
        validate(document)
        assert {each.path for each in ADDRESSES} < set(document["paths"])

    def test_the_page_loads_nothing_from_elsewhere(self) -> None:
        page = ask(Recorder([EMBEDDER, BROKEN]), "GET", "/docs").text
        assert "minilm" in page
        assert "handler.mode is wrong" in page
        assert "http://" not in page
        assert "https://" not in page
        assert "<script" not in page


class TestPage:
    def test_a_browser_gets_it_without_a_key_and_nothing_else(self) -> None:
        answer = ask(Recorder(), "GET", "/", keys=["a key"])
        assert (answer.status_code, answer.headers["content-type"]) == (200, HTML)
        assert ask(Recorder(), "GET", "/v1/models", keys=["a key"]).status_code == 401
        assert ask(Recorder(), "POST", "/", keys=["a key"], json={}).status_code == 401

    def test_its_policy_allows_its_own_script_and_style_alone(self) -> None:
        policy = ask(Recorder(), "GET", "/").headers["content-security-policy"]
        directives = dict(each.split(" ", 1) for each in policy.split("; "))
        assert directives["default-src"] == "'none'"
        assert directives["script-src"].startswith("'sha256-")
        assert directives["style-src"].startswith("'sha256-")
        assert "unsafe" not in policy

    def test_it_loads_nothing_from_elsewhere_and_makes_no_html_of_texts(self) -> None:
        page = ask(Recorder(), "GET", "/").text
        own = page.replace("http://www.w3.org/2000/svg", "")  # the name of the elements of a plot
        assert not re.search("https?://", own)
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", page)


class TestDescription:
    def test_a_model_is_asked_for_its_description_by_a_prediction(self) -> None:
        backend = Recorder()
        backend.reply = Answer(200, [], parts(b'{"mode": "text_generation"}'))
        (found,) = ask(backend, "GET", "/models/gpt?customized=true").json()
        assert (found["modelName"], found["modelVersion"]) == ("gpt", "2.0")
        assert found["customizedMetadata"] == {"mode": "text_generation"}
        assert asked(backend) == ("gpt", "2.0", "describe", False)

    @pytest.mark.parametrize("path", ["/models/gpt", "/models/broken?customized=true"])
    def test_a_model_that_does_not_answer_is_not_asked(self, path: str) -> None:
        backend = Recorder([WRITER, BROKEN])
        (found,) = ask(backend, "GET", path).json()
        assert "customizedMetadata" not in found
        assert backend.requests == []

    def test_an_older_archive_has_none(self) -> None:
        backend = Recorder()
        backend.reply = Answer(404, [], parts(b"{}"))
        (found,) = ask(backend, "GET", "/models/gpt?customized=true").json()
        assert found == {"modelName": "gpt", "modelVersion": "2.0", "status": "ready"}

    def test_a_model_that_is_overloaded_is_an_error(self) -> None:
        backend = Recorder()
        backend.reply = Answer(503, [], parts(b"{}"))
        answer = ask(backend, "GET", "/models/gpt?customized=true")
        assert (answer.status_code, "gpt" in answer.json()["message"]) == (503, True)


def test_times_and_open_requests_are_counted_of_models_that_exist() -> None:
    backend = Recorder()
    metrics = HttpMetrics()
    with metrics.in_progress("gpt"):
        assert b'http_model_requests_in_progress{model="gpt"} 1.0' in metrics.text()
    assert b"http_model_requests_in_progress{" not in metrics.text()
    application = create_application(backend, ServerSettings("", 1, 1, 1000, ApiKeys()))
    for name, status in (("gpt", 200), ("nobody", 404)):
        backend.reply = Answer(status, [], parts(b"{}"))
        send(application, "POST", f"/predictions/{name}", content=b"Hello")
    text = send(application, "GET", "/metrics").text
    assert 'http_model_request_seconds_count{model="gpt"} 1.0' in text
    assert "nobody" not in text


@pytest.mark.parametrize("address", ADDRESSES, ids=lambda address: address.path)
def test_an_address_asks_for_an_ability_that_a_mode_has(address: Address) -> None:
    assert not address.ability or any(address.ability in each for each in ABILITIES.values())


def test_the_abilities_of_modes_are_those_that_their_tasks_declare() -> None:
    declared = {mode: tuple(sorted(tasks.get(mode).description.abilities)) for mode in modes()}
    assert {mode: each for mode, each in declared.items() if each} == ABILITIES


def test_open_webui_chats_with_one_of_two_models_at_one_url(
    served: Callable[..., Served], monkeypatch: Any
) -> None:
    """It lists the models, streams a chat, asks for a title, and embeds documents."""
    models = {"chat": served("text_generation"), "embedder": served("sentence_embedding")}
    monkeypatch.setattr(models["chat"].engine.task.checkpoint.tokenizer, "chat_template", TEMPLATE)
    backend = ServedBackend(models)
    headers = {"Authorization": "Bearer none", "X-OpenWebUI-User-Name": "Ada"}

    def send_json(path: str, **body: Any) -> Any:
        return ask(backend, "POST", path, json=body, headers=headers, max_request_bytes=10_000)

    listed = ask(backend, "GET", "/v1/models", headers=headers).json()
    assert [each["id"] for each in listed["data"]] == ["chat", "embedder"]
    own = {
        "params": {},
        "features": {"web_search": False},
        "variables": {"{{USER_NAME}}": "Ada"},
        "session_id": "s1",
        "chat_id": "c1",
        "id": "m1",
        "background_tasks": {"title_generation": True},
        "tool_servers": [],
        "metadata": {"chat_id": "c1", "features": {"memory": True}, "files": None},
    }
    chat = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}
    streamed = send_json(
        "/v1/chat/completions", **chat, **own, stream=True, stream_options={"include_usage": True}
    )
    assert streamed.status_code == 200, streamed.text
    *chunks, last = [each.removeprefix("data: ") for each in streamed.text.strip().split("\n\n")]
    usage = json.loads(chunks[-1])
    assert (last, usage["choices"]) == ("[DONE]", [])
    assert usage["usage"]["completion_tokens"] <= 3
    title = send_json(
        "/v1/chat/completions",
        **chat,
        stream=False,
        metadata={"task": "title_generation", "task_body": {"messages": []}},
    )
    assert title.json()["choices"][0]["message"]["role"] == "assistant"
    vectors = send_json("/v1/embeddings", model="embedder", input=["One.", "Two."])
    assert len(vectors.json()["data"]) == 2
    wrong = send_json("/v1/chat/completions", **{**chat, "model": "embedder"})
    assert (wrong.status_code, list(wrong.json())) == (422, ["error"])
