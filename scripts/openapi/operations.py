"""The operations of a mode: paths for each protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from handlers import tasks
from handlers.explainers import targets
from handlers.http.response import JSON
from handlers.http.server_sent_events import EVENTS
from handlers.protocols.result_formats import CSV, JSON_LINES
from handlers.schemas.model_info import FILE_TYPES
from handlers.tasks._text import TextTask
from scripts.openapi import audio, embedding_servers, examples
from scripts.openapi.bodies import takes_text
from scripts.openapi.operation import Body, Operation
from scripts.openapi.shapes import TEXT, Schema, any_of, closed, list_of, ref

Known = Mapping[str, Schema]
RESULT, ERROR = ref("Result"), ref("Error")
# The protocol of a body decides on the shape of its errors; one that cannot be read has none yet.
BY_BODY = ("ProtocolError", "Error")
PLAIN, HTML, LINES = "text/plain", "text/html", JSON_LINES[0]
MODEL = "/predictions/{model}/{version}/"
BELOW = f"{MODEL}v1/"
KITS, KSERVE, INFERENCE, OPENAI = "Predictions", "KServe V1", "Open Inference Protocol", "OpenAI"
TGI, TOKENIZER = "Text Generation Inference", "Tokenizer"
# The status of text-generation-inference for what is 503 elsewhere.
OVERLOADED = {429: "The model is overloaded, or out of time."}

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
AS_CHUNKS = """\
With `stream: true` the answer comes as server-sent events: each holds a chunk, and the last one \
`[DONE]`."""

AS_NAMED_EVENTS = """\
With `stream: true` the answer comes as server-sent events, each with the name of its type. \
Nothing is stored, whatever `store` says."""
AS_ONE_EVENT = """\
With `stream: true` the answer is a server-sent event; a comment before it for each step keeps the \
connection open."""
TOKENS = """\
`inputs` gets tokens with their texts, as from text-generation-inference and \
text-embeddings-inference; a prompt or messages get ids, as from vLLM."""


def operations(mode: str, known: Known) -> list[Operation]:
    """Return the operations of a model of a mode.

    Args:
        mode: the mode.
        known: the components of its document.
    """
    made: list[Callable[[str, Known], Operation]] = [
        *(_ping, _predict, _predict_v1, _infer),
        *(_info, _health),
    ]
    task = tasks.get(mode)
    if issubclass(task, TextTask):
        made += [_tokenize, _detokenize]
    if targets.get(mode):
        made += [_explain, _explain_v1, _explain_v2]
    if task.generates and not task.is_encoder_decoder:
        made += [_chat, _complete, _respond, _models]
    if task.generates:
        made += [_generate, _generate_stream]
    if task.draws:
        made += [_images, _models]
    return [
        *(make(mode, known) for make in made),
        *embedding_servers.operations(mode),
        *audio.operations(mode),
    ]


def _ping(mode: str, known: Known) -> Operation:
    health = {JSON: ref("Health")}
    return Operation("/ping", "ping", "Health", "Return whether every model answers.", health)


def _predict(mode: str, known: Known) -> Operation:
    task = tasks.get(mode)
    streams, files = task.generates, task.result_files
    answers = {JSON: _one_or_many(RESULT), LINES: TEXT, CSV: TEXT}
    answers |= {kind: {"contentMediaType": kind} for kind in (files.content_types if files else ())}
    if task.draws:
        answers[EVENTS] = _stream("StepEvent")
    return Operation(
        "/predictions/{model}",
        "predict",
        KITS,
        "Predict.",
        {**answers, EVENTS: _stream("TokenEvent")} if streams else answers,
        {
            JSON: Body(ref("PredictionBody"), examples.predictions(mode)),
            **_texts(mode, known),
            **_files(mode),
            LINES: Body(TEXT, examples.lines(mode)),
            CSV: Body(TEXT, examples.table(mode)),
        },
        f"{PREDICTIONS} {AS_EVENTS}" if streams else PREDICTIONS,
    )


def _explain(mode: str, known: Known) -> Operation:
    schema = ref("ExplanationBody")
    return Operation(
        "/explanations/{model}",
        "explain",
        KITS,
        "Explain a prediction.",
        {JSON: _one_or_many(_explanation(mode)), HTML: TEXT},
        {
            JSON: Body(schema, examples.explanations(mode)),
            **_texts(mode, known),
            **_files(mode),
        },
        EXPLANATION,
    )


def _predict_v1(mode: str, known: Known) -> Operation:
    return Operation(
        "/v1/models/{model}:predict",
        "predictInstances",
        KSERVE,
        "Predict instances.",
        {JSON: closed({"predictions": _items(RESULT)}, "predictions")},
        {JSON: Body(ref("PredictionInstances"), examples.instances(mode))},
        errors=BY_BODY,
    )


def _explain_v1(mode: str, known: Known) -> Operation:
    return Operation(
        "/v1/models/{model}:explain",
        "explainInstances",
        KSERVE,
        "Explain instances.",
        {JSON: closed({"explanations": _items(_explanation(mode))}, "explanations")},
        {JSON: Body(ref("ExplanationInstances"), examples.instances(mode))},
        errors=BY_BODY,
    )


def _infer(mode: str, known: Known) -> Operation:
    return Operation(
        "/v2/models/{model}/infer",
        "infer",
        INFERENCE,
        "Predict each row of tensors.",
        {JSON: ref("InferenceResponse")},
        {JSON: Body(ref("InferenceRequest"), examples.tensors(mode))},
        TENSORS,
        BY_BODY,
    )


def _explain_v2(mode: str, known: Known) -> Operation:
    return Operation(
        "/v2/models/{model}/explain",
        "explainTensors",
        INFERENCE,
        "Explain each row of tensors.",
        {JSON: ref("InferenceResponse")},
        {JSON: Body(ref("InferenceRequest"), examples.tensors(mode))},
        TENSORS,
        BY_BODY,
    )


def _chat(mode: str, known: Known) -> Operation:
    return Operation(
        f"{BELOW}chat/completions",
        "chat",
        OPENAI,
        "Answer a chat, by the checkpoint's own chat template.",
        {JSON: ref("ChatCompletion"), EVENTS: _stream("ChatCompletionChunk")},
        {JSON: Body(ref("ChatBody"), examples.chats())},
        AS_CHUNKS,
        ("OpenAIError",),
    )


def _complete(mode: str, known: Known) -> Operation:
    return Operation(
        f"{BELOW}completions",
        "complete",
        OPENAI,
        "Continue a prompt, or several.",
        {JSON: ref("Completion"), EVENTS: _stream("CompletionChunk")},
        {JSON: Body(ref("CompletionBody"), examples.completions(mode))},
        AS_CHUNKS,
        ("OpenAIError",),
    )


def _respond(mode: str, known: Known) -> Operation:
    return Operation(
        f"{BELOW}responses",
        "respond",
        OPENAI,
        "Answer a text or a conversation, by the checkpoint's own chat template.",
        {JSON: ref("Response"), EVENTS: _stream("ResponseEvent")},
        {JSON: Body(ref("ResponseBody"), examples.responses())},
        AS_NAMED_EVENTS,
        ("OpenAIError",),
    )


def _images(mode: str, known: Known) -> Operation:
    return Operation(
        f"{BELOW}images/generations",
        "images",
        OPENAI,
        "Make images of a prompt.",
        {JSON: ref("ImagesResponse"), EVENTS: _stream("ImageEvent")},
        {JSON: Body(ref("ImageBody"), examples.image_prompts())},
        AS_ONE_EVENT,
        ("OpenAIError",),
    )


def _generate(mode: str, known: Known) -> Operation:
    return Operation(
        f"{MODEL}generate",
        "generate",
        TGI,
        "Continue a prompt.",
        {JSON: ref("GenerateResult")},
        {JSON: Body(ref("GenerateBody"), examples.prompts(mode))},
        errors=("GenerationError",),
        other_statuses=OVERLOADED,
    )


def _generate_stream(mode: str, known: Known) -> Operation:
    return Operation(
        f"{MODEL}generate_stream",
        "generateStream",
        TGI,
        "Continue a prompt, as server-sent events.",
        {EVENTS: _stream("TokenEvent")},
        {JSON: Body(ref("GenerateBody"), examples.prompts(mode))},
        errors=("GenerationError",),
        other_statuses=OVERLOADED,
    )


def _info(mode: str, known: Known) -> Operation:
    return Operation(
        f"{MODEL}info",
        "info",
        TGI,
        "Return the limits of the model.",
        {JSON: ref("ServedInfo")},
        errors=("GenerationError",),
    )


def _health(mode: str, known: Known) -> Operation:
    return Operation(
        f"{MODEL}health",
        "health",
        TGI,
        "Return an empty response where the model answers.",
        {PLAIN: TEXT},
        errors=("GenerationError",),
    )


def _tokenize(mode: str, known: Known) -> Operation:
    tokens = list_of(ref("InputToken"))
    return Operation(
        f"{MODEL}tokenize",
        "tokenize",
        TOKENIZER,
        "Return the tokens of texts, of a prompt or of a chat.",
        {JSON: any_of(ref("TokenizedPrompt"), tokens, _items(tokens))},
        {JSON: Body(ref("TokenizeBody"), examples.texts_to_tokenize(mode))},
        TOKENS,
        ("GenerationError", "Error"),
    )


def _detokenize(mode: str, known: Known) -> Operation:
    return Operation(
        f"{MODEL}detokenize",
        "detokenize",
        TOKENIZER,
        "Return the text of tokens.",
        {JSON: ref("DetokenizedPrompt")},
        {JSON: Body(ref("DetokenizeBody"), examples.ids())},
    )


def _models(mode: str, known: Known) -> Operation:
    return Operation(
        f"{BELOW}models",
        "listModels",
        OPENAI,
        "List the model and its LoRA adapters.",
        {JSON: ref("ModelList")},
        errors=("OpenAIError",),
    )


def _texts(mode: str, known: Known) -> dict[str, Body]:
    return {PLAIN: Body(TEXT, examples.texts(mode))} if takes_text(known) else {}


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


def _stream(chunk: str) -> Schema:
    return {**TEXT, "description": f"Each event's data is a {chunk}."}
