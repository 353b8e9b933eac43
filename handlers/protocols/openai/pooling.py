"""vLLM's endpoints for models that write no texts, with OpenAI's errors:

    score      {"text_1": "a text", "text_2": ["another", "a third"]}
               -> {"data": [{"index": 0, "object": "score", "score": 0.9}, …], …}
    classify   {"input": ["a text"]}
               -> {"data": [{"index": 0, "label": "A", "probs": [0.9, 0.1], "num_classes": 2}], …}
    pooling    {"input": ["a text"]}
               -> {"data": [{"index": 0, "object": "pooling", "data": [0.1, …]}], …}

A reranker scores pairs; other models compare the vectors of two texts. `pooling` returns the vector
of each text, or a vector for each of its tokens.

https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html#score-api
"""

from __future__ import annotations

import time
import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import Field, PositiveInt, SkipValidation

from ...config.messages import enumerate_names
from ...errors import BadRequest, RequestError, Unprocessable
from ...http.request import HttpRequest
from ...http.response import HttpResponse, encode_json
from ...types.embeddings import in_base64
from ...types.parameters import check_text, one_value
from ...types.request import Request, TokenCount
from ..base import (
    ITEM_ERRORS,
    KeyTable,
    ParsedRequest,
    Route,
    check_count,
    first_error,
    ignored,
    refused,
    texts_or_ids,
    tokens_read,
    with_names,
)
from ..truncation import PromptTokens, instruction_parameters, truncation_parameters
from .bodies import SCHEDULING
from .embeddings import FLOATS, TextsOrIds
from .endpoint import Body, Call, Endpoint, adapter_parameters, served_name
from .types import (
    Classification,
    ClassificationList,
    OpenAIError,
    PooledList,
    PooledText,
    ScoredPair,
    ScoreList,
)

Texts = str | Annotated[list[str], Field(min_length=1)]
# The keys of a body of `score`, as each version of vLLM has them: one of each side.
FIRST, SECOND = ("text_1", "data_1", "queries"), ("text_2", "data_2", "documents", "items")
# The keys of the inputs of a reranker, and of a model that compares sentences.
QUERY_KEYS, SENTENCE_KEYS = ("query", "texts"), ("source_sentence", "sentences")
# What vLLM calls the tasks of a pooling model.
PoolingTask = Literal[
    "embed", "token_embed", "classify", "token_classify", "score", "embed&token_classify", "plugin"
]
# Keys of every endpoint here.
OTHERS = {
    **ignored("user", "padding"),
    **SCHEDULING,
    **refused(
        add_special_tokens=True,
        truncation_side="right",
        chat_template=[],
        chat_template_kwargs=[],
        mm_processor_kwargs=[],
        media_io_kwargs=[],
    ),
}
OF_MESSAGES = refused(
    messages=[],
    add_generation_prompt=False,
    continue_final_message=False,
)


class PoolingModelBody(Body):
    """Base of the bodies."""

    truncate_prompt_tokens: PromptTokens | None = None
    use_activation: bool | None = None
    # Earlier names of `use_activation`.
    softmax: bool | None = None
    activation: bool | None = None

    @property
    def activates(self) -> bool | None:
        """Whether scores are probabilities, and not logits; None for what the checkpoint says."""
        names = ("softmax", "activation", "use_activation")
        activates: bool | None = one_value({each: getattr(self, each) for each in names})
        return activates


class ScoreBody(PoolingModelBody):
    """The body of `score`: one text or several on each side."""

    text_1: SkipValidation[Texts] | None = None
    text_2: SkipValidation[Texts] | None = None
    data_1: SkipValidation[Texts] | None = None
    data_2: SkipValidation[Texts] | None = None
    queries: SkipValidation[Texts] | None = None
    documents: SkipValidation[Texts] | None = None
    items: SkipValidation[Texts] | None = None
    instruction: str | None = None


class ClassifyBody(PoolingModelBody):
    """The body of `classify`."""

    input: SkipValidation[Texts]


class PoolingBody(PoolingModelBody):
    """The body of `pooling`."""

    input: SkipValidation[TextsOrIds]
    task: PoolingTask | None = None
    dimensions: PositiveInt | None = None
    encoding_format: Literal["float", "base64"] | None = None
    normalize: bool | None = None


BodyT = TypeVar("BodyT", bound=PoolingModelBody)


class PoolingModelEndpoint(Endpoint[BodyT]):
    """An endpoint whose response is a list with an entry for each result.

    Attributes:
        id_prefix: the prefix of the ids of its responses.
    """

    id_prefix: ClassVar[str]

    @abstractmethod
    def entries(self, body: BodyT, results: Sequence[Any]) -> Sequence[Any]:
        """Return the entries of the list."""

    def write(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        tokens, body = tokens_read(parsed.requests), parsed.context.body
        response = {
            "id": f"{self.id_prefix}-{uuid.uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": served_name(self.model, body.model),
            "data": self.entries(body, results),
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
        return HttpResponse(encode_json(response))

    def texts(self, value: Any, name: str) -> list[str]:
        """Return the texts of a key, which may have a single one.

        Raises:
            RequestError: there are too many, or one is no text of this model.
        """
        limits = self.model.limits
        if not isinstance(value, list):
            return [check_text(value, name, limits.max_characters)]
        check_count(len(value), name, limits.max_rows)
        return [
            check_text(text, f"{name}[{number}]", limits.max_characters)
            for number, text in enumerate(value)
        ]

    def parsed(
        self,
        http_request: HttpRequest,
        body: BodyT,
        inputs: Sequence[Any],
        settings: Mapping[str, Any],
    ) -> ParsedRequest:
        """Return the parsed request, with the same settings for each of some inputs."""
        parameters = {
            **settings,
            **truncation_parameters(body.truncate_prompt_tokens, self.model),
            **adapter_parameters(self.model, body.model),
        }
        requests = [
            Request(each, parameters, is_batch_item=True, token_count=TokenCount())
            for each in inputs
        ]
        return ParsedRequest(http_request, requests, Call(self, body))


class Score(PoolingModelEndpoint[ScoreBody]):
    """`score`: how well two texts fit each other."""

    route = Route(
        "v1/score",
        name="score",
        server="vLLM",
        summary="Return how well each of some texts fits another.",
        response=ScoreList,
        error=OpenAIError,
        abilities=("scores",),
        body=ScoreBody,
        keys=KeyTable.of(ScoreBody, OTHERS),
        examples=lambda _: {
            "one": {"text_1": "Who sings?", "text_2": "Nina sings in the bar."},
            "list": {"text_1": "Who sings?", "text_2": ["Nina sings.", "It rains today."]},
            "pairs": {"text_1": ["Who sings?"] * 2, "text_2": ["Nina sings.", "It rains today."]},
        },
    )
    inputs_key = "text_2"
    id_prefix = "score"

    def parsed_request(self, http_request: HttpRequest, body: ScoreBody) -> ParsedRequest:
        service = self.model.task.service
        if service == "rerank" and self.model.labels:
            raise Unprocessable(
                f"This model has {len(self.model.labels)} labels, so that a pair has several scores"
                "; send the pair without this path."
            )
        first, second = (self._checked(body, names) for names in (FIRST, SECOND))
        if len(first) not in (1, len(second)):
            raise BadRequest(
                f"{_given(body, FIRST)} has {len(first)} texts, and {_given(body, SECOND)}"
                f" {len(second)}; send one text in the former, or the same number in both."
            )
        if service == "embed":
            instruction_parameters(body.instruction, self.model)
            unit = {**FLOATS, "normalize": True}
            return self.parsed(http_request, body, [*first, *second], unit)
        of_each = zip(first, ([text] for text in second), strict=False)
        groups = [(first[0], second)] if len(first) == 1 else list(of_each)
        one, others = QUERY_KEYS if service == "rerank" else SENTENCE_KEYS
        inputs = [{one: text, others: compared} for text, compared in groups]
        raw = (
            {}
            if body.activates is None or service != "rerank"
            else {"raw_scores": not body.activates}
        )
        told = instruction_parameters(body.instruction, self.model)
        return self.parsed(http_request, body, inputs, {**raw, **told})

    def failure(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> RequestError | None:
        error = first_error(outcomes, None)
        if not isinstance(error, ITEM_ERRORS):
            return error
        number, body = list(map(id, outcomes)).index(id(error)), parsed.context.body
        second = _given(body, SECOND)
        if self.model.task.service != "embed":
            one = {QUERY_KEYS[0]: _given(body, FIRST), SENTENCE_KEYS[0]: _given(body, FIRST)}
            names = {"texts": second} if len(outcomes) == 1 else {"texts[0]": f"{second}[{number}]"}
            return with_names(error, {**one, **names})
        count = len(_texts(body, FIRST))
        name, number = (_given(body, FIRST), number) if number < count else (second, number - count)
        place = f"{name}[{number}]" if isinstance(getattr(body, name), list) else name
        return with_names(error, {"the text": place})

    def entries(self, body: ScoreBody, results: Sequence[Any]) -> list[ScoredPair]:
        return [
            {"index": index, "object": "score", "score": score}
            for index, score in enumerate(self._scores(body, results))
        ]

    def _scores(self, body: ScoreBody, results: Sequence[Any]) -> list[float]:
        if self.model.task.service == "embed":
            vectors = np.array(results, dtype=np.float64)
            count = len(_texts(body, FIRST))
            scores: list[float] = (vectors[:count] * vectors[count:]).sum(axis=-1).tolist()
            return scores
        if self.model.task.service == "similarity":
            return [score for scores in results for score in scores]
        return [
            each["score"]
            for ranking in results
            for each in sorted(ranking, key=lambda ranked: int(ranked["index"]))
        ]

    def _checked(self, body: ScoreBody, names: Sequence[str]) -> list[str]:
        """Return the texts of one side of a body."""
        name = _given(body, names)
        return self.texts(getattr(body, name), name)


def _given(body: ScoreBody, names: Sequence[str]) -> str:
    """Return the key of one side that a body has.

    Raises:
        BadRequest: it has none of them, or several.
    """
    found = [name for name in names if getattr(body, name) is not None]
    if not found:
        others = enumerate_names(names[1:])
        raise BadRequest(f"{names[0]} is missing, and so are its other names, {others}; add it.")
    if len(found) > 1:
        raise BadRequest(
            f"{found[-1]} is another name of {found[0]}, and the body has both; send one of them."
        )
    return found[0]


def _texts(body: ScoreBody, names: Sequence[str]) -> list[Any]:
    """Return the texts of one side, which may be a single one."""
    texts = getattr(body, _given(body, names))
    return texts if isinstance(texts, list) else [texts]


class Classify(PoolingModelEndpoint[ClassifyBody]):
    """`classify`: the probability of each label of a text."""

    route = Route(
        "v1/classify",
        name="classify",
        server="vLLM",
        summary="Return the probability of each label of each text.",
        response=ClassificationList,
        error=OpenAIError,
        abilities=("predict",),
        body=ClassifyBody,
        # infinity's endpoint of this name has another response.
        keys=KeyTable.of(ClassifyBody, OTHERS, OF_MESSAGES, refused(raw_scores=False)),
        examples=lambda sample: {
            "one": {"input": sample["inputs"]},
            "logits": {"input": [sample["inputs"]] * 2, "use_activation": False},
        },
    )
    inputs_key = "input"
    id_prefix = "classify"

    def parsed_request(self, http_request: HttpRequest, body: ClassifyBody) -> ParsedRequest:
        labels = self.model.labels
        if len(set(labels)) < len(labels):
            raise Unprocessable(
                "Several classes of this model have one label, so that the probabilities have no"
                " order; send the texts without this path."
            )
        texts = self.texts(body.input, "input")
        logits = {"function_to_apply": "none"} if body.activates is False else {}
        return self.parsed(http_request, body, texts, {"top_k": None, **logits})

    def entries(self, body: ClassifyBody, results: Sequence[Any]) -> list[Classification]:
        return [self._entry(index, result) for index, result in enumerate(results)]

    def _entry(self, index: int, result: Sequence[Any]) -> Classification:
        scores = {each["label"]: each["score"] for each in result}
        return {
            "index": index,
            "label": result[0]["label"],
            "probs": [scores[label] for label in self.model.labels],
            "num_classes": len(scores),
        }


class Pooling(PoolingModelEndpoint[PoolingBody]):
    """`pooling`: the vector of a text, or a vector for each of its tokens."""

    route = Route(
        "v1/pooling",
        name="pooling",
        server="vLLM",
        summary="Return the vector of each text, or of each of its tokens.",
        response=PooledList,
        error=OpenAIError,
        abilities=("pools",),
        body=PoolingBody,
        keys=KeyTable.of(
            PoolingBody,
            OTHERS,
            OF_MESSAGES,
            refused(embed_dtype="float32", endianness=["native", "little"], data=[]),
        ),
        examples=lambda _: {
            "one": {"input": "Nina sings in the bar."},
            "list": {"input": ["Nina sings.", "It rains today."], "encoding_format": "base64"},
        },
    )
    inputs_key = "input"
    id_prefix = "pool"

    def parsed_request(self, http_request: HttpRequest, body: PoolingBody) -> ParsedRequest:
        texts = texts_or_ids(body.input, "input", self.model.limits.max_rows)
        task = "embed" if self._embeds else "token_embed"
        if body.task not in (None, task):
            raise Unprocessable(f"task is {body.task}, and this model does {task}; leave it out.")
        if self._embeds:
            return self.parsed(http_request, body, texts, {**FLOATS, **self._settings(body)})
        if given := self._settings(body):
            raise Unprocessable(
                f"{min(given)} cannot be done by this server for the vectors of tokens"
                "; leave it out."
            )
        return self.parsed(http_request, body, texts, {})

    def entries(self, body: PoolingBody, results: Sequence[Any]) -> list[PooledText]:
        return [
            {"index": index, "object": "pooling", "data": self._data(body, result)}
            for index, result in enumerate(results)
        ]

    @property
    def _embeds(self) -> bool:
        return self.model.task.service == "embed"

    def _settings(self, body: PoolingBody) -> dict[str, Any]:
        normalize = one_value({"normalize": body.normalize, "use_activation": body.activates})
        given = {"dimensions": body.dimensions, "normalize": normalize}
        return {name: value for name, value in given.items() if value is not None}

    def _data(self, body: PoolingBody, result: Any) -> Any:
        # The pipeline of features puts the vectors of a text in a list of one.
        vectors = result[0] if self.model.task.service == "embed_all" else result
        if body.encoding_format != "base64":
            return vectors
        return in_base64(np.asarray(vectors, dtype="<f4"))
