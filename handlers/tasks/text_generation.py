"""Text generation: a prompt to its continuation, greedy by default.

    {"inputs": "Once upon", "parameters": {"max_new_tokens": 20, "stop": ["."]}}
    -> [{"generated_text": "Once upon a time there was a fox"}]

The messages of a chat go through the checkpoint's chat template, and the result has them with the
new one; with `return_full_text: false` it has the new one alone.

The result of a request is that of `model.generate` for its prompt alone: rows share a forward only
where that does not change any result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, NotRequired

from pydantic import Field
from tokenizers import Encoding
from typing_extensions import TypedDict

from handlers.batching.padding import Padding
from handlers.batching.rows import Outputs
from handlers.batching.tokenization import Text, Window, check_length, has_offsets
from handlers.checkpoints.checkpoint import Checkpoint
from handlers.config.handler_section import HandlerSection
from handlers.errors import BadRequest, RequestError, TextTooLong, Unprocessable, attempt
from handlers.generation.chat import Message, MessageCall, chat_template, check_messages, prompt_of
from handlers.generation.decoding import AS_GENERATED
from handlers.generation.generator import DECODER_ONLY, Prompt, end_tokens
from handlers.generation.grammar import GrammarCompiler
from handlers.generation.parameters import GenerationParameters
from handlers.generation.stopping import GenerationState
from handlers.generation.text_grammar import TextGrammar
from handlers.generation.tool_calls import ToolSyntax, ToolUse, syntax_of
from handlers.tasks._generation import Details, GenerationTask, details
from handlers.types.model_info import LegacyResponse
from handlers.types.request import Request, TextStream, TokenIds
from handlers.types.text_checks import check_text

NEW_TOKENS = 50


class Generated(TypedDict):
    """One continuation of a prompt, or of a chat: its messages and the new one."""

    generated_text: str | list[Message]
    tool_calls: NotRequired[list[MessageCall]]
    details: NotRequired[Details]


@dataclass(frozen=True)
class PromptQuery:
    """One prompt to continue; of a chat, the result of its template.

    `ids` are the tokens of a prompt that the client tokenized. `syntax` is that of the tool calls
    which the new text may have. `use_remaining_context` is the request's.
    """

    prompt: str
    parameters: GenerationParameters
    messages: Sequence[Message] = ()
    stream: TextStream | None = None
    ids: TokenIds | None = None
    use_remaining_context: bool = False
    grammar: TextGrammar | None = None
    syntax: ToolSyntax | None = None


def _legacy_response(texts: Any) -> str:
    """Return the prompt and the new text; of a chat, the new message alone."""
    text = texts[0]["generated_text"]
    return str(text if isinstance(text, str) else text[-1]["content"])


class Task(GenerationTask[PromptQuery]):
    """Text generation with a decoder; answers as the text-generation pipeline does."""

    auto_class = "AutoModelForCausalLM"
    layout = DECODER_ONLY
    parameters = GenerationParameters
    inputs = str | Annotated[list[Message], Field(min_length=1)]
    results = list[Generated]
    sample: ClassVar[Mapping[str, Any]] = {
        "inputs": "Once upon a time",
        "parameters": {"max_new_tokens": 8},
    }
    result_columns = ("generated_text",)
    legacy_response: ClassVar[LegacyResponse | None] = LegacyResponse(
        {"return_full_text": True}, _legacy_response
    )
    fastest_formats: ClassVar[Mapping[str, str]] = {"cpu": "openvino"}

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        if settings.tokenizer.truncation_side is None:
            self.tokenizer.truncation_side = "left"

    def parse(self, request: Request) -> PromptQuery:
        parameters: GenerationParameters = self.read_parameters(request.parameters)
        self.check_parameters(parameters)
        parameters.check_lookup()
        if self.settings.assistant_model is None:
            parameters.check_assistance()
        parameters.check_adapter(self.settings.adapters)
        query = replace(
            self._query(request, parameters), use_remaining_context=request.use_remaining_context
        )
        return self._with_grammar(query)

    def encode(self, queries: Sequence[PromptQuery]) -> list[list[Prompt] | RequestError]:
        rows: dict[int, list[Window] | RequestError] = {}
        groups = defaultdict[tuple[bool, int | None], list[int]](list)
        # A chat template adds special tokens itself.
        for number, query in enumerate(queries):
            if query.ids:
                rows[number] = [self._window(query.ids)]
            else:
                special = query.parameters.add_special_tokens
                adds = not query.messages if special is None else special
                groups[adds, query.parameters.truncate or None].append(number)
        for (adds, max_length), numbers in groups.items():
            texts: list[Text] = [(queries[number].prompt, None) for number in numbers]
            truncation: dict[str, Any] = (
                {"truncation": True, "max_length": max_length} if max_length else {}
            )
            encoded = self.encode_texts(texts, add_special_tokens=adds, **truncation)
            rows.update(zip(numbers, encoded, strict=True))
        return [self._row(query, rows[number]) for number, query in enumerate(queries)]

    def decode(self, query: PromptQuery, rows: Sequence[Window], outputs: Sequence[Outputs]) -> Any:
        query = self._as_read(query, rows[0])
        return [_generated(query, rows[0], text) for text in outputs[0]["texts"]]

    def adapter_of(self, query: PromptQuery) -> str | None:
        return query.parameters.adapter_id

    @property
    def max_tokens(self) -> int | None:
        """The maximum number of tokens in a prompt."""
        limits = (super().max_tokens, self.settings.max_total_tokens)
        return min(filter(None, limits), default=None)

    @property
    def max_total_tokens(self) -> int | None:
        """The maximum number of tokens in a prompt and its new text together."""
        limits = (self.checkpoint.limit, self.settings.max_total_tokens)
        return min(filter(None, limits), default=None)

    @property
    def padding(self) -> Padding:
        return Padding(self._pad_ids(), "left")

    def _query(self, request: Request, parameters: GenerationParameters) -> PromptQuery:
        inputs, stream = request.inputs, request.stream
        if isinstance(inputs, list) and any(isinstance(item, dict) for item in inputs):
            messages = check_messages(inputs, self.max_characters)
            tools = parameters.offered_tools
            options = parameters.template_options
            prompt = prompt_of(messages, self.tokenizer, self.max_characters, tools, options)
            return PromptQuery(prompt, parameters, messages, stream)
        if isinstance(inputs, TokenIds):
            ids = self._fit_ids(inputs, parameters.truncate)
            prompt = str(self.tokenizer.decode(ids.ids, **AS_GENERATED))
            # A stream cannot begin with the text of the ids, so with it the result comes whole.
            stream = None if parameters.return_full_text else stream
            return PromptQuery(prompt, parameters, stream=stream, ids=ids)
        prompt = check_text(inputs, "inputs", self.max_characters)
        return PromptQuery(prompt, parameters, stream=stream)

    def _with_grammar(self, query: PromptQuery) -> PromptQuery:
        """Return a query with its grammar.

        Raises:
            RequestError: these parameters exclude grammars, or the prompt excludes tools.
        """
        parameters, tools = query.parameters, query.parameters.callable_tools
        if not (parameters.grammar or tools):
            return query
        if parameters.num_beams > 1:
            raise Unprocessable("Beams follow no grammar and call no tools; leave num_beams out.")
        parameters.check_ends()
        if not tools:
            return replace(query, grammar=TextGrammar(parameters.grammar, None, self._grammars))
        if not query.messages:
            raise BadRequest("Tools are called in chats; send messages, or leave tools out.")
        syntax = replace(
            syntax_of(chat_template(self.tokenizer, tools)), required=parameters.calls_required
        )
        calls = ToolUse(tools, syntax, parameters.calls_required, parameters.parallel)
        grammar = TextGrammar(parameters.grammar, calls, self._grammars)
        return replace(query, grammar=grammar, syntax=syntax)

    @cached_property
    def _grammars(self) -> GrammarCompiler:
        return GrammarCompiler(
            self.tokenizer,
            self.checkpoint.vocab_size,
            end_tokens(self.base),
            self.settings.max_grammar_characters,
        )

    def _fit_ids(self, ids: TokenIds, truncate: int | None) -> TokenIds:
        """Return the ids of a prompt, truncated if there are too many, before they are decoded.

        Raises:
            BadRequest: there are none, or one is unknown.
            RequestTooLarge: there are too many.
        """
        ids.check(self.vocabulary)
        limits = (truncate, self.max_tokens if self.truncation else None)
        if limit := min(filter(None, limits), default=None):
            ids = ids.truncate(limit, self.tokenizer.truncation_side)
        check_length(len(ids), self.max_tokens, "the prompt")
        ids.check_length(self.max_characters)
        return ids

    def _window(self, ids: TokenIds) -> Window:
        others = (name for name in self.tokenizer.model_input_names if name != "attention_mask")
        zeros = {name: [0] * len(ids) for name in others}
        # The places of these tokens in a text are unknown, so their encoding is empty.
        return Window({**zeros, "input_ids": list(ids.ids)}, Encoding())

    def _row(
        self, query: PromptQuery, row: list[Window] | RequestError
    ) -> list[Prompt] | RequestError:
        return row if isinstance(row, RequestError) else attempt(self._prompt, query, row[0])

    def _as_read(self, query: PromptQuery, row: Window) -> PromptQuery:
        """Return a query that begins its full text with what the model reads of a long prompt.

        A stream cannot begin with it, so the result comes whole.
        """
        if query.messages or query.ids or not query.parameters.return_full_text:
            return query
        if not self._is_truncated(query, row):
            return query
        prompt = str(self.tokenizer.decode(row.features["input_ids"], **AS_GENERATED))
        return replace(query, prompt=prompt, stream=None)

    def _is_truncated(self, query: PromptQuery, row: Window) -> bool:
        if has_offsets(row.encoding):
            return bool(row.encoding.overflowing)
        limits = (query.parameters.truncate, self.max_tokens if self.truncation else None)
        limit = min(filter(None, limits), default=None)
        return limit is not None and len(row) >= limit

    def _prompt(self, query: PromptQuery, row: Window) -> list[Prompt]:
        query = self._as_read(query, row)
        requested, limit = query.parameters.new_tokens_after(len(row)), self.max_total_tokens
        available = limit - len(row) if limit else requested or self._default_new_tokens
        if available < (requested or 1):
            raise TextTooLong(
                f"the prompt has {len(row):,} tokens and max_new_tokens is {requested or 1:,}"
                f", together more than {self._limit_name}; shorten one of them."
            )
        default = available if query.use_remaining_context else self._default_new_tokens
        new = requested or min(default, available)
        return [
            Prompt(
                row.features,
                row.encoding,
                query.parameters,
                new,
                query.stream,
                query.grammar,
                query.syntax,
                result=partial(_generated, query, row),
            )
        ]

    @property
    def _limit_name(self) -> str:
        limit = self.max_total_tokens
        own = f"this model's {limit:,}"
        return own if limit == self.checkpoint.limit else f"{own} of max_total_tokens"

    @property
    def _default_new_tokens(self) -> int:
        """The maximum number of new tokens of a request that sets none."""
        of_checkpoint = self.base.max_new_tokens
        return int(self.settings.max_length or of_checkpoint or NEW_TOKENS)


def _generated(query: PromptQuery, row: Window, text: GenerationState) -> dict[str, Any]:
    content, calls = _parts(query, text.text)
    result: dict[str, Any] = {"generated_text": _with_prompt(query, content, calls)}
    parameters = query.parameters
    if calls and not parameters.return_full_text:
        result["tool_calls"] = calls
    return {**result, **details(row, text, parameters)}


def _parts(query: PromptQuery, text: str) -> tuple[str, list[MessageCall]]:
    """Return a text without its tool calls, and these; the last one may be cut, and left out."""
    syntax = query.syntax
    # A text with a grammar of its own may have the opening of calls in a string.
    if syntax is None or (query.parameters.grammar and not text.startswith(syntax.opening)):
        return text, []
    calls: list[MessageCall] = [
        {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in syntax.calls(text)
    ]
    has_parts = calls or syntax.opening or syntax.required
    return syntax.content(text) if has_parts else text, calls


def _with_prompt(query: PromptQuery, text: str, calls: Sequence[MessageCall]) -> Any:
    """Return the new text after its prompt or messages, or alone."""
    if not query.parameters.return_full_text:
        return text
    if query.messages and query.parameters.continue_final_message:
        *others, last = query.messages
        return [*others, {**last, "content": last["content"] + text}]
    if query.messages:
        message: Message = {"role": "assistant", "content": text}
        return [*query.messages, {**message, "tool_calls": list(calls)} if calls else message]
    return query.prompt + text
