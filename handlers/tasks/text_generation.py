"""Text generation: a prompt to its continuation, greedy by default.

    {"inputs": "Once upon", "parameters": {"max_new_tokens": 20, "stop": ["."]}}
    -> [{"generated_text": "Once upon a time there was a fox"}]

The messages of a chat go through the checkpoint's chat template, and the result has them with the
new one; with `return_full_text: false` it has the new one alone.

The result of a request is what `model.generate` returns for its prompt alone: rows share a
forward only where that does not change any result.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, NotRequired

from pydantic import Field
from tokenizers import Encoding
from typing_extensions import TypedDict

from ..batching.padding import Padding, Side, run_in_groups
from ..batching.rows import Outputs, RowOutcome
from ..batching.tokenization import (
    Text,
    Window,
    check_length,
    has_offsets,
    lowest_limit,
    tokenize,
    window,
)
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..errors import BadRequest, RequestError, TextTooLong, Unprocessable, attempt
from ..generation.chat import Message, MessageCall, chat_template, check_messages, prompt_of
from ..generation.detokenization import AS_GENERATED
from ..generation.generator import DECODER_ONLY, Prompt, end_tokens
from ..generation.grammar import GrammarCompiler
from ..generation.guards import GuardFamily, GuardPrompts, find_guard
from ..generation.message import GeneratedMessage, MessageSyntax
from ..generation.option_probabilities import MARK, OptionScorer, QuestionPrompts, QuestionRow
from ..generation.parameters import GenerationParameters
from ..generation.reasoning import ReasoningSyntax, Thoughts, find_reasoning, template_text
from ..generation.stopping import GenerationState
from ..generation.text_grammar import TextGrammar, ToolCallGrammar
from ..generation.tool_syntaxes import find_tool_syntax
from ..model import Model
from ..process.deadline import NO_DEADLINE, Deadline
from ..telemetry.metrics import Meter
from ..types.decisions import ModeratedText, Question
from ..types.model_info import (
    Exports,
    Generation,
    LegacyResponse,
    ModelOutputs,
    Rows,
    TaskDescription,
    Wire,
)
from ..types.parameters import check_text
from ..types.request import Request, TextStream, TokenIds
from .bases.generated_text import Details, GenerationTask, details
from .bases.labels import check_names, softmax

NEW_TOKENS = 50


class Generated(TypedDict):
    """One continuation of a prompt, or of a chat: its messages and the new one."""

    generated_text: str | list[Message]
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[MessageCall]]
    details: NotRequired[Details]


@dataclass(frozen=True)
class PromptInput:
    """One prompt to continue; of a chat, the result of its template.

    `ids` are the tokens of a prompt that the client tokenized. `syntax` is the syntax of the
    thoughts and tool calls which the new text may have. `use_remaining_context` is the request's.
    """

    prompt: str
    parameters: GenerationParameters
    messages: Sequence[Message] = ()
    stream: TextStream | None = None
    ids: TokenIds | None = None
    use_remaining_context: bool = False
    grammar: TextGrammar | None = None
    syntax: MessageSyntax | None = None


@dataclass(frozen=True)
class QuestionInput:
    """A question that is answered by the first token after a prompt.

    Attributes:
        labels: the id of the token of each option.
    """

    question: Question
    prompt: str
    labels: Sequence[int]
    parameters: GenerationParameters


@dataclass(frozen=True)
class TextInPrompt:
    """A text in a prompt about it, or the whole prompt where the chat template changes the text.

    Attributes:
        number: the number of the row with the prompt.
        start: the first character of the text in the prompt.
    """

    number: int
    text: str
    start: int

    @classmethod
    def find(cls, text: str, prompt: str, marked: str, number: int = 0) -> TextInPrompt:
        """Return the text in a prompt.

        Args:
            marked: the prompt with `MARK` instead of the text: a template may have the same words.
        """
        start = marked.find(MARK)
        if start < 0 or not prompt.startswith(text, start):
            return cls(number, prompt, 0)
        return cls(number, text, start)


@dataclass(frozen=True)
class GuardInput:
    """A text for a guard model, which is answered by the first token after each prompt.

    Attributes:
        labels: the id of the first token of each answer.
    """

    text: str
    family: GuardFamily
    prompts: Sequence[str]
    labels: Sequence[int]
    parameters: GenerationParameters


def _legacy_response(texts: Any) -> str:
    """Return the prompt and the new text; for a chat, only the text of the new message."""
    text = texts[0]["generated_text"]
    return str(text if isinstance(text, str) else text[-1]["content"])


class Task(GenerationTask[Any]):
    """Text generation with a decoder; answers as the text-generation pipeline does."""

    auto_class = "AutoModelForCausalLM"
    layout = DECODER_ONLY
    parameters = GenerationParameters
    description = TaskDescription(
        Wire(
            inputs=str | Annotated[list[Message], Field(min_length=1)],
            results=list[Generated],
            example={
                "inputs": "Once upon a time",
                "parameters": {"max_new_tokens": 8},
            },
            result_columns=("generated_text",),
            legacy_response=LegacyResponse({"return_full_text": True}, _legacy_response),
        ),
        outputs=ModelOutputs(("logits",), per_token=("logits",)),
        rows=Rows(supports_packing=False),
        exports=Exports(fastest_formats={"cpu": "openvino"}),
        generation=Generation(texts=True),
        takes_adapters=True,
        decides=True,
        moderates=True,
    )

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        if settings.tokenizer.truncation_side is None:
            self.tokenizer.truncation_side = "left"
        family = find_guard(self.tokenizer, settings.guard_family)
        self._guard = GuardPrompts(family, self.tokenizer, self.max_characters) if family else None
        self.categories = {name: name for name in family.categories} if family else {}
        check_names(
            "moderation_thresholds",
            settings.moderation_thresholds,
            self.categories,
            "a category",
            "name the family of the model in handler.guard_family, or remove it",
        )

    def parse(self, request: Request) -> Any:
        parameters: GenerationParameters = self.read_parameters(request.parameters)
        parameters.check(self.settings.max_sequences, self.vocabulary)
        has_assistant = self.settings.assistant_model is not None
        parameters.check_model(has_assistant=has_assistant)
        if isinstance(request.inputs, Question):
            return self._question(request.inputs, parameters)
        if isinstance(request.inputs, ModeratedText):
            return self._moderated(request.inputs, parameters)
        parsed = replace(
            self._parse_prompt(request, parameters),
            use_remaining_context=request.use_remaining_context,
        )
        return self._with_grammar(parsed)

    def run(
        self, model: Model, rows: Sequence[Any], meter: Meter, deadline: Deadline = NO_DEADLINE
    ) -> Sequence[RowOutcome]:
        run = partial(self._run_alike, model, meter, deadline)
        return run_in_groups(run, rows, lambda row: isinstance(row, QuestionRow))

    def encoding_cost(self, item: Any) -> int:
        if isinstance(item, QuestionInput):
            return item.question.characters
        return sum(map(len, item.prompts)) if isinstance(item, GuardInput) else 0

    def encode(self, inputs: Sequence[Any]) -> list[list[Any] | RequestError]:
        rows: dict[int, list[Window] | RequestError] = {}
        groups = defaultdict[tuple[bool, int | None, Side | None], list[int]](list)
        # A chat template adds special tokens itself.
        for number, item in enumerate(inputs):
            if isinstance(item, QuestionInput):
                rows[number] = attempt(self._question_rows, item)
            elif isinstance(item, GuardInput):
                rows[number] = attempt(self._guard_rows, item)
            elif item.ids:
                rows[number] = [self._window(item.ids)]
            else:
                special = item.parameters.add_special_tokens
                adds = not item.messages if special is None else special
                parameters = item.parameters
                key = adds, parameters.truncate or None, parameters.truncation_side
                groups[key].append(number)
        for (adds, max_length, side), numbers in groups.items():
            texts: list[Text] = [(inputs[number].prompt, None) for number in numbers]
            truncation: dict[str, Any] = (
                {"truncation": True, "max_length": max_length} if max_length else {}
            )
            options = {"add_special_tokens": adds, "truncation_side": side, **truncation}
            encoded = self.encode_texts(texts, **options)
            rows.update(zip(numbers, encoded, strict=True))
        return [self._row(item, rows[number]) for number, item in enumerate(inputs)]

    def decode(self, item: Any, rows: Sequence[Window], outputs: Sequence[Outputs]) -> Any:
        if isinstance(item, QuestionInput):
            return self.calibrated(softmax(outputs[0]["labels"]).tolist())
        if isinstance(item, GuardInput):
            probabilities = [softmax(each["labels"]).tolist() for each in outputs]
            scores = item.family.scores(probabilities)
            return [{"label": name, "score": score} for name, score in scores.items()]
        item = self._as_read(item, rows[0])
        return [_generated(item, rows[0], text) for text in outputs[0]["texts"]]

    @property
    def max_tokens(self) -> int | None:
        """The maximum number of tokens in a prompt."""
        return lowest_limit(super().max_tokens, self.settings.max_total_tokens)

    @property
    def max_total_tokens(self) -> int | None:
        """The maximum number of tokens in a prompt and its new text together."""
        return lowest_limit(self.checkpoint.limit, self.settings.max_total_tokens)

    @property
    def padding(self) -> Padding:
        return Padding(self._pad_ids(), "left")

    def _question(self, question: Question, parameters: GenerationParameters) -> QuestionInput:
        """Return a question with its prompt.

        Raises:
            RequestError: this model does not answer it, or it is too long.
        """
        self._check_reads_answers()
        prompt = self._question_prompts.prompt(question)
        labels = self._question_prompts.label_ids(question)
        return QuestionInput(question, prompt, labels, parameters)

    def _moderated(self, given: ModeratedText, parameters: GenerationParameters) -> GuardInput:
        """Return a text with its prompts.

        Raises:
            RequestError: this model is no guard model, or the text is too long.
        """
        if self._guard is None:
            raise Unprocessable("This model is no guard model; ask another model.")
        self._check_reads_answers()
        prompts = self._guard.prompts(given.text)
        family, labels = self._guard.family, self._guard.answer_ids
        return GuardInput(given.text, family, prompts, labels, parameters)

    def text_in_question(self, item: QuestionInput) -> TextInPrompt:
        """Return the text of a question in its prompt."""
        marked = self._question_prompts.prompt(replace(item.question, text=MARK))
        return TextInPrompt.find(item.question.text, item.prompt, marked)

    def text_for_guard(self, item: GuardInput, number: int) -> TextInPrompt:
        """Return the text for a guard model in one of its prompts."""
        marked = self._guard.prompts(MARK)[number] if self._guard else ""
        return TextInPrompt.find(item.text, item.prompts[number], marked, number)

    def _check_reads_answers(self) -> None:
        """Raise Unprocessable if the scores of the token after a prompt cannot be read."""
        if self.settings.is_exported or self.settings.engine:
            raise Unprocessable(
                "Questions are answered, and texts moderated, with save_mode: pretrained and"
                " without an engine; set that in the YAML of the model."
            )

    @cached_property
    def _question_prompts(self) -> QuestionPrompts:
        return QuestionPrompts(self.tokenizer, self.max_characters)

    def _run_alike(
        self, model: Model, meter: Meter, deadline: Deadline, rows: Sequence[Any]
    ) -> Sequence[RowOutcome]:
        """Run rows that are all prompts, or all questions."""
        if not isinstance(rows[0], QuestionRow):
            return super().run(model, rows, meter, deadline)
        padding = replace(self.padding, side="right")
        scorer = OptionScorer(model, padding, self.budget, meter, deadline)
        # A model that runs several requests at once runs the questions between their steps.
        return model.run_exclusively(partial(scorer.score, rows), deadline)

    def _parse_prompt(self, request: Request, parameters: GenerationParameters) -> PromptInput:
        inputs, stream = request.inputs, request.stream
        if isinstance(inputs, list) and any(isinstance(item, dict) for item in inputs):
            messages = check_messages(inputs, self.max_characters)
            tools = parameters.offered_tools
            options = parameters.template_options
            prompt = prompt_of(messages, self.tokenizer, self.max_characters, tools, options)
            return PromptInput(prompt, parameters, messages, stream)
        if isinstance(inputs, TokenIds):
            ids = self._fit_ids(inputs, parameters)
            prompt = str(self.tokenizer.decode(ids.ids, **AS_GENERATED))
            # The text of the ids is not streamed, so a full text is not streamed at all.
            stream = None if parameters.return_full_text else stream
            return PromptInput(prompt, parameters, stream=stream, ids=ids)
        prompt = check_text(inputs, "inputs", self.max_characters)
        return PromptInput(prompt, parameters, stream=stream)

    def _with_grammar(self, item: PromptInput) -> PromptInput:
        """Return an input with its grammar.

        Raises:
            RequestError: these parameters exclude grammars, or the prompt excludes tools.
        """
        parameters, tools = item.parameters, item.parameters.callable_tools
        thoughts = self._thoughts(item)
        item = replace(item, syntax=self._syntax(item, thoughts))
        is_limited = thoughts is not None and thoughts.budget is not None
        if not (parameters.grammar or tools or is_limited):
            return item
        if parameters.num_beams > 1:
            raise Unprocessable("Beams follow no grammar and call no tools; leave num_beams out.")
        parameters.check_ends()
        if tools and not item.messages:
            raise BadRequest("Tools are called in chats; send messages, or leave tools out.")
        calls = None
        if item.syntax and item.syntax.tools:
            required, parallel = parameters.calls_required, parameters.parallel
            calls = ToolCallGrammar(tools, item.syntax.tools, required, parallel)
        grammar = TextGrammar(parameters.grammar, calls, self._grammars, thoughts)
        return replace(item, grammar=grammar)

    def _thoughts(self, item: PromptInput) -> Thoughts | None:
        """Return the thoughts that the new text may begin with; None where it has none.

        Raises:
            Unprocessable: their tokens are limited, and this model has no thoughts.
        """
        if not item.messages:
            return None
        budget = item.parameters.thinking_token_budget
        syntax = find_reasoning(self._template(item), self.settings.reasoning_parser)
        if syntax is None:
            if budget is not None:
                raise Unprocessable(
                    "thinking_token_budget is not supported by this model, whose chat template"
                    " shows no thoughts; leave it out."
                )
            return None
        if item.parameters.continue_final_message:
            _, opening, begun = str(item.messages[-1]["content"]).rpartition(syntax.opening)
            is_begun = bool(opening) and syntax.closing not in begun
            return Thoughts(syntax, True, budget) if is_begun else None
        if syntax.is_ended_by(item.prompt):
            return None
        return Thoughts(syntax, syntax.is_begun_by(item.prompt), budget)

    def _syntax(self, item: PromptInput, thoughts: Thoughts | None) -> MessageSyntax | None:
        """Return the syntax of the parts of the new text; None for a text of one part."""
        parameters = item.parameters
        tools = reasoning = None
        if parameters.callable_tools and item.messages:
            found = find_tool_syntax(self._template(item), self.settings.tool_call_parser)
            tools = replace(found, required=parameters.calls_required)
        if parameters.separate_reasoning:
            reasoning = thoughts.syntax if thoughts else self._answer_after_thoughts(item)
        if tools is None and reasoning is None:
            return None
        begun = thoughts is not None and thoughts.begun
        syntax = MessageSyntax(
            reasoning,
            tools,
            parameters.callable_tools,
            begun=begun,
            has_grammar=bool(parameters.grammar),
        )
        return syntax.for_tokenizer(self.tokenizer)

    def _answer_after_thoughts(self, item: PromptInput) -> ReasoningSyntax | None:
        """Return the syntax of an answer whose prompt ends the thoughts; None for a plain text."""
        if not item.messages or item.parameters.continue_final_message:
            return None
        syntax = find_reasoning(self._template(item), self.settings.reasoning_parser)
        if syntax is None or not syntax.answer_opening:
            return None
        return syntax if syntax.is_ended_by(item.prompt) else None

    def _template(self, item: PromptInput) -> str:
        """Return the texts that show how the model writes messages."""
        template = chat_template(self.tokenizer, item.parameters.offered_tools)
        schema = getattr(self.tokenizer, "response_schema", None)
        return template_text(template, json.dumps(schema) if schema else "")

    @cached_property
    def _grammars(self) -> GrammarCompiler:
        return GrammarCompiler(
            self.tokenizer,
            self.checkpoint.vocab_size,
            end_tokens(self.generation_config),
            self.settings.max_grammar_characters,
        )

    def _fit_ids(self, ids: TokenIds, parameters: GenerationParameters) -> TokenIds:
        """Return the ids of a prompt, truncated if there are too many, before they are decoded.

        Raises:
            BadRequest: there are none, or one is unknown.
            RequestTooLarge: there are too many.
        """
        ids.check(self.vocabulary)
        limit = lowest_limit(parameters.truncate, self.max_tokens if self.truncation else None)
        if limit:
            ids = ids.truncate(limit, parameters.truncation_side or self.tokenizer.truncation_side)
        check_length(len(ids), self.max_tokens, "the prompt")
        ids.check_length(self.max_characters)
        return ids

    def _window(self, ids: TokenIds) -> Window:
        others = (name for name in self.tokenizer.model_input_names if name != "attention_mask")
        zeros = {name: [0] * len(ids) for name in others}
        # The places of these tokens in a text are unknown, so their encoding is empty.
        return Window({**zeros, "input_ids": list(ids.ids)}, Encoding())

    def _row(self, item: Any, row: list[Window] | RequestError) -> list[Any] | RequestError:
        if isinstance(row, RequestError) or isinstance(item, QuestionInput | GuardInput):
            return row
        return attempt(self._prompt, item, row[0])

    def _question_rows(self, item: QuestionInput) -> list[Window]:
        """Return the prompt of a question, of which nothing is cut.

        Raises:
            TextTooLong: it has more tokens than the model takes.
        """
        row = self._question_window(item.prompt, "a question with its text", "one of them")
        text, adapter = item.question.text, item.parameters.adapter_id
        return [QuestionRow(row.features, row.encoding, item.labels, text, adapter)]

    def _guard_rows(self, item: GuardInput) -> list[Window]:
        """Return the prompts of a text, of which nothing is cut.

        Raises:
            TextTooLong: one has more tokens than the model takes.
        """
        name = "the text with the chat template of this model"
        rows = [self._question_window(each, name, "the text") for each in item.prompts]
        adapter = item.parameters.adapter_id
        return [
            QuestionRow(each.features, each.encoding, item.labels, item.text, adapter)
            for each in rows
        ]

    def _question_window(self, prompt: str, name: str, shortened: str) -> Window:
        """Return a prompt, whose name and what can be shortened of it are for errors."""
        adds = not self._question_prompts.is_chat
        encoding = tokenize(self.tokenizer, [(prompt, None)], add_special_tokens=adds)
        row, limit = window(encoding, 0, self.tokenizer.model_input_names), self.max_tokens
        if limit is not None and len(row) > limit:
            raise TextTooLong(
                f"{name} has {len(row):,} tokens, and this model takes {limit:,}"
                f"; shorten {shortened}."
            )
        return row

    def _as_read(self, item: PromptInput, row: Window) -> PromptInput:
        """Return an input that begins its full text with what the model reads of a long prompt.

        A stream cannot begin with it, so the result comes whole.
        """
        if item.messages or item.ids or not item.parameters.return_full_text:
            return item
        if not self._is_truncated(item, row):
            return item
        prompt = str(self.tokenizer.decode(row.features["input_ids"], **AS_GENERATED))
        return replace(item, prompt=prompt, stream=None)

    def _is_truncated(self, item: PromptInput, row: Window) -> bool:
        if has_offsets(row.encoding):
            return bool(row.encoding.overflowing)
        limit = lowest_limit(item.parameters.truncate, self.max_tokens if self.truncation else None)
        return limit is not None and len(row) >= limit

    def _prompt(self, item: PromptInput, row: Window) -> list[Prompt]:
        item = self._as_read(item, row)
        requested, limit = item.parameters.new_tokens_after(len(row)), self.max_total_tokens
        available = limit - len(row) if limit else requested or self._default_new_tokens
        least = 1 if requested is None else requested
        if available < least:
            raise TextTooLong(
                f"the prompt has {len(row):,} tokens and max_new_tokens is {least:,}"
                f", together more than {self._limit_name}; shorten one of them."
            )
        default = available if item.use_remaining_context else self._default_new_tokens
        new = min(default, available) if requested is None else requested
        # The tokens of the prompt would come before any others.
        stream = None if item.parameters.scores_prompt or new == 0 else item.stream
        return [
            Prompt(
                row.features,
                row.encoding,
                item.parameters,
                new,
                stream,
                item.grammar,
                item.syntax,
                result=partial(_generated, item, row),
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
        of_checkpoint = self.generation_config.max_new_tokens
        return int(self.settings.max_length or of_checkpoint or NEW_TOKENS)


def _generated(item: PromptInput, row: Window, text: GenerationState) -> dict[str, Any]:
    parts = item.syntax.parse(text.text) if item.syntax else GeneratedMessage("", text.text)
    calls: list[Any] = [call.as_json for call in parts.calls]
    found = details(row, text, item.parameters)
    if "details" in found and item.syntax and item.syntax.reasoning:
        found["details"]["reasoning_tokens"] = text.reasoning_tokens if parts.reasoning else 0
    if item.parameters.return_full_text:
        return {"generated_text": _with_prompt(item, parts, calls), **found}
    reasoning = {"reasoning_content": parts.reasoning} if parts.reasoning else {}
    of_calls = {"tool_calls": calls} if calls else {}
    return {"generated_text": parts.content, **reasoning, **of_calls, **found}


def _with_prompt(
    item: PromptInput, parts: GeneratedMessage, calls: Sequence[MessageCall]
) -> str | list[Message]:
    """Return the new text after its prompt or messages."""
    text = parts.content
    if item.messages and item.parameters.continue_final_message:
        *others, last = item.messages
        return [*others, {**last, "content": last["content"] + text}]
    if item.messages:
        message: Message = {"role": "assistant", "content": text}
        if parts.reasoning:
            message["reasoning_content"] = parts.reasoning
        if calls:
            message["tool_calls"] = list(calls)
        return [*item.messages, message]
    return item.prompt + text
