"""The operations of a mode: paths for each protocol."""

from __future__ import annotations

from handlers import tasks
from handlers.explainers import targets
from handlers.http.response import JSON
from handlers.http.streams import SERVER_SENT_EVENTS
from handlers.protocols.result_formats import CSV, LINES_TYPES
from handlers.types.model_info import FILE_TYPES
from scripts.openapi import examples
from scripts.openapi.bodies import takes_text
from scripts.openapi.operation import Body, Operation
from scripts.openapi.routes import stream_of
from scripts.openapi.schemas import Schemas
from scripts.openapi.shapes import TEXT, Schema, any_of, closed, list_of, ref

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


def operations(mode: str, schemas: Schemas) -> list[Operation]:
    """Return the operations that every protocol's bodies, or a mode, have in common.

    Args:
        mode: the mode.
        schemas: the schemas of its document.
    """
    made = [_ping, _predict, _predict_v1, _infer]
    if targets.get(mode):
        made += [_explain, _explain_v1, _explain_v2]
    return [make(mode, schemas) for make in made]


def _ping(mode: str, schemas: Schemas) -> Operation:
    health = {JSON: ref("Health")}
    return Operation("/ping", "ping", ("Health",), "Return whether every model answers.", health)


def _predict(mode: str, schemas: Schemas) -> Operation:
    task = tasks.get(mode)
    streams, files = task.generates, task.result_files
    answers = {JSON: _one_or_many(RESULT), LINES: TEXT, CSV: TEXT}
    answers |= {kind: {"contentMediaType": kind} for kind in (files.content_types if files else ())}
    if task.draws:
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


def _explain(mode: str, schemas: Schemas) -> Operation:
    schema = ref("ExplanationBody")
    return Operation(
        "/explanations/{model}",
        "explain",
        KITS,
        "Explain a prediction.",
        {JSON: _one_or_many(_explanation(mode)), HTML: TEXT},
        {
            JSON: Body(schema, examples.explanations(mode)),
            **_texts(mode, schemas),
            **_files(mode),
        },
        EXPLANATION,
    )


def _predict_v1(mode: str, schemas: Schemas) -> Operation:
    return _instances("predict", mode, "PredictionInstances", "predictions", RESULT)


def _explain_v1(mode: str, schemas: Schemas) -> Operation:
    result = _explanation(mode)
    return _instances("explain", mode, "ExplanationInstances", "explanations", result)


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


def _infer(mode: str, schemas: Schemas) -> Operation:
    return _tensors("infer", "infer", "Predict each row of tensors.", mode)


def _explain_v2(mode: str, schemas: Schemas) -> Operation:
    return _tensors("explain", "explainTensors", "Explain each row of tensors.", mode)


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
    columns = tasks.get(mode).input_columns
    types = [kind for column, kind in FILE_TYPES.items() if column in columns]
    return {kind: Body({"contentMediaType": kind}, {}) for kind in types}


def _explanation(mode: str) -> Schema:
    target = targets.get(mode)
    return ref(target.results.__name__) if target else {}


def _items(result: Schema) -> Schema:
    return list_of(any_of(result, ERROR))


def _one_or_many(result: Schema) -> Schema:
    return any_of(result, _items(result))
