"""The responses of OpenAI's endpoints.

https://platform.openai.com/docs/api-reference/chat and /completions
"""

from __future__ import annotations

from typing import Literal, NotRequired

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


class CallOfTool(TypedDict):
    """A call of a tool."""

    id: str
    type: Literal["function"]
    function: CalledFunction


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
    """The assistant's message; its content is null where it has calls alone."""

    role: Literal["assistant"]
    content: str | None
    tool_calls: NotRequired[list[CallOfTool]]


class FunctionPart(TypedDict, total=False):
    """What is new of a call's function."""

    name: str
    arguments: str


class CallPart(TypedDict):
    """What is new of a call: first its id, type and name, then its arguments."""

    index: int
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionPart


class Delta(TypedDict, total=False):
    """What is new of the assistant's message."""

    role: Literal["assistant"]
    content: str
    tool_calls: list[CallPart]


class Usage(TypedDict):
    """Tokens read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Head(TypedDict):
    """What every answer and every part of one begins with; `created` counts seconds since 1970."""

    id: str
    created: int
    model: str


class ChatChoice(TypedDict):
    """One answer to a chat."""

    index: int
    message: Reply
    logprobs: None
    finish_reason: ChatReason


class ChatCompletion(Head):
    """The answer of `chat/completions`."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage


class ChatPart(TypedDict):
    """What is new of one answer to a chat."""

    index: int
    delta: Delta
    logprobs: None
    finish_reason: ChatReason | None


class _ChatEvent(Head):
    object: Literal["chat.completion.chunk"]
    choices: list[ChatPart]


class ChatCompletionChunk(_ChatEvent, total=False):
    """One event of a streamed chat; `usage` is in the last, if requested."""

    usage: Usage


class TextChoice(TypedDict):
    """One continuation, or in a stream what is new of it."""

    index: int
    text: str
    logprobs: None
    finish_reason: Reason | None


class _TextEvent(Head):
    object: Literal["text_completion"]
    choices: list[TextChoice]


class Completion(_TextEvent):
    """The answer of `completions`."""

    usage: Usage


class CompletionChunk(_TextEvent, total=False):
    """One event of streamed continuations; `usage` is in the last, if requested."""

    usage: Usage


class ServedModel(TypedDict):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(TypedDict):
    """The answer of `models`."""

    object: Literal["list"]
    data: list[ServedModel]


class OpenAIProblem(TypedDict):
    """What is wrong."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: None
    code: None


class OpenAIError(TypedDict):
    """An error in OpenAI's shape."""

    error: OpenAIProblem
