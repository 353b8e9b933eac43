"""The endpoints `chat/completions` and `completions`: generated texts, whole or as events.

https://platform.openai.com/docs/api-reference/chat/object and /completions/object
"""

from __future__ import annotations

import re
import time
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, repeat
from typing import Any, ClassVar, NamedTuple, TypeVar

from ...errors import RequestError
from ...generation.parameters import check_best_of
from ...generation.tool_syntaxes.base import ToolCall
from ...http.request import HttpRequest
from ...http.response import HttpResponse, encode_json
from ...http.streams import SERVER_SENT_EVENTS, HttpTextStream, event
from ...types.model_info import ModelInfo
from ...types.request import MAX_MESSAGES, GeneratedToken, Request, TextToken, WrittenTokens
from ..base import ParsedRequest, Route, check_count
from ..truncation import ALL_TOKENS, check_prompt_tokens
from .bodies import CHAT, COMPLETIONS, ChatBody, CompletionBody, Sampling
from .endpoint import Call, Endpoint, adapter_parameters, fingerprint, served_name
from .types import (
    CallOfTool,
    CallPart,
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatLogprobs,
    ChatPart,
    ChatReason,
    ChoiceEnd,
    Completion,
    CompletionChunk,
    CompletionPart,
    Delta,
    LikelyToken,
    OpenAIError,
    PromptTokens,
    RankedToken,
    Reason,
    Reply,
    ScoredToken,
    TextChoice,
    TextLogprobs,
    Usage,
)

# A token of a text, and the most likely ones in its place.
Scored = tuple[TextToken, Sequence[TextToken]]


def scored(tokens: Sequence[GeneratedToken]) -> list[Scored]:
    """Return the tokens of a part of a stream."""
    return [(token.as_json(), token.top_as_json()) for token in tokens]


def scored_in(details: Mapping[str, Any]) -> list[Scored] | None:
    """Return the tokens in the details of a result; None where they are not requested."""
    if "tokens" not in details:
        return None
    new = zip(details["tokens"], details.get("top_tokens", repeat(())), strict=False)
    return [*scored_prompt(details), *new]


def scored_for(body: Sampling, details: Mapping[str, Any]) -> list[Scored] | None:
    """Return the tokens of the key `logprobs`; None for a body without that key."""
    tokens = scored_in(details)
    if tokens is None or body.top_tokens is None:
        return None
    first = 0 if body.echoes else len(details["prefill"])
    return [(token, top[: body.top_tokens]) for token, top in tokens[first:]]


def scored_prompt(details: Mapping[str, Any]) -> list[Scored]:
    """Return the tokens of the prompt in the details of a result."""
    tops = details.get("prefill_top_tokens", repeat(()))
    return list(zip(details["prefill"], tops, strict=False))


def prompt_tokens(result: Mapping[str, Any], body: Sampling) -> PromptTokens:
    """Return the keys of vLLM about the tokens of a prompt; null where a body asks for none.

    The first token has no log probability.
    """
    details, count = result["details"], body.prompt_logprobs
    scores: list[dict[str, RankedToken] | None] | None = None
    if count is not None:
        scores = [None, *(_ranked(*each, count) for each in scored_prompt(details)[1:])]
    return {"prompt_logprobs": scores, "prompt_token_ids": details.get("prompt_token_ids")}


def choice_end(result: Mapping[str, Any]) -> ChoiceEnd:
    """Return the keys of vLLM about the end of a choice and its tokens."""
    details = result["details"]
    return {"stop_reason": stop_reason(details), "token_ids": details.get("token_ids")}


def stop_reason(details: Mapping[str, Any]) -> str | int | None:
    """Return the stop string or the stop token that ended a text; None for another end."""
    found: str | int | None = details.get("stop_sequence", details.get("stop_token_id"))
    return found


def _ranked(token: TextToken, top: Sequence[TextToken], count: int) -> dict[str, RankedToken]:
    ranks = {each["id"]: rank for rank, each in enumerate(top, 1)}
    return {
        str(each["id"]): {
            "logprob": each["logprob"] or 0.0,
            "rank": ranks.get(each["id"], each.get("rank")),
            "decoded_token": each["text"],
        }
        for each in (token, *top[:count])
    }


def chat_logprobs(tokens: Sequence[Scored], *, as_ids: bool = False) -> ChatLogprobs:
    """Return `logprobs` of a choice of `chat/completions`.

    Args:
        as_ids: whether tokens have their ids instead of their texts.
    """
    content: list[ScoredToken] = [
        {**_entry(token, as_ids), "top_logprobs": [_entry(each, as_ids) for each in top]}
        for token, top in tokens
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(
    tokens: Sequence[Scored], offset: int, *, as_ids: bool = False
) -> TextLogprobs:
    """Return `logprobs` of a choice of `completions`.

    Args:
        offset: where their text begins in the text of the choice, in characters.
        as_ids: whether tokens have their ids instead of their texts.
    """
    texts = [token["text"] for token, _ in tokens]
    likely: list[dict[str, float] | None] = []
    for token, top in tokens:
        # The first of several tokens with one text counts.
        scores = ((_shown(each, as_ids), each["logprob"]) for each in (token, *reversed(top)))
        found = {text: logprob for text, logprob in scores if logprob is not None}
        likely.append(found or None)
    return {
        "tokens": [_shown(token, as_ids) for token, _ in tokens],
        "token_logprobs": [token["logprob"] for token, _ in tokens],
        "top_logprobs": likely,
        "text_offset": list(accumulate(map(len, texts), initial=offset))[:-1],
    }


def _shown(token: TextToken, as_ids: bool) -> str:
    """Return the text of a token, or its id as vLLM writes it instead."""
    return f"token_id:{token['id']}" if as_ids else token["text"]


def _entry(token: TextToken, as_ids: bool) -> LikelyToken:
    """Return a token with its bytes; a part of a character has other bytes than its text."""
    # What stands for parts before it is in the text, and its bytes are theirs.
    own = token["text"].lstrip("\N{REPLACEMENT CHARACTER}") or token["text"]
    raw = token.get("bytes") or list(own.encode(errors="replace"))
    # Only the first token of a prompt has none, which chats do not return.
    return {"token": _shown(token, as_ids), "logprob": token["logprob"] or 0.0, "bytes": raw}


# Sentences of the engine about the messages, and about a grammar, which is in one of several keys.
ABOUT_TEMPLATE = re.compile("chat template")
ABOUT_PROMPT = re.compile("The prompt (has|is) ")
ABOUT_GRAMMAR = re.compile(r"grammar|regex|JSON schema", re.IGNORECASE)
DONE = b"data: [DONE]\n\n"
FINISH_REASONS: Mapping[str, Reason] = {
    "length": "length",
    "eos_token": "stop",
    "stop_sequence": "stop",
}

AS_CHUNKS = """\
With `stream: true` the answer comes as server-sent events: each holds a chunk, and the last one \
`[DONE]`."""
# Parts of the examples.
FEW = {"max_tokens": 8}
CHAT_EXAMPLE = {"messages": [{"role": "user", "content": "Once upon a time"}], **FEW}
LOGPROBS = {"logprobs": True, "top_logprobs": 2}
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
SCHEMA = {
    "type": "object",
    "properties": {"animal": {"enum": ["fox", "bear"]}},
    "required": ["animal"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "find_animal", "parameters": SCHEMA}}

BodyT = TypeVar("BodyT", bound=Sampling)


@dataclass(frozen=True)
class GenerationCall(Call[BodyT]):
    """What an endpoint needs to write a response.

    Attributes:
        head: the keys that the response, or each of its chunks, begins with.
    """

    head: Mapping[str, Any]


class TextPart(NamedTuple):
    """New text of a choice, or its end.

    Attributes:
        reasoning: new thoughts before the text.
        tokens: its tokens, where they are recorded.
        offset: where it begins in the text of the choice, in characters.
        first: whether it is the first part of the choice.
        reason: why the text ended; None where it goes on.
    """

    number: int
    text: str
    tokens: Sequence[Scored]
    offset: int
    first: bool
    reason: Any
    reasoning: str = ""


class ChoiceStream(HttpTextStream):
    """Sends the texts of the choices of one prompt as chunks.

    Args:
        index: the number of its choice, the first one.
        prefix: text before the generated one.
        others: the streams of the other choices.
        repeats: whether the other choices have the text of the first, which is generated alone.
    """

    sends_sequences = True

    def __init__(
        self,
        http_request: HttpRequest,
        endpoint: GenerationEndpoint[Any],
        call: GenerationCall[Any],
        index: int,
        prefix: str = "",
        others: Sequence[ChoiceStream] = (),
        *,
        repeats: bool = False,
    ) -> None:
        super().__init__(http_request)
        self._endpoint, self._call = endpoint, call
        self._index, self._prefix = index, prefix
        self._others, self._repeats = others, repeats
        self._offset, self._has_ended = 0, False
        self._sent_calls, self._sent_ids, self._has_head = 0, 0, False

    @property
    def _repeating(self) -> Iterator[ChoiceStream]:
        """The streams that send the same text."""
        for other in self._others if self._repeats else ():
            other.written = self.written
            yield other

    def emit(self, text: str, tokens: Sequence[GeneratedToken] = ()) -> None:
        super().emit(self._prefix + text, tokens)
        for other in self._repeating:
            other.emit(text, tokens)

    def emit_reasoning(self, reasoning: str, tokens: Sequence[GeneratedToken] = ()) -> bool:
        sent = super().emit_reasoning(reasoning, tokens)
        for other in self._repeating:
            other.emit_reasoning(reasoning, tokens)
        return sent

    def emit_calls(self, calls: Sequence[ToolCall]) -> None:
        new = [call.as_json for call in calls[self._sent_calls :]]
        if new and self.can_send:
            self.send(self._calls(new))
        for other in self._repeating:
            other.emit_calls(calls)

    @property
    def has_begun(self) -> bool:
        others = any(other.has_begun for other in self._others)
        return super().has_begun or self._has_head or others

    def of_sequence(self, number: int) -> ChoiceStream:
        return self._others[number - 1] if number else self

    def part(self, text: str, tokens: Sequence[GeneratedToken]) -> bytes:
        return self._chunk(text, scored(tokens))

    def reasoning_part(self, text: str, tokens: Sequence[GeneratedToken]) -> bytes:
        if not self._endpoint.includes_reasoning(self._call.body):
            return b""
        return self._chunk("", scored(tokens), reasoning=text)

    def end(self, result: Mapping[str, Any]) -> None:
        if self.can_send:
            self.send(self.rest(result))
            for other in self._repeating:
                other.end(result)

    def rest(self, result: Mapping[str, Any]) -> bytes:
        """Return the events of the part of a complete result that was not sent, and of its end."""
        if self._has_ended:
            return b""
        self._has_ended = True
        text, details = self._endpoint.text(result, self._call.body), result["details"]
        tokens = scored_for(self._call.body, details) or ()
        self.written = WrittenTokens(
            details["input_length"],
            details["generated_tokens"],
            details.get("prompt_token_ids", ()),
            details.get("token_ids", ()),
        )
        reasoning = self._endpoint.reasoning(result, self._call.body)
        thoughts, new = reasoning[len(self.emitted_reasoning) :], self.not_emitted(text)
        left = tokens[self.emitted_tokens :]
        part = self._chunk("", (), reasoning=thoughts) if thoughts else b""
        if new or left or not self._has_head:
            part += self._chunk(new, left)
        calls = self._calls(result.get("tool_calls", ())[self._sent_calls :])
        reason, stopped_by = self._endpoint.finish_reason(result), stop_reason(details)
        return part + calls + self._chunk("", (), reason=reason, stopped_by=stopped_by)

    def _calls(self, calls: Sequence[Any]) -> bytes:
        """Return the events of new tool calls."""
        head = b"" if self._has_head or not calls else self._chunk("", ())
        parts = self._endpoint.call_parts(self._index, calls, self._sent_calls)
        self._sent_calls += len(calls)
        return head + b"".join(map(self._event, parts))

    def _event(self, choice: Any, more: Mapping[str, Any] = {}) -> bytes:
        chunk = {**self._call.head, "choices": [choice], **more}
        if self._call.body.counts_continuously:
            chunk["usage"] = _counted(self.written.read, self.written.new)
        return event(chunk)

    def _chunk(
        self,
        text: str,
        tokens: Sequence[Scored],
        *,
        reason: ChatReason | None = None,
        reasoning: str = "",
        stopped_by: str | int | None = None,
    ) -> bytes:
        """Return the event of new text or thoughts, or of the end with its reason.

        Args:
            stopped_by: the stop string or the stop token that ended the text.
        """
        first, self._has_head = not self._has_head, True
        part = TextPart(self._index, text, tokens, self._offset, first, reason, reasoning)
        self._offset += len(text)
        choice = dict(self._endpoint.part(part, self._call.body))
        if reason:
            choice["stop_reason"] = stopped_by
        if not self._call.body.return_token_ids:
            return self._event(choice)
        choice["token_ids"] = list(self.written.new_ids[self._sent_ids :])
        self._sent_ids = len(self.written.new_ids)
        prompt = {"prompt_token_ids": list(self.written.prompt_ids)} if first else {}
        if self._endpoint.has_prompt_per_choice:
            return self._event({**choice, **prompt})
        return self._event(choice, prompt)


class GenerationEndpoint(Endpoint[BodyT]):
    """An endpoint that generates texts.

    Attributes:
        kind: the `object` of its responses; `chunk_kind` is the `object` of chunks of a stream.
        id_prefix: the prefix of the ids of its responses.
        has_prompt_per_choice: whether each choice has the tokens of its prompt.
    """

    has_prompt_per_choice: ClassVar[bool] = False
    kind: ClassVar[str]
    chunk_kind: ClassVar[str]
    id_prefix: ClassVar[str]

    def read_body(self, content: Any) -> BodyT:
        body = super().read_body(content)
        check_best_of(body.best_of, body.choices, "n")
        return body

    @abstractmethod
    def inputs(self, body: BodyT) -> list[Any]:
        """Return the inputs of each request."""

    @abstractmethod
    def choice(self, index: int, result: Mapping[str, Any], body: BodyT) -> Any:
        """Return a complete choice."""

    @abstractmethod
    def part(self, part: TextPart, body: BodyT) -> Any:
        """Return what a chunk has of a choice."""

    def prompt_keys(self, result: Mapping[str, Any], body: BodyT) -> Mapping[str, Any]:
        """Return what a response has of the tokens of its only prompt, from its first result."""
        return {}

    def call_parts(self, index: int, calls: Sequence[Any], first: int) -> list[Any]:
        """Return what chunks have of tool calls, given the number of the first one."""
        return []

    def text(self, result: Mapping[str, Any], body: BodyT) -> str:
        """Return the text of a result as a choice has it."""
        text: str = result["generated_text"]
        return text

    @abstractmethod
    def prefix(self, prompt: Any, body: BodyT) -> str:
        """Return the text that a stream sends before the new text of a prompt."""

    def reasoning(self, result: Mapping[str, Any], body: BodyT) -> str:
        """Return the thoughts of a result that the response has."""
        return result.get("reasoning_content", "") if self.includes_reasoning(body) else ""

    def includes_reasoning(self, body: BodyT) -> bool:
        """Return whether the response has the thoughts before an answer."""
        return False

    def finish_reason(self, result: Mapping[str, Any]) -> ChatReason:
        """Return why the text of a result ended."""
        return FINISH_REASONS[result["details"]["finish_reason"]]

    def parsed_request(self, http_request: HttpRequest, body: BodyT) -> ParsedRequest:
        parameters = {**body.parameters, **adapter_parameters(self.model, body.model)}
        if body.truncate_prompt_tokens is not None:
            limits = self.model.limits
            check_prompt_tokens(
                body.truncate_prompt_tokens, limits.max_total_tokens or limits.max_length
            )
        if body.truncate_prompt_tokens == ALL_TOKENS:
            parameters["truncate"] = longest_prompt(self.model, body.max_new_tokens or 1)
        call = GenerationCall(self, body, self._head(body))
        inputs = self.inputs(body)
        streams: Iterable[ChoiceStream | None] = repeat(None)
        if body.stream:
            repeats = parameters["num_return_sequences"] == 1
            streams = self._streams(http_request, call, inputs, repeats=repeats)
        requests = [
            Request(each, parameters, use_remaining_context=True, stream=stream)
            for each, stream in zip(inputs, streams, strict=False)
        ]
        return ParsedRequest(http_request, requests, call)

    def _head(self, body: BodyT) -> dict[str, Any]:
        return {
            "id": f"{self.id_prefix}-{uuid.uuid4().hex}",
            "object": self.chunk_kind if body.stream else self.kind,
            "created": int(time.time()),
            "model": served_name(self.model, body.model),
            "system_fingerprint": fingerprint(self.model),
        }

    def write(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        call: GenerationCall[BodyT] = parsed.context
        # Without sampling all choices of a prompt are equal: one is generated and repeated.
        choices = [texts * (call.body.choices // len(texts)) for texts in results]
        if call.body.stream:
            return SERVER_SENT_EVENTS.response(self._last_events(parsed, choices))
        texts = [text for of_prompt in choices for text in of_prompt]
        listed = [self.choice(number, text, call.body) for number, text in enumerate(texts)]
        response = {**call.head, "choices": listed, "usage": _usage(choices)}
        return HttpResponse(encode_json({**response, **self.prompt_keys(texts[0], call.body)}))

    def key_of(self, sentence: str, body: BodyT) -> str | None:
        if ABOUT_TEMPLATE.search(sentence) or ABOUT_PROMPT.match(sentence):
            return self.inputs_key
        if not ABOUT_GRAMMAR.search(sentence):
            return None
        return body.grammar_key or ("tools" if getattr(body, "tools", None) else None)

    def last_event(self, parsed: ParsedRequest, error: RequestError) -> bytes:
        return event(self.error_body(error, parsed.context.body)) + DONE

    def _streams(
        self,
        http_request: HttpRequest,
        call: GenerationCall[BodyT],
        inputs: Sequence[Any],
        *,
        repeats: bool,
    ) -> Iterator[ChoiceStream]:
        """Yield the stream of the choices of each input."""
        choices, new = call.body.choices, partial(ChoiceStream, http_request, self, call)
        for number, each in enumerate(inputs):
            prefix = self.prefix(each, call.body)
            first, *following = range(number * choices, (number + 1) * choices)
            others = [new(index, prefix) for index in following]
            yield new(first, prefix, others, repeats=repeats)

    def _last_events(self, parsed: ParsedRequest, choices: Sequence[Any]) -> bytes:
        """Return the events that end a stream."""
        call: GenerationCall[BodyT] = parsed.context
        parts: list[bytes] = []
        for request, texts in zip(parsed.requests, choices, strict=True):
            stream: Any = request.stream
            parts += [stream.of_sequence(number).rest(text) for number, text in enumerate(texts)]
        options = call.body.stream_options
        if options and options.include_usage:
            parts.append(event({**call.head, "choices": [], "usage": _usage(choices)}))
        return b"".join(parts) + DONE


class Chat(GenerationEndpoint[ChatBody]):
    """`chat/completions`: the messages of a chat, through the checkpoint's chat template."""

    route = Route(
        "v1/chat/completions",
        name="chat",
        server="OpenAI",
        summary="Answer a chat, by the checkpoint's own chat template.",
        response=ChatCompletion,
        error=OpenAIError,
        abilities=("continues_prompts",),
        body=ChatBody,
        keys=CHAT,
        examples=lambda _: {
            "one": CHAT_EXAMPLE,
            "logprobs": {**CHAT_EXAMPLE, **LOGPROBS},
            "stream": {**CHAT_EXAMPLE, **LOGPROBS, **STREAMED},
            "schema": {
                **CHAT_EXAMPLE,
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "story", "schema": SCHEMA, "strict": True},
                },
            },
            "tools": {**CHAT_EXAMPLE, "tools": [TOOL], "tool_choice": "auto"},
        },
        description=AS_CHUNKS,
        stream=SERVER_SENT_EVENTS,
        part=ChatCompletionChunk,
    )
    inputs_key = "messages"
    kind, chunk_kind, id_prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"

    def read_body(self, content: Any) -> ChatBody:
        messages = _list_in(content, "messages")
        if messages:
            check_count(len(messages), "messages", MAX_MESSAGES)
        return super().read_body(content)

    def inputs(self, body: ChatBody) -> list[Any]:
        return [body.messages]

    def prefix(self, prompt: Any, body: ChatBody) -> str:
        return body.echoed_text

    def text(self, result: Mapping[str, Any], body: ChatBody) -> str:
        return body.echoed_text + super().text(result, body)

    def choice(self, index: int, result: Mapping[str, Any], body: ChatBody) -> ChatChoice:
        text = self.text(result, body)
        message: Reply = {"role": "assistant", "content": text}
        if reasoning := self.reasoning(result, body):
            message["reasoning_content"] = message["reasoning"] = reasoning
        if calls := tool_calls(result.get("tool_calls", ())):
            message["content"] = text.strip() or None
            message["tool_calls"] = calls
        tokens = scored_for(body, result["details"])
        return {
            "index": index,
            "message": message,
            "logprobs": None if tokens is None else chat_logprobs(tokens, as_ids=body.shows_ids),
            "finish_reason": self.finish_reason(result),
            **choice_end(result),
        }

    def part(self, part: TextPart, body: ChatBody) -> ChatPart:
        delta: Delta = {"content": part.text} if part.text else {}
        if part.reasoning:
            delta = {"reasoning_content": part.reasoning, "reasoning": part.reasoning}
        if part.first:
            delta = {"role": "assistant", "content": part.text, **delta}
        return {
            "index": part.number,
            "delta": delta,
            "logprobs": chat_logprobs(part.tokens, as_ids=body.shows_ids) if part.tokens else None,
            "finish_reason": part.reason,
        }

    def prompt_keys(self, result: Mapping[str, Any], body: ChatBody) -> PromptTokens:
        return prompt_tokens(result, body)

    def includes_reasoning(self, body: ChatBody) -> bool:
        return body.include_reasoning is not False

    def call_parts(self, index: int, calls: Sequence[Any], first: int) -> list[ChatPart]:
        parts = call_parts(tool_calls(calls), first)
        deltas: list[Delta] = [{"tool_calls": [part]} for part in parts]
        return [
            {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
            for delta in deltas
        ]

    def finish_reason(self, result: Mapping[str, Any]) -> ChatReason:
        reason = super().finish_reason(result)
        return "tool_calls" if reason == "stop" and result.get("tool_calls") else reason


class Completions(GenerationEndpoint[CompletionBody]):
    """`completions`: one prompt or several."""

    route = Route(
        "v1/completions",
        name="complete",
        server="OpenAI",
        summary="Continue a prompt, or several.",
        response=Completion,
        error=OpenAIError,
        abilities=("continues_prompts",),
        body=CompletionBody,
        keys=COMPLETIONS,
        examples=lambda sample: {
            "one": {"prompt": sample["inputs"], **FEW},
            "list": {"prompt": [sample["inputs"]] * 2, **FEW},
            "logprobs": {"prompt": sample["inputs"], **FEW, "logprobs": 2},
            "stream": {"prompt": sample["inputs"], **FEW, **STREAMED},
        },
        description=AS_CHUNKS,
        stream=SERVER_SENT_EVENTS,
        part=CompletionChunk,
    )
    inputs_key = "prompt"
    kind, chunk_kind, id_prefix = "text_completion", "text_completion", "cmpl"
    has_prompt_per_choice = True

    def read_body(self, content: Any) -> CompletionBody:
        prompts = _list_in(content, "prompt")
        if prompts is not None and not isinstance(next(iter(prompts), None), int):
            check_count(len(prompts), "prompt", self.model.limits.max_rows)
        return super().read_body(content)

    def inputs(self, body: CompletionBody) -> list[Any]:
        return list(body.prompts)

    def prefix(self, prompt: Any, body: CompletionBody) -> str:
        return prompt if body.echoes and isinstance(prompt, str) else ""

    def choice(self, index: int, result: Mapping[str, Any], body: CompletionBody) -> TextChoice:
        tokens = scored_for(body, result["details"])
        return {
            "index": index,
            "text": result["generated_text"],
            "logprobs": None
            if tokens is None
            else completion_logprobs(tokens, 0, as_ids=body.shows_ids),
            "finish_reason": FINISH_REASONS[result["details"]["finish_reason"]],
            **choice_end(result),
            **prompt_tokens(result, body),
        }

    def part(self, part: TextPart, body: CompletionBody) -> CompletionPart:
        logprobs: TextLogprobs | None = None
        if part.tokens:
            logprobs = completion_logprobs(part.tokens, part.offset, as_ids=body.shows_ids)
        return {
            "index": part.number,
            "text": part.text,
            "logprobs": logprobs,
            "finish_reason": part.reason,
        }


def longest_prompt(model: ModelInfo, new_tokens: int) -> int:
    """Return the maximum length of a prompt before new tokens; 0 where there is no limit."""
    limits = model.limits
    room = limits.max_total_tokens and max(1, limits.max_total_tokens - new_tokens)
    return min(filter(None, (limits.max_length, room)), default=0)


def _list_in(content: Any, name: str) -> list[Any] | None:
    """Return a list of a body that is not checked yet; None where it has none."""
    value = content.get(name) if isinstance(content, dict) else None
    return value if isinstance(value, list) else None


def _usage(choices: Sequence[Any]) -> Usage:
    """Return the numbers of tokens; a prompt counts once, however many choices it has."""
    prompt = sum(texts[0]["details"]["input_length"] for texts in choices)
    details = [text["details"] for texts in choices for text in texts]
    completion = sum(each["generated_tokens"] for each in details)
    usage = _counted(prompt, completion)
    if any("reasoning_tokens" in each for each in details):
        reasoning = sum(each.get("reasoning_tokens", 0) for each in details)
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return usage


def _counted(read: int, new: int) -> Usage:
    return {"prompt_tokens": read, "completion_tokens": new, "total_tokens": read + new}


def tool_calls(calls: Sequence[Any]) -> list[CallOfTool]:
    """Return the tool calls of a result of the text-generation task, each with an id."""
    found: list[Any] = [{"id": f"call_{uuid.uuid4().hex[:24]}", **call} for call in calls]
    return found


def call_parts(calls: Sequence[CallOfTool], first: int = 0) -> list[CallPart]:
    """Return the parts of tool calls in a stream: of each its name, then its arguments."""
    parts: list[CallPart] = []
    for index, call in enumerate(calls, first):
        # What is called: a function with arguments, or a custom tool with an input.
        called: Any = call[call["type"]]
        key = "input" if call["type"] == "custom" else "arguments"
        named = {"name": called["name"], key: ""}
        head: Any = {"index": index, "id": call["id"], "type": call["type"], call["type"]: named}
        rest: Any = {"index": index, call["type"]: {key: called[key]}}
        parts += [head, rest]
    return parts
