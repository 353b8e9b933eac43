"""vLLM's `tokenize` and `detokenize` below a model's path, for the tokenizer of any model:

    tokenize     {"prompt": "a text"} -> {"tokens": [5, 8], "count": 2, "max_model_len": 512}
                 {"messages": [{"role": "user", "content": "…"}]}, by the chat template
    detokenize   {"tokens": [5, 8]} -> {"prompt": "a text"}

A body with `inputs` on the same path belongs to text-generation-inference.

https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html#tokenizer-api
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from ..errors import BadRequest, WholeErrorBody
from ..http.request import HttpRequest
from ..types.parameters import parse_body
from ..types.request import MAX_MESSAGES, Operation, Request, TokenIds, TokenizedText
from ..types.structured_output import Tools
from .base import (
    NO_BODY,
    BaseProtocol,
    Key,
    KeyTable,
    ParsedRequest,
    Route,
    check_count,
    ignored,
    refused,
)

TOKENIZE: Literal["tokenize"] = "tokenize"
DETOKENIZE: Literal["detokenize"] = "detokenize"


class TokenizerBody(BaseModel):
    """Base of both bodies; others are left to the table of keys."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    model: str | None = None


class TokenizeBody(TokenizerBody):
    """The body of `tokenize`: a prompt, or the messages of a chat."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}]}
    )

    prompt: str | None = None
    messages: Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Tools | None = None


class DetokenizeBody(TokenizerBody):
    """The body of `detokenize`."""

    tokens: Annotated[list[int], Field(fail_fast=True)]


class TokenizedPrompt(TypedDict):
    """The tokens of a prompt; `max_model_len` is null for no limit."""

    tokens: list[int]
    count: int
    max_model_len: int | None


class DetokenizedPrompt(TypedDict):
    """The text of tokens."""

    prompt: str


TOKENIZE_ROUTE = Route(
    TOKENIZE,
    name="tokenizePrompt",
    server="vLLM",
    summary="Return the tokens of a prompt.",
    response=TokenizedPrompt,
    error=WholeErrorBody,
    abilities=("tokenizes",),
    body=TokenizeBody,
    keys=KeyTable.of(
        TokenizeBody,
        ignored("request_id", "user"),
        refused(
            return_token_strs=False,
            truncate_prompt_tokens=[],
            mm_processor_kwargs=[],
            media_io_kwargs=[],
        ),
        {"chat_template": Key("refused", remedy="the checkpoint's own is used, so leave it out")},
    ),
    examples=lambda _: {"prompt": {"prompt": "Once upon a time", "add_special_tokens": False}},
    description="A prompt or messages get ids, as from vLLM.",
)


class Protocol(BaseProtocol):
    """The tokenizer of a model; `model` may be any name, since the path selects the model."""

    body_keys = NO_BODY
    routes = (
        TOKENIZE_ROUTE,
        replace(
            TOKENIZE_ROUTE,
            abilities=("continues_prompts",),
            description="",
            examples=lambda _: {
                "chat": {"messages": [{"role": "user", "content": "Once upon a time"}]}
            },
        ),
        Route(
            DETOKENIZE,
            name="detokenize",
            server="vLLM",
            summary="Return the text of tokens.",
            response=DetokenizedPrompt,
            error=WholeErrorBody,
            abilities=("tokenizes",),
            body=DetokenizeBody,
            keys=KeyTable.of(DetokenizeBody, ignored("request_id", "user")),
            examples=lambda _: {"one": {"tokens": [5, 6, 7]}},
        ),
    )

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        route = next(each for each in self.routes if each.path == http_request.path)
        http_request = route.check(http_request, self.model)
        parse = self._parse_text if http_request.path == TOKENIZE else self._parse_ids
        return parse(http_request)

    def response_body(
        self, parsed: ParsedRequest, results: Sequence[Any]
    ) -> TokenizedPrompt | DetokenizedPrompt:
        (result,) = results
        if not isinstance(result, TokenizedText):
            return {"prompt": result}
        limit = self.model.limits.max_total_tokens
        return {"tokens": result.ids.tolist(), "count": len(result), "max_model_len": limit}

    def _parse_text(self, http_request: HttpRequest) -> ParsedRequest:
        content = http_request.content
        messages = content.get("messages") if isinstance(content, dict) else None
        if isinstance(messages, list):
            check_count(len(messages), "messages", MAX_MESSAGES)
        body = parse_body(TokenizeBody, content)
        inputs = [each for each in (body.prompt, body.messages) if each is not None]
        if len(inputs) != 1:
            raise BadRequest("The body has neither prompt nor messages, or both; send one of them.")
        named = {
            "add_special_tokens",
            "add_generation_prompt",
            "continue_final_message",
            "chat_template_kwargs",
            "tools",
        }
        parameters = body.model_dump(include=named, exclude_none=True)
        return ParsedRequest(
            http_request, [Request(inputs[0], parameters)], call=Operation.TOKENIZE
        )

    def _parse_ids(self, http_request: HttpRequest) -> ParsedRequest:
        content = http_request.content
        tokens = content.get("tokens") if isinstance(content, dict) else None
        if isinstance(tokens, list):
            # Before each of them is checked.
            TokenIds(tuple(tokens)).check_length(self.model.limits.max_characters)
        ids = TokenIds(tuple(parse_body(DetokenizeBody, content).tokens))
        return ParsedRequest(http_request, [Request(ids)], call=Operation.DETOKENIZE)
