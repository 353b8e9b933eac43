"""The operations of a document: paths with their request bodies and responses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from hf_serve.handlers import protocols, tasks
from hf_serve.handlers.errors import (
    BadRequest,
    InternalError,
    NotFound,
    Overloaded,
    RequestError,
    RequestTooLarge,
    Unprocessable,
    WholeErrorBody,
)
from hf_serve.handlers.explainers import targets
from hf_serve.handlers.http.response import JSON
from hf_serve.handlers.http.streams import SERVER_SENT_EVENTS, Stream
from hf_serve.handlers.protocols.base import Route
from hf_serve.handlers.protocols.result_formats import CSV, LINES_TYPES
from hf_serve.handlers.tasks.bases.text import TextTask
from hf_serve.handlers.types.model_info import FILE_TYPES
from hf_serve.scripts.openapi import examples
from hf_serve.scripts.openapi.schemas import (
    TEXT,
    Schema,
    Schemas,
    any_of,
    closed,
    list_of,
    one_of,
    ref,
    takes_text,
)

RESULT, ERROR = ref("Result"), ref("ErrorBody")
# The protocol of a body decides on the shape of its errors; one that cannot be read has none yet.
BY_BODY = (ref("KServeError"), ref("WholeErrorBody"))
PLAIN, HTML, LINES = "text/plain", "text/html", LINES_TYPES[0]
EVENTS = SERVER_SENT_EVENTS.content_type
KITS = ("Predictions",)

PREDICTIONS = """\
A list of inputs gets a list back, in which what failed has its error in its place. A body without \
a content type is JSON where it looks like an object, else a text. Where the model's YAML says \
`responses: legacy`, bodies of TorchServe's own example get the answers of that example instead. \
`/predictions/{model}/{version}` asks for one version."""
EXPLANATION = """\
An explanation has the importance of each token, word or patch of an image for its target, by \
default the prediction. With `Accept: text/html` it is a page."""
TENSORS = """\
Parameters are tensors too, of one element or of one a row, or stand among the parameters of the \
body. Each element of the answer's tensor is the JSON text of a row's result."""
AS_EVENTS = """\
With `stream: true` the text comes as server-sent events, as those of text-generation-inference."""


def common_operations(mode: str, schemas: Schemas) -> list[Operation]:
    """Return the operations that every protocol's bodies, or a mode, have in common."""
    health = {JSON: ref("Health")}
    made = [
        Operation("/ping", "ping", ("Health",), "Return whether every model answers.", health),
        _predict(mode, schemas),
        _instances("predict", mode, "PredictionInstances", "predictions", RESULT),
        _tensors("infer", "infer", "Predict each row of tensors.", mode),
    ]
    if target := targets.get(mode):
        explanation = ref(target.results.__name__)
        made += [
            _explain(mode, schemas, explanation),
            _instances("explain", mode, "ExplanationInstances", "explanations", explanation),
            _tensors("explain", "explainTensors", "Explain each row of tensors.", mode),
        ]
    return made


def _predict(mode: str, schemas: Schemas) -> Operation:
    task = tasks.get(mode)
    streams, files = task.description.generation.texts, task.description.wire.result_files
    answers = {JSON: _one_or_many(RESULT), LINES: TEXT, CSV: TEXT}
    answers |= {kind: {"contentMediaType": kind} for kind in (files.content_types if files else ())}
    if task.description.generation.images:
        part = any_of(ref("StepEvent"), closed({"result": RESULT}, "result"))
        answers[EVENTS] = stream_of(SERVER_SENT_EVENTS, part)
    if streams:
        answers[EVENTS] = stream_of(SERVER_SENT_EVENTS, ref("TokenEvent"))
    return Operation(
        "/predictions/{model}",
        "predict",
        KITS,
        "Predict.",
        answers,
        {
            JSON: Body(ref("PredictionBody"), examples.predictions(mode)),
            **_texts(mode, schemas),
            **_files(mode),
            LINES: Body(TEXT, examples.lines(mode)),
            CSV: Body(TEXT, examples.table(mode)),
        },
        f"{PREDICTIONS} {AS_EVENTS}" if streams else PREDICTIONS,
    )


def _explain(mode: str, schemas: Schemas, explanation: Schema) -> Operation:
    schema = ref("ExplanationBody")
    return Operation(
        "/explanations/{model}",
        "explain",
        KITS,
        "Explain a prediction.",
        {JSON: _one_or_many(explanation), HTML: TEXT},
        {
            JSON: Body(schema, examples.explanations(mode)),
            **_texts(mode, schemas),
            **_files(mode),
        },
        EXPLANATION,
    )


def _instances(verb: str, mode: str, body: str, key: str, result: Schema) -> Operation:
    return Operation(
        f"/v1/models/{{model}}:{verb}",
        f"{verb}Instances",
        ("KServe V1",),
        f"{verb.title()} instances.",
        {JSON: closed({key: _items(result)}, key)},
        {JSON: Body(ref(body), examples.instances(mode))},
        errors=BY_BODY,
    )


def _tensors(verb: str, name: str, summary: str, mode: str) -> Operation:
    return Operation(
        f"/v2/models/{{model}}/{verb}",
        name,
        ("Open Inference Protocol",),
        summary,
        {JSON: ref("InferenceResponse")},
        {JSON: Body(ref("InferenceRequest"), examples.tensors(mode))},
        TENSORS,
        BY_BODY,
    )


def _texts(mode: str, schemas: Schemas) -> dict[str, Body]:
    has_text = takes_text(schemas.components)
    return {PLAIN: Body(TEXT, examples.texts(mode))} if has_text else {}


def _files(mode: str) -> dict[str, Body]:
    """Return the body that is the file of a mode's inputs, whose bytes no example shows."""
    columns = tasks.get(mode).description.wire.input_columns
    types = [kind for column, kind in FILE_TYPES.items() if column in columns]
    return {kind: Body({"contentMediaType": kind}, {}) for kind in types}


def _items(result: Schema) -> Schema:
    return list_of(any_of(result, ERROR))


def _one_or_many(result: Schema) -> Schema:
    return any_of(result, _items(result))


PARAMETERS = {
    "model": "The name under which a model is served.",
    "version": "A version of the model, for example 1.0.",
}
# TorchServe's own errors have the same shape in every protocol.
TORCHSERVES = (NotFound, InternalError, Overloaded)
ERRORS: tuple[type[RequestError], ...] = (
    BadRequest,
    *TORCHSERVES,
    RequestTooLarge,
    Unprocessable,
)
WHOLE_ERROR, TORCHSERVE_ERROR = ref("WholeErrorBody"), ref("ErrorBody")
TOO_LARGE = "More bytes than the server's `max_request_size` get this status and nothing else."


@dataclass(frozen=True)
class Body:
    """A request body of one content type."""

    schema: Schema
    examples: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return it as a media type of OpenAPI."""
        examples = {name: {"value": value} for name, value in self.examples.items()}
        return {"schema": self.schema, "examples": examples}


@dataclass(frozen=True)
class Operation:
    """A method of one path.

    Attributes:
        path: with names of parameters in braces.
        name: the operation's id, for generated clients.
        tags: the servers or protocols that it belongs to.
        answers: the schema of a success, by content type.
        bodies: the request bodies, by content type; empty for a GET.
        other_statuses: statuses that other protocols have not, each with what it means.
    """

    path: str
    name: str
    tags: Sequence[str]
    summary: str
    answers: Mapping[str, Schema]
    bodies: Mapping[str, Body] = field(default_factory=dict)
    description: str = ""
    errors: Sequence[Schema] = (WHOLE_ERROR,)
    other_statuses: Mapping[int, str] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """The HTTP method."""
        return "post" if self.bodies else "get"

    def as_json(self, served: Mapping[str, str]) -> dict[str, Any]:
        """Return it as an operation of OpenAPI; `served` has an example of each parameter."""
        names = re.findall(r"\{(\w+)\}", self.path)
        contents = {kind: body.as_json() for kind, body in self.bodies.items()}
        return {
            "operationId": self.name,
            "tags": list(self.tags),
            "summary": self.summary,
            **({"description": self.description} if self.description else {}),
            "parameters": [_parameter(name, served[name]) for name in names],
            **({"requestBody": {"required": True, "content": contents}} if contents else {}),
            "responses": {"200": _response("An answer.", self.answers), **self._errors(names)},
        }

    def _errors(self, names: list[str]) -> dict[str, Any]:
        """Return the errors of a path with a model."""
        common = {
            str(kind.status): _response(_sentence(kind), {JSON: self._error_of(kind)})
            for kind in sorted(ERRORS, key=lambda kind: kind.status)
            if names
        }
        others = {
            str(status): _response(sentence, {JSON: one_of(self.errors)})
            for status, sentence in self.other_statuses.items()
        }
        return dict(sorted({**common, **others}.items()))

    def _error_of(self, kind: type[RequestError]) -> Schema:
        return one_of([*self.errors, *([TORCHSERVE_ERROR] if kind in TORCHSERVES else [])])


def _response(description: str, answers: Mapping[str, Schema]) -> dict[str, Any]:
    content = {kind: {"schema": schema} for kind, schema in answers.items()}
    return {"description": description, "content": content}


def _sentence(kind: type[RequestError]) -> str:
    if kind is NotFound:
        return "There is no model, or no version of it, under this name."
    sentence = (inspect.getdoc(kind) or "").replace("\n", " ")
    return f"{sentence} {TOO_LARGE}" if kind is RequestTooLarge else sentence


def _parameter(name: str, example: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": PARAMETERS[name],
        "schema": {"type": "string"},
        "example": example,
    }


MODEL = "/predictions/{model}/{version}/"


def routes_of(mode: str) -> list[Route]:
    """Return the routes of the models of a mode, in the order of the protocols."""
    task = tasks.get(mode)
    abilities = set(task.description.abilities)
    if issubclass(task, TextTask):
        abilities.add("tokenizes")
    return [
        each
        for each in all_routes()
        if not each.abilities or not abilities.isdisjoint(each.abilities)
    ]


def all_routes() -> list[Route]:
    """Return the routes of every protocol."""
    return list(chain.from_iterable(kind.routes for kind in protocols.kinds()))


def route_operations(mode: str, routes: Sequence[Route], schemas: Schemas) -> list[Operation]:
    """Return the operation of each path; protocols that share one are told apart by the body."""
    by_path: dict[str, list[Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, []).append(route)
    sample = tasks.get(mode).description.wire.example
    return [_operation(shared, sample, schemas) for shared in by_path.values()]


def _operation(routes: Sequence[Route], sample: Mapping[str, Any], schemas: Schemas) -> Operation:
    first = routes[0]
    errors = [each.error for each in routes]
    if len(set(errors)) > 1:
        errors.append(WholeErrorBody)  # The body fits neither of them.
    return Operation(
        f"{MODEL}{first.path}",
        first.name,
        tuple(dict.fromkeys(each.server for each in routes)),
        first.summary,
        _responses(routes, schemas),
        _bodies(routes, sample, schemas),
        " ".join(each.description for each in routes if each.description),
        [schemas.by_type[each] for each in errors],
        {status: text for each in routes for status, text in each.other_statuses.items()},
    )


def _responses(routes: Sequence[Route], schemas: Schemas) -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    whole = [schemas.by_type[each.response] for each in routes if each.response is not None]
    if whole:
        found[JSON] = one_of(whole)
    for each in routes:
        for kind, values in each.other_types.items():
            found[kind] = TEXT if values is str else {"contentMediaType": kind}
        if each.stream:
            found[each.stream.content_type] = stream_of(each.stream, schemas.by_type[each.part])
    return found


def stream_of(stream: Stream, part: Schema) -> Schema:
    """Return the schema of a stream; `x-part` has the schema of its parts."""
    unit = "Each event's data" if stream is SERVER_SENT_EVENTS else "Each line"
    return {**TEXT, "description": f"{unit} is JSON, as `x-part` describes it.", "x-part": part}


def _bodies(
    routes: Sequence[Route], sample: Mapping[str, Any], schemas: Schemas
) -> dict[str, Body]:
    schema = [schemas.by_type[each.body] for each in routes if each.body is not None]
    if not schema:
        return {}
    shown = {name: value for each in routes for name, value in each.examples(sample).items()}
    main, *others = routes[0].body_types
    body = one_of(schema)
    return {main: Body(body, shown), **{kind: Body(body, {}) for kind in others}}
