"""The types of the responses of OpenAI's endpoints.

https://platform.openai.com/docs/api-reference
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

Reason = Literal["length", "stop"]
ChatReason = Literal["length", "stop", "tool_calls"]


class TextPart(TypedDict):
    """A part of a message."""

    type: Literal["text"]
    text: str


class CalledFunction(TypedDict):
    """A function, and its arguments as the JSON text of an object."""

    name: str
    arguments: str


class CalledTool(TypedDict):
    """A custom tool, and its text."""

    name: str
    input: str


class CallOfTool(TypedDict):
    """A call of a function, or of a custom tool."""

    id: str
    type: Literal["function", "custom"]
    function: NotRequired[CalledFunction]
    custom: NotRequired[CalledTool]


class ChatMessage(TypedDict):
    """One turn of a chat; `role` is most often `system`, `user`, `assistant` or `tool`.

    Only a message of the assistant may have no content.
    """

    role: str
    content: NotRequired[str | list[TextPart] | None]
    name: NotRequired[str]
    tool_calls: NotRequired[list[CallOfTool]]
    tool_call_id: NotRequired[str]


class Reply(TypedDict):
    """The assistant's message; its content is null where it has calls alone.

    The thoughts before the answer have two names: `reasoning` is vLLM's newer one.
    """

    role: Literal["assistant"]
    content: str | None
    reasoning_content: NotRequired[str]
    reasoning: NotRequired[str]
    tool_calls: NotRequired[list[CallOfTool]]


class FunctionPart(TypedDict, total=False):
    """What is new of a call's function."""

    name: str
    arguments: str


class CustomPart(TypedDict, total=False):
    """What is new of a call's custom tool."""

    name: str
    input: str


class CallPart(TypedDict):
    """What is new of a call: first its id, type and name, then its arguments."""

    index: int
    id: NotRequired[str]
    type: NotRequired[Literal["function", "custom"]]
    function: NotRequired[FunctionPart]
    custom: NotRequired[CustomPart]


class Delta(TypedDict, total=False):
    """What is new of the assistant's message."""

    role: Literal["assistant"]
    content: str
    reasoning_content: str
    reasoning: str
    tool_calls: list[CallPart]


class OutputTokensDetails(TypedDict):
    """Tokens of the thoughts among those written."""

    reasoning_tokens: int


class Usage(TypedDict):
    """Tokens read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: NotRequired[OutputTokensDetails]


class Head(TypedDict):
    """The first keys of every response and of every event; `created` counts seconds since 1970."""

    id: str
    created: int
    model: str
    system_fingerprint: NotRequired[str]


class LikelyToken(TypedDict):
    """A token with its log probability and its bytes."""

    token: str
    logprob: float
    bytes: list[int]


class ScoredToken(LikelyToken):
    """A token of an answer, and the most likely ones in its place."""

    top_logprobs: list[LikelyToken]


class ChatLogprobs(TypedDict):
    """The tokens of an answer to a chat, or of what is new of it."""

    content: list[ScoredToken]
    refusal: None


class TextLogprobs(TypedDict):
    """The tokens of a continuation, and with `echo` the tokens of its prompt before them.

    `text_offset` counts characters from the beginning. The first token of a prompt has no log
    probability.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class RankedToken(TypedDict):
    """A token of a prompt, or a likely one in its place, by its rank among all tokens."""

    logprob: float
    rank: int | None
    decoded_token: str


class PromptTokens(TypedDict):
    """The tokens of a prompt, as vLLM has them.

    `prompt_logprobs` has the tokens by their ids, each with likely ones in its place;
    `prompt_token_ids` is there with `return_token_ids`.
    """

    prompt_logprobs: list[dict[str, RankedToken] | None] | None
    prompt_token_ids: list[int] | None


class ChoiceEnd(TypedDict):
    """What vLLM's choices have, too.

    `stop_reason` is the text of `stop`, or the token of `stop_token_ids`, that ended the text; null
    for another end. `token_ids` are the ids of its tokens, with `return_token_ids`.
    """

    stop_reason: str | int | None
    token_ids: list[int] | None


class ChatChoice(ChoiceEnd):
    """One answer to a chat."""

    index: int
    message: Reply
    logprobs: ChatLogprobs | None
    finish_reason: ChatReason


class ChatCompletion(Head, PromptTokens):
    """The response of `chat/completions`."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage


class PartKeys(TypedDict, total=False):
    """What vLLM's parts have, too: `stop_reason` in the last one, and the ids of new tokens."""

    stop_reason: str | int | None
    token_ids: list[int]


class ChatPart(PartKeys):
    """What is new of one answer to a chat."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: ChatReason | None


class ChatCompletionChunk(Head):
    """One event of a streamed chat; `usage` is in the last, if requested."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatPart]
    usage: NotRequired[Usage]
    prompt_token_ids: NotRequired[list[int]]


class TextChoice(ChoiceEnd, PromptTokens):
    """One continuation."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Reason


class CompletionPart(PartKeys):
    """What is new of one continuation."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Reason | None
    prompt_token_ids: NotRequired[list[int]]


class Completion(Head):
    """The response of `completions`."""

    object: Literal["text_completion"]
    choices: list[TextChoice]
    usage: Usage


class CompletionChunk(Head):
    """One event of streamed continuations; `usage` is in the last, if requested."""

    object: Literal["text_completion"]
    choices: list[CompletionPart]
    usage: NotRequired[Usage]


ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]


class OutputText(TypedDict):
    """The text of a message."""

    type: Literal["output_text"]
    text: str
    annotations: list[dict[str, Any]]
    logprobs: list[dict[str, Any]]


class ReasoningText(TypedDict):
    """The text of thoughts."""

    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(TypedDict):
    """The thoughts before a message or calls; there is no summary."""

    id: str
    type: Literal["reasoning"]
    summary: list[dict[str, Any]]
    status: ResponseStatus
    content: list[ReasoningText]


class FunctionCallItem(TypedDict):
    """A call of a function."""

    id: str
    type: Literal["function_call"]
    status: ResponseStatus
    call_id: str
    name: str
    arguments: str


class CustomCallItem(TypedDict):
    """A call of a custom tool."""

    id: str
    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str


class OutputMessage(TypedDict):
    """The message of a response."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: ResponseStatus
    content: list[OutputText]


class IncompleteDetails(TypedDict):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"]


class ResponseError(TypedDict):
    """What ended a response."""

    code: Literal["server_error"]
    message: str


class CacheDetails(TypedDict):
    """Tokens read from a cache and written to one, of which there is none."""

    cached_tokens: int
    cache_write_tokens: int


class ResponseUsage(TypedDict):
    """Tokens read and written."""

    input_tokens: int
    input_tokens_details: CacheDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class TextFormat(TypedDict):
    """The format of the text."""

    type: Literal["text", "json_object", "json_schema"]
    name: NotRequired[str | None]
    description: NotRequired[str | None]
    schema: NotRequired[dict[str, Any] | None]
    strict: NotRequired[bool | None]


class TextSettings(TypedDict):
    """The settings of the text."""

    format: TextFormat


class ReasoningSettings(TypedDict):
    """The settings of the thoughts."""

    effort: str | None
    summary: str | None


OutputItem = ReasoningItem | OutputMessage | FunctionCallItem | CustomCallItem


class Response(TypedDict):
    """The response of `responses`."""

    id: str
    object: Literal["response"]
    created_at: int
    status: ResponseStatus
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | None
    instructions: str | None
    max_output_tokens: int | None
    temperature: float | None
    top_p: float | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: ReasoningSettings
    store: bool
    text: TextSettings
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    truncation: Literal["auto", "disabled"]


class ResponseEvent(TypedDict):
    """One event of a streamed response, with the keys of its type."""

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    sequence_number: int
    response: NotRequired[Response]
    output_index: NotRequired[int]
    content_index: NotRequired[int]
    item_id: NotRequired[str]
    item: NotRequired[OutputItem]
    part: NotRequired[OutputText | ReasoningText]
    delta: NotRequired[str]
    text: NotRequired[str]
    arguments: NotRequired[str]
    input: NotRequired[str]
    logprobs: NotRequired[list[dict[str, Any]]]


class Embedding(TypedDict):
    """The vector of one input: its numbers, or these as float32 in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class InputUsage(TypedDict):
    """Tokens read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(TypedDict):
    """The response of `embeddings`."""

    object: Literal["list"]
    model: str
    data: list[Embedding]
    usage: InputUsage


class Moderation(TypedDict):
    """The categories of one input, each with whether it is flagged and with its score."""

    flagged: bool
    categories: dict[str, bool]
    category_scores: dict[str, float]
    category_applied_input_types: dict[str, list[Literal["text"]]]


class ExplainedModeration(TypedDict):
    """Which words of an input led to a category."""

    explanation: dict[str, Any]


class ModerationResponse(TypedDict):
    """The response of `moderations`."""

    id: str
    model: str
    results: list[Moderation | ExplainedModeration]


class PredicateAnswer(TypedDict):
    """The probability that a statement is true."""

    type: Literal["predicate"]
    name: str | None
    probability: float


class ChoiceProbability(TypedDict):
    """The probability of an option."""

    value: str | bool
    probability: float


class ChoiceAnswer(TypedDict):
    """The likeliest option, and the probability of each, in their order.

    `confidence` is 1 where one option is certain, and 0 where all are equally likely.
    """

    type: Literal["choice"]
    name: str | None
    choice: str | bool
    probabilities: list[ChoiceProbability]
    confidence: float


class ScoreProbability(TypedDict):
    """The probability of a level; the lowest has the value 0."""

    value: int
    label: str
    probability: float


class ScoreAnswer(TypedDict):
    """The mean of the values of the levels, and the probability of each."""

    type: Literal["score"]
    name: str | None
    score: float
    probabilities: list[ScoreProbability]
    confidence: float


class RefusalAnswer(TypedDict):
    """A question that the model cannot answer, and why."""

    type: Literal["refusal"]
    name: str | None
    message: str


class ExplainedAnswer(TypedDict):
    """Which words led to an answer."""

    type: Literal["predicate", "choice", "score"]
    name: str | None
    explanation: dict[str, Any]


DecisionAnswer = PredicateAnswer | ChoiceAnswer | ScoreAnswer | RefusalAnswer | ExplainedAnswer


class DecisionUsage(TypedDict):
    """Tokens read."""

    input_tokens: int
    input_tokens_details: CacheDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class Decision(TypedDict):
    """The response of `decisions`; explanations have no usage."""

    model: str
    answers: list[DecisionAnswer]
    usage: NotRequired[DecisionUsage]


class NoulAnswer(TypedDict):
    """The probability that the answer is yes."""

    type: Literal["noul"]
    noul: float


class NamedChoiceAnswer(TypedDict):
    """The likeliest option, and the probability of each by its name."""

    type: Literal["choice"]
    choice: str
    probabilities: dict[str, float]
    confidence: float


class NamedScoreAnswer(TypedDict):
    """The mean of the numbers of the levels; the level and the probability of each number."""

    type: Literal["score"]
    score: float
    legend: dict[str, Any]
    probabilities: dict[str, float]
    confidence: float


class NamedExplainedAnswer(TypedDict):
    """Which words led to an answer."""

    type: Literal["noul", "choice", "score"]
    explanation: dict[str, Any]


SystemOneAnswer = NoulAnswer | NamedChoiceAnswer | NamedScoreAnswer | NamedExplainedAnswer


class SystemOneUsage(TypedDict):
    """Tokens read."""

    input_tokens: int
    output_tokens: int


class SystemOneDecision(TypedDict):
    """The response of `systemone`; explanations have no usage."""

    model: str
    answers: dict[str, SystemOneAnswer]
    usage: NotRequired[SystemOneUsage]


class ScoredPair(TypedDict):
    """How well the texts of a pair fit each other."""

    index: int
    object: Literal["score"]
    score: float


class Classification(TypedDict):
    """The likeliest label of one text, and the probability of each class, by its number."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class PooledText(TypedDict):
    """The vector of one text, the vectors of its tokens, or their float32 numbers in base64."""

    index: int
    object: Literal["pooling"]
    data: list[float] | list[list[float]] | str


class ListHead(TypedDict):
    """The keys of the lists of vLLM's endpoints; `created` counts seconds since 1970."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    usage: InputUsage


class ScoreList(ListHead):
    """The response of `score`."""

    data: list[ScoredPair]


class ClassificationList(ListHead):
    """The response of `classify`."""

    data: list[Classification]


class PooledList(ListHead):
    """The response of `pooling`."""

    data: list[PooledText]


ImageFormat = Literal["png", "jpeg", "webp"]


class ImageData(TypedDict):
    """An image as a file in base64."""

    b64_json: str


class ImagesResponse(TypedDict):
    """The response of `images/generations`; `seeds` has the seed of each image."""

    created: int
    data: list[ImageData]
    seeds: list[int]
    output_format: ImageFormat
    size: str


class ImageEvent(TypedDict):
    """The event of a stream of `images/generations`."""

    type: Literal["image_generation.completed"]
    b64_json: str
    created_at: int
    background: Literal["opaque"]
    quality: Literal["auto"]
    output_format: ImageFormat
    size: str


class TranscribedSegment(TypedDict):
    """A segment of a text, and where it begins and ends, in seconds."""

    id: int
    start: float
    end: float
    text: str


class TranscribedWord(TypedDict):
    """A word, and where it begins and ends, in seconds."""

    word: str
    start: float
    end: float


class Transcription(TypedDict):
    """The text of an audio file."""

    text: str


class DetailedTranscription(Transcription):
    """The text of an audio file with its parts, for `verbose_json`."""

    task: str
    language: str
    duration: float
    segments: NotRequired[list[TranscribedSegment]]
    words: NotRequired[list[TranscribedWord]]


class ServedModel(TypedDict):
    """A model that is served; a LoRA adapter has the name of the model as its parent.

    `root` and `max_model_len` are vLLM's: the id again, and the maximum number of tokens of a
    prompt and its new text together, or of a text; null for no limit.
    """

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    max_model_len: int | None
    parent: NotRequired[str]


class ServedModelStatus(ServedModel):
    """The response of `models/<name>`, with the keys that KServe's V1 has as well."""

    name: str
    ready: bool


class ModelList(TypedDict):
    """The response of `models`."""

    object: Literal["list"]
    data: list[ServedModel]


class OpenAIProblem(TypedDict):
    """What is wrong."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None
    code: Literal["model_not_found", "context_length_exceeded"] | None


class OpenAIError(TypedDict):
    """An error in OpenAI's shape."""

    error: OpenAIProblem
