"""The parameters of text generation, by the names of transformers' `GenerationConfig`.

A :class:`ParameterSpec` is part of the type of each parameter. Parsing, refusals, `describe` and
the documentation are derived from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, model_validator

from ..config.messages import quote
from ..errors import BadRequest, RequestTooLarge, TextTooLong, Unprocessable
from ..types.parameters import ANY, Parameters, PipelineNames
from ..types.structured_output import AllowedTools, GrammarSpec, NamedTool, Tool, ToolChoice, Tools
from .chat import THINKING_ARGUMENTS, TemplateOptions

# Stands for the name of the parameter itself.
SAME = "="
# No name of a back end: the parameter becomes other settings.
INDIRECT = ""


class Beams(Enum):
    """Whether a back end supports a parameter in a beam search."""

    EITHER = "yes"
    WITHOUT = "without beams"
    WITH = "with beams"


@dataclass(frozen=True)
class ParameterSpec:
    """Which routes and back ends support a parameter, besides Hugging Face's own.

    Attributes:
        neutral: the value without an effect; None where only the absence of a value has none.
        default: what `generate` takes where neither the request nor the checkpoint has a value.
        needs: the parameter without which it has no effect.
        reads_prompt: whether it reads the tokens of a decoder's prompt, padding included.
        has_token_ids: whether its value has ids of tokens.
        openai: its key on OpenAI's routes; None where these have none, or other values.
        chat_only: whether OpenAI's routes have it for chats only.
        tgi: whether text-generation-inference has it.
        transformers: what applies it to the choice of tokens: `generate`, or one of the package's
            logits processors; None where it is not about the choice of tokens.
        genai: whether openvino-genai supports it, by the same name; None where it does not.
        vllm: its name in vLLM's `SamplingParams`; None where vLLM does not support it.
    """

    neutral: Any = None
    _: KW_ONLY
    default: Any = None
    needs: Literal["do_sample", "num_beams"] | None = None
    reads_prompt: bool = False
    has_token_ids: bool = False
    openai: str | None = None
    chat_only: bool = False
    tgi: bool = False
    transformers: Literal["generate", "logits_processor"] | None = None
    genai: Beams | None = None
    vllm: str | None = None

    def of(self, name: str) -> ParameterSpec:
        """Return it with the name of its parameter."""
        openai, vllm = (name if each == SAME else each for each in (self.openai, self.vllm))
        return replace(self, openai=openai, vllm=vllm)


by_generate = partial(ParameterSpec, transformers="generate")
by_processor = partial(ParameterSpec, transformers="logits_processor")


@cache
def specs_of(parameters: type[BaseModel]) -> Mapping[str, ParameterSpec]:
    """Return the specification of each parameter that has one."""
    return {
        name: spec.of(name)
        for name, field in parameters.model_fields.items()
        for spec in field.metadata
        if isinstance(spec, ParameterSpec)
    }


@cache
def names_applied_by(
    parameters: type[BaseModel], applied_by: Literal["generate", "logits_processor"]
) -> set[str]:
    """Return the names of the parameters that `generate` or a logits processor applies."""
    specs = specs_of(parameters).items()
    return {name for name, spec in specs if spec.transformers == applied_by}


@cache
def token_id_parameters(parameters: type[BaseModel]) -> Sequence[str]:
    """Return the names of the parameters whose values have ids of tokens."""
    return [name for name, spec in specs_of(parameters).items() if spec.has_token_ids]


@dataclass(frozen=True)
class Bounds:
    """The smallest and the largest value of a parameter, and whether it must be an integer."""

    least: float
    most: float
    is_integer: bool = False

    def allow(self, value: Any) -> bool:
        """Return whether a value is a number within the bounds."""
        if not isinstance(value, int | float) or not self.least <= value <= self.most:
            return False
        return not self.is_integer or isinstance(value, int) or value.is_integer()

    def __str__(self) -> str:
        if math.isinf(self.most):
            return f"{self.least:g} or more"
        return f"{'integers from ' if self.is_integer else ''}{self.least:g} to {self.most:,}"


@cache
def bounds_of(parameters: type[BaseModel]) -> Mapping[str, Bounds]:
    """Return the bounds of each parameter that is a number."""
    found: dict[str, Bounds] = {}
    for name, schema in parameters.model_json_schema()["properties"].items():
        kinds = (schema, *schema.get("anyOf", ()))
        number = next((each for each in kinds if each.get("type") in ("integer", "number")), None)
        if number:
            least = number.get("minimum", number.get("exclusiveMinimum", -math.inf))
            most = number.get("maximum", number.get("exclusiveMaximum", math.inf + 1) - 1)
            found[name] = Bounds(least, most, number["type"] == "integer")
    return found


Probability = Annotated[float, Field(gt=0, le=1)]
Few = Annotated[int, Field(ge=1, le=32)]
# Back ends take numbers of 32 bits.
Positive = Annotated[int, Field(gt=0, lt=2**31)]
NotNegative = Annotated[int, Field(ge=0, lt=2**31)]
# OpenAI takes 4. Each of them is searched for after each token.
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
StopText = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]
# As OpenAI and vLLM.
MAX_BIASES = 1024
MAX_ALLOWED_TOKENS = 1024
MAX_STOP_TOKENS = 128
MAX_TOP_TOKENS = 20
MAX_ID_DIGITS = 9
# Each of them is computed with the others in one forward.
MAX_LOOKUP = 64
# Each of them is searched for in the generated tokens.
MAX_BAD_WORDS = 64
MAX_TEMPLATE_ARGUMENTS = 64
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
StopTexts = StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None


def _with_token_ids(value: Any) -> Any:
    """Return a mapping whose keys are token ids, which JSON has as texts."""
    if not isinstance(value, dict):
        return value
    if len(value) > MAX_BIASES:
        raise ValueError(f"has {len(value):,} tokens; send at most {MAX_BIASES:,}")
    wrong = next((key for key in value if not _is_token_id(key)), None)
    if wrong is not None:
        raise ValueError(f"has the key {quote(wrong)}; its keys are ids of tokens")
    return {int(key): bias for key, bias in value.items()}


def _is_token_id(key: Any) -> bool:
    return str(key).isascii() and str(key).isdecimal() and len(str(key)) <= MAX_ID_DIGITS


Penalty = Annotated[float, Field(ge=-2, le=2)]
Bias = Annotated[float, Field(ge=-100, le=100)]
LogitBias = Annotated[
    dict[int, Bias], Field(max_length=MAX_BIASES), BeforeValidator(_with_token_ids)
]
TopTokens = Annotated[int, Field(ge=0, le=MAX_TOP_TOKENS)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]


def _tuple_of(most: int, least: int = 0, *, wraps: bool = False) -> Callable[[Any], Any]:
    """Return a function that makes a tuple of a list, whose length it checks.

    Args:
        most: the maximum number of items.
        least: the minimum number of items.
        wraps: whether a single value becomes a tuple of one item.
    """

    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return (value,) if wraps else value
        if not least <= len(value) <= most:
            bound = f"at most {most:,}" if len(value) > most else f"at least {least}"
            raise ValueError(f"has {len(value):,} items; send {bound}")
        return tuple(value)

    return read


Stops = Annotated[
    tuple[StopText, ...],
    BeforeValidator(_tuple_of(MAX_STOPS, wraps=True), json_schema_input_type=StopTexts),
]
StopTokens = Annotated[
    tuple[TokenId, ...],
    BeforeValidator(
        _tuple_of(MAX_STOP_TOKENS, wraps=True), json_schema_input_type=TokenId | list[TokenId]
    ),
]
AllowedTokens = Annotated[
    tuple[TokenId, ...],
    BeforeValidator(_tuple_of(MAX_ALLOWED_TOKENS, 1), json_schema_input_type=list[TokenId]),
]
BadWords = Annotated[
    tuple[StopText, ...],
    BeforeValidator(_tuple_of(MAX_BAD_WORDS), json_schema_input_type=list[StopText]),
]


def check_best_of(best_of: int | None, texts: int, name: str) -> None:
    """Check that all generated texts are returned.

    Args:
        best_of: the number of texts to generate.
        texts: the number of texts to return.
        name: the parameter of that number.

    Raises:
        Unprocessable: `best_of` is larger.
    """
    if best_of and best_of > texts:
        raise Unprocessable(
            f"best_of is {best_of} and {name} {texts}, and all generated texts are returned"
            "; leave best_of out."
        )


# Clients of text-generation-inference send the first ones, and the others are a pipeline's.
NAMES = PipelineNames(
    ignored={
        # transformers has moved these strategies to code on its hub.
        "diversity_penalty": [0],
        "num_beam_groups": [1],
        "penalty_alpha": [0],
        "watermark": [False],
        "batch_size": ANY,
        "clean_up_tokenization_spaces": ANY,
        "pad_token_id": ANY,
        "padding": ANY,
        "truncation": ANY,  # a text that is too long is refused, unless the YAML says otherwise
        "use_cache": ANY,
    }
)


class SamplingParameters(Parameters):
    """Parameters of one text that every model generates with.

    The checkpoint's generation config has the values of omitted ones.
    """

    max_new_tokens: Annotated[Positive | None, ParameterSpec(tgi=True)] = None
    """Maximum new tokens."""
    min_new_tokens: Annotated[
        NotNegative | None,
        by_generate(0, openai="min_tokens", genai=Beams.WITHOUT, vllm="min_tokens"),
    ] = None
    """Minimum new tokens."""
    do_sample: Annotated[
        bool,
        by_generate(False, tgi=True, genai=Beams.WITHOUT, vllm=INDIRECT),
    ] = False
    """Samples tokens. `false` takes the most likely one."""
    temperature: Annotated[
        Annotated[float, Field(ge=1e-6)] | None,
        by_generate(1.0, needs="do_sample", tgi=True, genai=Beams.EITHER, vllm=SAME),
    ] = None
    """Temperature of sampling."""
    top_k: Annotated[
        NotNegative | None,
        by_generate(0, default=50, needs="do_sample", tgi=True, genai=Beams.EITHER, vllm=SAME),
    ] = None
    """Samples from this number of most likely tokens."""
    top_p: Annotated[
        Probability | None,
        by_generate(1.0, needs="do_sample", tgi=True, genai=Beams.EITHER, vllm=SAME),
    ] = None
    """Samples from the most likely tokens with this total probability."""
    min_p: Annotated[
        Probability | None,
        by_generate(0.0, needs="do_sample", genai=Beams.EITHER, vllm=SAME),
    ] = None
    """Samples from tokens with this share of the best token's probability."""
    typical_p: Annotated[
        Annotated[float, Field(ge=1e-6, le=1)] | None,
        by_generate(1.0, needs="do_sample", tgi=True),
    ] = None
    """Locally typical sampling."""
    num_beams: Annotated[Few, by_generate(1, genai=Beams.EITHER)] = 1
    """Beams of a beam search."""
    num_return_sequences: Annotated[
        Few,
        by_generate(1, needs="num_beams", genai=Beams.EITHER, vllm=INDIRECT),
    ] = 1
    """Number of texts. Needs `do_sample` or as many beams."""
    best_of: Annotated[NotNegative | None, ParameterSpec(tgi=True)] = None
    """Number of texts that are generated. No more than `num_return_sequences`."""
    repetition_penalty: Annotated[
        Annotated[float, Field(ge=0.01, le=100)] | None,
        by_generate(1.0, reads_prompt=True, openai=SAME, tgi=True, genai=Beams.WITHOUT, vllm=SAME),
    ] = None
    """Penalty for tokens that occurred before; 1 is none."""
    frequency_penalty: Annotated[
        Penalty | None,
        by_processor(0.0, openai=SAME, tgi=True, genai=Beams.WITHOUT, vllm=SAME),
    ] = None
    """Is subtracted from the logit of a token for each time that it was generated."""
    presence_penalty: Annotated[
        Penalty | None,
        by_processor(0.0, openai=SAME, genai=Beams.WITHOUT, vllm=SAME),
    ] = None
    """Is subtracted from the logit of a token that was generated."""
    logit_bias: Annotated[
        LogitBias | None,
        by_processor({}, has_token_ids=True, openai=SAME, vllm=SAME),
    ] = None
    """Adds -100 to 100 to the logits of tokens, by their ids; at most 1,024."""
    no_repeat_ngram_size: Annotated[
        NotNegative | None,
        by_generate(0, reads_prompt=True, genai=Beams.WITH),
    ] = None
    """Length of n-grams that may occur once only."""
    length_penalty: Annotated[
        Annotated[float, Field(ge=-20, le=20)] | None,
        by_generate(1.0, needs="num_beams", genai=Beams.WITH),
    ] = None
    """Exponent of the length in beam search."""
    early_stopping: Annotated[
        bool | None,
        by_generate(False, needs="num_beams", genai=Beams.WITH),
    ] = None
    """Ends a beam search at the first complete candidates."""
    stop: Annotated[Stops, ParameterSpec(tgi=True)] = ()
    """Text, or list of at most 16 texts of 256 characters, before which the output ends. A text may
    have special tokens, such as `<|im_end|>`."""
    stop_token_ids: Annotated[StopTokens, ParameterSpec(has_token_ids=True, openai=SAME)] = ()
    """Ids of tokens that end the text as well; at most 128."""
    eos_token_id: Annotated[StopTokens | None, ParameterSpec(has_token_ids=True)] = None
    """Ids of tokens that end the text in place of the checkpoint's end tokens."""
    ignore_eos: Annotated[bool, ParameterSpec(openai=SAME)] = False
    """Goes on after the end tokens of the checkpoint."""
    allowed_token_ids: Annotated[
        AllowedTokens | None,
        by_processor(has_token_ids=True, openai=SAME, vllm=SAME),
    ] = None
    """Ids of the only tokens that may be chosen; at most 1,024. Without an end token among them,
    the text has all of `max_new_tokens`."""
    bad_words: Annotated[BadWords, by_processor((), openai=SAME)] = ()
    """Texts that are not written, by their tokens; at most 64."""
    skip_special_tokens: Annotated[bool, ParameterSpec(openai=SAME)] = True
    """Leaves special tokens out of the text."""
    seed: Annotated[Annotated[int, Field(ge=0, lt=2**64)] | None, ParameterSpec(tgi=True)] = None
    """Makes sampling repeatable."""
    details: Annotated[bool, ParameterSpec(tgi=True)] = False
    """Adds `finish_reason`, `generated_tokens`, `input_length` and `seed`."""
    logprobs: bool | None = None
    """Adds `details` with `tokens`: the tokens of the text and their log probabilities. By default
    where `details` is true, without beams and prompt lookup."""
    top_n_tokens: Annotated[TopTokens, by_processor(0, tgi=True, vllm=INDIRECT)] = Field(
        default=0, validation_alias=AliasChoices("top_n_tokens", "top_logprobs")
    )
    """Adds `top_tokens` beside `tokens`: the most likely ones in each place. Alias:
    `top_logprobs`."""

    @model_validator(mode="after")
    def _check_min_new_tokens(self) -> Self:
        minimum, maximum = self.min_new_tokens, self.max_new_tokens
        if minimum and maximum is not None and minimum > maximum:
            raise ValueError(
                f"min_new_tokens is {minimum} and max_new_tokens {maximum}"
                "; lower the first or raise the second"
            )
        return self

    def check(self, max_sequences: int, vocabulary: int) -> None:
        """Check that a model supports these parameters together.

        Args:
            max_sequences: the limit of the sequences of a request, from the YAML.
            vocabulary: the number of tokens that the model chooses from.

        Raises:
            RequestError: it does not.
        """
        self._check_sequences(max_sequences)
        if (name := self._requested_logprobs) and self.num_beams > 1:
            raise Unprocessable(
                f"{name} is not supported with num_beams {self.num_beams}; leave one of them out."
            )
        for name in token_id_parameters(type(self)):
            unknown = [token for token in getattr(self, name) or () if token >= vocabulary]
            if unknown:
                raise BadRequest(
                    f"parameters: {name} has the token {unknown[0]}, and this model's go from 0 to"
                    f" {vocabulary - 1:,}; send ids of this model's tokenizer."
                )

    def _check_sequences(self, max_sequences: int) -> None:
        beams, sequences = self.num_beams, self.num_return_sequences
        check_best_of(self.best_of, sequences, "num_return_sequences")
        if sequences > beams and (beams > 1 or not self.do_sample):
            raise Unprocessable(
                f"num_return_sequences is {sequences} and num_beams {beams}"
                "; ask for as many beams, or for do_sample: true without beams."
            )
        if self.sequences > max_sequences:
            name = "num_beams" if beams > 1 else "num_return_sequences"
            raise RequestTooLarge(
                f"{name} is {self.sequences}, and this model's max_sequences is"
                f" {max_sequences}; ask for fewer."
            )

    @property
    def _requested_logprobs(self) -> str | None:
        """The name of the parameter that asks for log probabilities; None without one."""
        return "logprobs" if self.logprobs else "top_n_tokens" if self.top_n_tokens else None

    def end_tokens(self, own: frozenset[int]) -> frozenset[int]:
        """Return the ids of the tokens that end the text, given the checkpoint's own."""
        of_model = own if self.eos_token_id is None else frozenset(self.eos_token_id)
        return (frozenset() if self.ignore_eos else of_model).union(self.stop_token_ids)

    @property
    def sequences(self) -> int:
        """The number of sequences that are computed for the prompt."""
        return max(self.num_beams, self.num_return_sequences)

    @property
    def returns_logprobs(self) -> bool:
        """Whether each token is returned with its log probability."""
        return self.details and self.num_beams == 1 if self.logprobs is None else self.logprobs

    @property
    def settings(self) -> GenerationParameters:
        """The parameters as the generator reads them."""
        return GenerationParameters(**self.model_dump(include=set(SamplingParameters.model_fields)))

    @property
    def changes_logits(self) -> bool:
        """Whether a parameter of the package's own logits processors has an effect."""
        penalizes = self.frequency_penalty or self.presence_penalty or self.logit_bias
        return bool(penalizes or self.allowed_token_ids is not None or self.bad_words)

    @property
    def for_generate(self) -> dict[str, Any]:
        """The arguments of `generate`."""
        return self.model_dump(include=names_applied_by(type(self), "generate"), exclude_none=True)

    @property
    def for_processors(self) -> dict[str, Any]:
        """The parameters that `generate` does not have, and logits processors apply."""
        names = names_applied_by(type(self), "logits_processor")
        return self.model_dump(include=names, exclude_none=True)


class GenerationParameters(SamplingParameters):
    """Parameters of one prompt; the checkpoint's generation config has the values of others."""

    pipeline_names: ClassVar[PipelineNames] = NAMES

    max_new_tokens: Annotated[NotNegative | None, ParameterSpec(tgi=True)] = None
    """Maximum new tokens; 0 with `decoder_input_details` alone. Without it, the YAML's
    `max_length`, then the checkpoint's, then 50."""
    max_length: Positive | None = None
    """Maximum tokens of prompt and new text together. Only without `max_new_tokens`."""
    prompt_lookup_num_tokens: Annotated[
        Annotated[int, Field(ge=1, le=MAX_LOOKUP)] | None, by_generate()
    ] = None
    """Tries at most this number of tokens that follow the last ones elsewhere in the text, which
    changes the speed only. Not with beams, several texts or `logprobs`, and sent in one part."""
    num_assistant_tokens: Annotated[int, Field(ge=1, le=MAX_LOOKUP)] | None = None
    """Tokens of the `assistant_model` of the YAML that are tried together, which changes the speed
    only. Without it, the value of that model, or 20."""
    assistant_confidence_threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    """The `assistant_model` stops after a token that it gives a lower probability. Without it, the
    value of that model, or 0.4."""
    truncate: Annotated[NotNegative | None, ParameterSpec(tgi=True)] = None
    """Cuts the prompt to this number of tokens. 0 keeps all."""
    truncation_side: Literal["left", "right"] | None = None
    """The side at which a prompt is cut. Without it, the YAML's, then `left`."""
    add_special_tokens: Annotated[bool | None, ParameterSpec(openai=SAME)] = None
    """Adds the tokenizer's special tokens. By default to a text; chat templates have their own."""
    add_generation_prompt: Annotated[bool | None, ParameterSpec(openai=SAME, chat_only=True)] = None
    """Ends the prompt of a chat where the assistant's message begins. By default, unless the last
    message is continued."""
    continue_final_message: Annotated[bool, ParameterSpec(openai=SAME, chat_only=True)] = False
    """Continues the last message of a chat."""
    chat_template_kwargs: Annotated[
        dict[str, Any],
        Field(max_length=MAX_TEMPLATE_ARGUMENTS),
        ParameterSpec(openai=SAME, chat_only=True),
    ] = {}
    """Arguments of the chat template, such as `enable_thinking`; what it does not read has no
    effect."""
    documents: Annotated[
        Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None,
        ParameterSpec(openai=SAME, chat_only=True),
    ] = None
    """Documents for a chat template that reads some."""
    reasoning_effort: Annotated[
        ReasoningEffort | None, ParameterSpec(openai=SAME, chat_only=True)
    ] = None
    """For a chat template that reads it. One that reads `enable_thinking` or `thinking` instead
    gets false for `none` and true for the others; one that reads none of them takes `none` only."""
    thinking_token_budget: Annotated[
        NotNegative | None, ParameterSpec(openai=SAME, chat_only=True)
    ] = None
    """Maximum tokens of the thoughts before the answer of a model that reasons."""
    separate_reasoning: bool = False
    """Returns the thoughts before the answer to a chat as `reasoning_content`, and not in its text.
    The routes of OpenAI do so in any case."""
    return_full_text: Annotated[bool, ParameterSpec(tgi=True)] = True
    """Returns the prompt before the new text."""
    decoder_input_details: Annotated[bool, by_processor(False, tgi=True)] = False
    """Adds `prefill` beside `tokens`: the tokens of the prompt with their log probabilities, which
    the first one has not; and `prefill_top_tokens` beside `top_tokens`."""
    return_token_ids: bool = False
    """Adds `details` with `prompt_token_ids` and `token_ids`: the ids of the tokens of the prompt,
    and of the new ones with an end token or a stop string."""
    grammar: Annotated[GrammarSpec | None, ParameterSpec(tgi=True)] = None
    """What the new text must match: `{"type": "json", "value": …}`, a JSON schema, or `regex`."""
    tools: Annotated[Tools, ParameterSpec(openai=SAME, chat_only=True)] = ()
    """Functions that the model may call in a chat, as in OpenAI's API."""
    tool_choice: Annotated[ToolChoice, ParameterSpec(openai=SAME, chat_only=True)] = "auto"
    """`none`, `auto`, `required`, the function to call, or `allowed_tools` of OpenAI's API."""
    parallel_tool_calls: Annotated[bool, ParameterSpec(openai=SAME, chat_only=True)] = True
    """Allows several calls in one text."""
    adapter_id: Annotated[str | None, ParameterSpec(tgi=True)] = None
    """The LoRA adapter that writes the text, by its name in the YAML's `adapters`."""

    def check(self, max_sequences: int, vocabulary: int) -> None:
        super().check(max_sequences, vocabulary)
        if self.decoder_input_details and self.num_beams > 1:
            raise Unprocessable(
                f"decoder_input_details is not supported with num_beams {self.num_beams}"
                "; leave one of them out."
            )
        if not self.prompt_lookup_num_tokens:
            return
        sequences = "num_beams" if self.num_beams > 1 else "num_return_sequences"
        obstacles = {
            self._requested_logprobs: self._requested_logprobs,
            "a grammar or tools": self.grammar or self.tools,
            f"{sequences} {self.sequences}": self.sequences > 1,
        }
        for name, is_set in obstacles.items():
            if is_set:
                raise Unprocessable(
                    f"prompt_lookup_num_tokens is not supported with {name}; leave one of them out."
                )

    def check_model(self, *, has_assistant: bool) -> None:
        """Check that a model has the draft model that the parameters are about.

        Raises:
            Unprocessable: it does not.
        """
        for name in ("num_assistant_tokens", "assistant_confidence_threshold"):
            if getattr(self, name) is not None and not has_assistant:
                raise Unprocessable(
                    f"{name} is not supported by this model, which has no assistant_model"
                    "; leave it out."
                )

    def check_ends(self) -> None:
        """Check that a text with a grammar ends where the grammar does.

        Raises:
            Unprocessable: it would not.
        """
        if self.ignore_eos or self.eos_token_id is not None:
            name = "ignore_eos" if self.ignore_eos else "eos_token_id"
            raise Unprocessable(
                f"{name} is not supported with response_format, grammar or tools; leave one of them"
                " out."
            )

    @model_validator(mode="after")
    def _check_max_new_tokens(self) -> Self:
        if self.max_new_tokens == 0 and not self.decoder_input_details:
            raise ValueError("max_new_tokens is 0; it should be greater than 0")
        return self

    @model_validator(mode="after")
    def _check_tool_names(self) -> Self:
        names = [tool.function.name for tool in self.tools]
        if double := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(
                f"tools has several functions of the name {quote(double)}; rename them"
            )
        return self

    @model_validator(mode="after")
    def _check_tool_choice(self) -> Self:
        choice = self.tool_choice
        if isinstance(choice, AllowedTools):
            offered = [tool.function.name for tool in self.tools]
            unknown = next((name for name in choice.names if name not in offered), None)
            if unknown is not None:
                raise ValueError(
                    f"tool_choice allows {quote(unknown)}, which is not among the tools; add it"
                )
        if self.calls_required and not self.callable_tools:
            raise ValueError(
                "tool_choice requires a call of a function that is not among the tools; add it"
            )
        return self

    def new_tokens_after(self, length: int) -> int | None:
        """Return the maximum of new tokens after a prompt of some length; None if not set.

        Raises:
            RequestTooLarge: the prompt alone has `max_length` tokens.
        """
        total = self.max_length
        if self.max_new_tokens is not None or total is None:
            return self.max_new_tokens
        if total <= length:
            raise TextTooLong(
                f"the prompt has {length:,} tokens and max_length is {total:,}"
                "; raise it, or set max_new_tokens, which counts new ones only."
            )
        return total - length

    @property
    def scores_prompt(self) -> bool:
        """Whether the tokens of the prompt are returned with their log probabilities."""
        return self.decoder_input_details and self.returns_logprobs

    @property
    def returns_logprobs(self) -> bool:
        recorded = super().returns_logprobs
        return recorded and not (self.logprobs is None and self.prompt_lookup_num_tokens)

    @property
    def supports_assistant(self) -> bool:
        """Whether a draft model may propose the tokens of the text: a single greedy one."""
        plain = not (self.do_sample or self.returns_logprobs or self.grammar or self.tools)
        return plain and self.sequences == 1 and not self.prompt_lookup_num_tokens

    @property
    def template_options(self) -> TemplateOptions:
        """The arguments of the chat template other than the messages and the tools."""
        begins, continues = self.add_generation_prompt, self.continue_final_message
        required: dict[str, Any] = {}
        if self.documents:
            required["documents"] = self.documents
        if self.reasoning_effort not in (None, "none"):
            required["reasoning_effort"] = self.reasoning_effort
        arguments = dict(self.chat_template_kwargs)
        if self.reasoning_effort == "none":
            arguments.setdefault("reasoning_effort", "none")
        if self.reasoning_effort is not None:
            thinks = dict.fromkeys(THINKING_ARGUMENTS, self.reasoning_effort != "none")
            arguments = {**thinks, **arguments}
        return TemplateOptions(
            not continues if begins is None else begins, continues, arguments, required
        )

    @property
    def offered_tools(self) -> Sequence[Tool]:
        """The tools that the model is told about."""
        return () if self.tool_choice == "none" else self.tools

    @property
    def callable_tools(self) -> Sequence[Tool]:
        """The tools that it may call."""
        choice = self.tool_choice
        if isinstance(choice, AllowedTools):
            names = choice.names
        elif isinstance(choice, NamedTool):
            names = [choice.function.name]
        else:
            return self.offered_tools
        return [tool for tool in self.tools if tool.function.name in names]

    @property
    def parallel(self) -> bool:
        """Whether a text may have several calls."""
        return self.parallel_tool_calls and not isinstance(self.tool_choice, NamedTool)

    @property
    def calls_required(self) -> bool:
        """Whether the text must be a call."""
        choice = self.tool_choice
        mode = choice.mode if isinstance(choice, AllowedTools) else choice
        return mode not in ("none", "auto")
