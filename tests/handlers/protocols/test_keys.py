"""Each key that a server defines for a route is honoured, without effect, or refused by its name.

Each test sends the keys of a table one by one, all bodies of a route in one batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from hf_serve.handlers.http.request import LIST, HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.protocols import text_generation_inference
from hf_serve.handlers.protocols.base import EMPTY, UNKNOWN_KEYS, KeyTable
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.scripts.openapi import all_routes
from tests import sounds
from tests.handlers.generation.test_chat import CHAT, TEMPLATE
from tests.sentences import Sentence
from tests.serving import Served, differences, read_json
from tests.sounds import sound_for

WHISPER = "WhisperForConditionalGeneration"
# No key has such a value.
WRONG: list[Any] = [[[{}]]]
# Keys whose value may be any JSON.
ANY_JSON = ("state",)
# What differs from one answer to the next.
CHANGING = ("id", "created", "created_at", "output")


@dataclass(frozen=True)
class Route:
    """A route, and a body that it answers.

    Attributes:
        path: the path.
        table: the keys of its bodies.
        mode: the mode of the model.
        body: the body.
        options: what the model is loaded with.
        strict: whether a key that no server defines is refused.
        handler: further keys of the YAML.
    """

    path: str
    table: KeyTable
    mode: str
    body: Mapping[str, Any]
    family: str = "Bert"
    strict: bool = False
    handler: Mapping[str, Any] = field(default_factory=dict)


SOUND = sound_for("Ada")
GENERATION, EMBEDDING, RANKING = "text_generation", "sentence_embedding", "sentence_ranking"
RERANK: Mapping[str, Any] = {"query": "Who sings?", "documents": ["Nina sings.", "It rains."]}
TEXTS: Mapping[str, Any] = {"query": "Who?", "texts": ["Ada."]}
TEXT: Mapping[str, Any] = {"inputs": "Nina sings."}
TABLES: Mapping[str, KeyTable] = {each.name: each.keys for each in all_routes()}
GPT2: Mapping[str, Any] = {"mode": GENERATION, "family": "GPT2"}
ROUTES = [
    Route("v1/chat/completions", TABLES["chat"], body={"messages": CHAT, "max_tokens": 2}, **GPT2),
    Route("v1/completions", TABLES["complete"], body={"prompt": "Ada", "max_tokens": 2}, **GPT2),
    Route("v1/responses", TABLES["respond"], body={"input": "Ada", "max_output_tokens": 2}, **GPT2),
    Route(
        "v1/messages",
        TABLES["createMessage"],
        body={"messages": CHAT[1:], "max_tokens": 2},
        **GPT2,
    ),
    Route("v1/messages/count_tokens", TABLES["countTokens"], body={"messages": CHAT[1:]}, **GPT2),
    Route("v1/embeddings", TABLES["embeddings"], EMBEDDING, {"input": "Nina sings."}),
    Route(
        "v1/moderations",
        TABLES["moderate"],
        "sequence_classification",
        {"input": "Nina sings."},
        handler={"moderation": {"NEGATIVE": "harm"}},
    ),
    Route(
        "v1/decisions",
        TABLES["decide"],
        "sequence_classification",
        {
            "input": "Nina sings.",
            "questions": [{"type": "predicate", "instructions": "POSITIVE"}],
        },
    ),
    Route(
        "v1/systemone",
        TABLES["decideBySystemOne"],
        "sequence_classification",
        {
            "state": "Nina sings.",
            "questions": {"a": {"type": "noul", "instructions": "POSITIVE"}},
        },
    ),
    Route("score", TABLES["score"], RANKING, {"text_1": "Who sings?", "text_2": "Nina sings."}),
    Route("classify", TABLES["classify"], "sequence_classification", {"input": "Nina sings."}),
    Route("pooling", TABLES["pooling"], EMBEDDING, {"input": "Nina sings."}),
    Route("v1/audio/speech", TABLES["speak"], "text_to_speech", {"input": "Ada", "seed": 1}),
    Route(
        "v1/audio/transcriptions",
        TABLES["transcribe"],
        "automatic_speech_recognition",
        {"file": SOUND},
        WHISPER,
    ),
    Route(
        "v1/audio/translations",
        TABLES["translate"],
        "automatic_speech_recognition",
        {"file": SOUND},
        WHISPER,
    ),
    Route(
        "v1/images/generations",
        TABLES["images"],
        "text_to_image",
        {"prompt": "a fox", "num_inference_steps": 1, "seed": 1, "size": "32x32"},
    ),
    Route("v2/embed", TABLES["cohereEmbedV2"], EMBEDDING, {"texts": ["Nina sings."]}),
    Route("v2/rerank", TABLES["cohereRerankV2"], RANKING, RERANK),
    Route("rerank", TABLES["rerank"], RANKING, RERANK),
    Route("tokenize", TABLES["tokenizePrompt"], body={"prompt": "Ada"}, **GPT2),
    Route("detokenize", TABLES["detokenize"], body={"tokens": [5, 6]}, **GPT2),
    Route("generate", TABLES["generate"], body=TEXT, strict=True, **GPT2),
    Route("embed", TABLES["teiEmbed"], EMBEDDING, TEXT, strict=True),
    Route(
        "rerank", TABLES["teiRerank"], RANKING, {"query": "Who?", "texts": ["Ada."]}, strict=True
    ),
    Route(
        "similarity",
        TABLES["teiSimilarity"],
        EMBEDDING,
        {"inputs": {"source_sentence": "Ada", "sentences": ["Nina"]}},
        strict=True,
    ),
    Route("embed_all", TABLES["teiEmbedAll"], "feature_extraction", TEXT, strict=True),
    Route("embed_sparse", TABLES["teiEmbedSparse"], "sparse_embedding", TEXT, strict=True),
    Route("predict", TABLES["teiPredict"], "sequence_classification", TEXT, strict=True),
    Route("decode", TABLES["teiDecode"], EMBEDDING, {"ids": [5, 6]}, strict=True),
    Route("tokenize", TABLES["tokenize"], EMBEDDING, TEXT, strict=True),
]
every_route = pytest.mark.parametrize(
    "route", ROUTES, ids=lambda route: f"{route.path}-{route.mode}-{len(route.table.keys)}"
)
Send = Callable[..., list[HttpResponse]]


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = sounds.write(tmp_path_factory.mktemp("whisper") / "model", WHISPER)
    return Served(folder, "automatic_speech_recognition")


@pytest.fixture
def send(route: Route, served: Callable[..., Served], whisper: Served, monkeypatch: Any) -> Send:
    """Return a function that sends the route's body with each of some keys and values."""
    model = (
        whisper
        if route.family == WHISPER
        else served(route.mode, family=route.family, **route.handler)
    )
    if route.mode == GENERATION:
        tokenizer = model.engine.task.checkpoint.tokenizer
        monkeypatch.setattr(tokenizer, "chat_template", TEMPLATE)
    headers = {"url_path": route.path, "Content-Type": "application/json"}

    def send(*given: tuple[str, Any]) -> list[HttpResponse]:
        bodies = [{**route.body, name: value} for name, value in given]
        requests = [HttpRequest({"body": body}, headers) for body in bodies]
        return model.dispatcher.dispatch(requests, Meter())

    return send


@every_route
def test_an_honoured_key_is_read(route: Route, send: Send) -> None:
    names = [name for name in route.table.named("honoured") if name not in ANY_JSON]
    answers = dict(zip(names, send(*((name, WRONG) for name in names)), strict=True))
    assert not {name for name in names if answers[name].status not in (400, 422)}
    others = {name: _other_key(answer, name) for name, answer in answers.items()}
    assert not {name: found for name, found in others.items() if found}


@every_route
def test_a_key_without_effect_leaves_the_answer_as_it_is(route: Route, send: Send) -> None:
    names = route.table.named("without effect")
    (name, value) = next(iter(route.body.items()))
    same, *answers = send((name, value), *((name, _valid(name)) for name in names))
    assert same.status == 200 and UNKNOWN_KEYS not in same.headers
    for name, answer in zip(names, answers, strict=True):
        assert answer.status == 200 and UNKNOWN_KEYS not in answer.headers, (name, answer.body)
        # Rows of a batch may be rounded in another way.
        assert not differences(_lasting(answer), _lasting(same), 1e-6), name


def _other_key(answer: HttpResponse, name: str) -> Any:
    """Return what an error of OpenAI names in the place of a key; None where it names the key."""
    error = read_json(answer.body).get("error")
    if not isinstance(error, dict) or "param" not in error:
        return None  # Other formats have no field for a key.
    named = re.split(r"[.\[]", str(error["param"]))[0]
    return None if named == name.removesuffix(LIST) else error["message"]


def _valid(name: str) -> Any:
    """Return a value of a key that is read, though it has no effect."""
    return {"stream": True, "parameters": {}, "store": True}.get(name, WRONG)


def _lasting(answer: HttpResponse) -> Any:
    if answer.content_type != "application/json":
        return len(answer.body)
    body = read_json(answer.body)
    if not isinstance(body, dict):
        return body
    return {name: value for name, value in body.items() if name not in CHANGING}


@every_route
def test_a_refused_key_is_named_in_the_error(route: Route, send: Send) -> None:
    names = route.table.named("refused")
    for name, answer in zip(names, send(*((name, WRONG) for name in names)), strict=True):
        text = read_json(answer.body)
        error = text.get("error", text.get("message"))
        message = error["message"] if isinstance(error, dict) else error
        assert (answer.status, message) == (422, Sentence(name)), name
        param = error.get("param", name) if isinstance(error, dict) else name
        assert param.removesuffix(LIST) == name.removesuffix(LIST)


@every_route
def test_a_refused_key_may_have_the_value_that_changes_nothing(route: Route, send: Send) -> None:
    keys = [(name, route.table.keys[name]) for name in route.table.named("refused")]
    given = [
        (name, value)
        for name, key in keys
        for value in (None, *(() if key.refuses_empty else (*EMPTY, {"a": None})), *key.neutral)
    ]
    for (name, value), answer in zip(given, send(*given), strict=True):
        assert answer.status == 200, (name, value, answer.body)


@every_route
def test_a_key_that_no_server_defines_is_listed(route: Route, send: Send) -> None:
    (answer,) = send(("no_such_key", 1))
    if route.strict:
        assert answer.status == 400
    else:
        assert (answer.status, answer.headers[UNKNOWN_KEYS]) == (200, "no_such_key")


def test_many_unknown_keys_are_counted(served: Callable[..., Served]) -> None:
    body = {"input": "Ada", **{f"key_{number}": 1 for number in range(12)}, "x\r\ny": 1}
    headers = {"url_path": "v1/embeddings", "Content-Type": "application/json"}
    (answer,) = served(EMBEDDING).dispatcher.dispatch(
        [HttpRequest({"body": body}, headers)], Meter()
    )
    listed = answer.headers[UNKNOWN_KEYS]
    assert listed.startswith("key_0, key_1, ") and listed.endswith(", and 3 more")
    assert "\n" not in listed


def test_the_parts_of_a_stream_list_unknown_keys_too(
    served: Callable[..., Served], monkeypatch: Any
) -> None:
    model = served(GENERATION, family="GPT2")
    sent: list[HttpResponse] = []
    body = {"prompt": "Ada", "max_tokens": 8, "stream": True, "no_such_key": 1}
    headers = {"url_path": "v1/completions", "Content-Type": "application/json"}
    model.dispatcher.dispatch([HttpRequest({"body": body}, headers, sent.append)], Meter())
    assert sent and sent[0].headers[UNKNOWN_KEYS] == "no_such_key"


TGI = text_generation_inference.PARAMETERS


@pytest.mark.parametrize("name", TGI.keys)
def test_each_parameter_of_text_generation_inference(
    served: Callable[..., Served], name: str
) -> None:
    headers = {"url_path": "generate", "Content-Type": "application/json"}
    body = {"inputs": "Ada", "parameters": {name: WRONG}}
    ((status, answer),) = served(GENERATION, family="GPT2").post(
        HttpRequest({"body": body}, headers)
    )
    assert status == (422 if name in TGI.named("refused") else 400)
    assert name in answer["error"]
