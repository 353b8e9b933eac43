"""The bodies of chats and completions: their keys, and the parameters of the task they stand for.

https://platform.openai.com/docs/api-reference/chat and /completions
https://platform.openai.com/docs/guides/structured-outputs
https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
https://huggingface.github.io/text-generation-inference
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from ...config.messages import enumerate_names, shorten
from ...errors import BadRequest, Unprocessable
from ...generation.chat import with_plain_parts
from ...generation.parameters import (
    GenerationParameters,
    NotNegative,
    ParameterSpec,
    TopTokens,
    specs_of,
)
from ...types.request import TokenIds
from ...types.structured_output import NamedTool
from ..base import Key, KeyTable, honoured, ignored, refused
from ..truncation import PromptTokens
from .endpoint import Body
from .errors import KeyNeedsAnother

ANY_OBJECT = {"type": "object"}
# What vLLM binds a text to, by the names of its `structured_outputs` and after `guided_`.
GUIDED = ("json", "regex", "choice", "grammar")
# Keywords of a JSON schema, which stand under `schema`.
OF_SCHEMAS = {"type", "properties", "items", "anyOf", "oneOf", "allOf", "enum", "$ref", "const"}
# How vLLM compiles, and a check that llguidance does in any case.
WITHOUT_EFFECT = {"backend", "disable_fallback"}


class NamedSchema(TypedDict):
    """A JSON schema; unless it is strict, keywords that are not supported are ignored."""

    name: NotRequired[str | None]
    schema: NotRequired[dict[str, Any] | None]
    strict: NotRequired[bool | None]


class ResponseFormat(BaseModel):
    """What a text must be; `json` and `regex` are text-generation-inference's, with a `value`.

    Hugging Face's client sends the schema of `json_schema` as the `value` of `json_object`, and
    clients of llama.cpp as the `schema` of either type.
    """

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    type: Literal["text", "json_object", "json_schema", "json", "regex"]
    json_schema: NamedSchema | None = None
    value: Any = None

    @model_validator(mode="before")
    @classmethod
    def _with_plain_schema(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        if given.get("type") == "json_object" and given.get("value") is None:
            return {**given, "value": given.get("schema")}
        named = given.get("json_schema")
        if given.get("type") != "json_schema":
            return given
        if named is None and isinstance(given.get("schema"), dict):
            return {**given, "json_schema": {"schema": given["schema"]}}
        if isinstance(named, dict) and "schema" not in named and named.keys() & OF_SCHEMAS:
            raise ValueError("has a json_schema without schema; send the schema under that key")
        return given

    @model_validator(mode="after")
    def _has_schema(self) -> Self:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("has no json_schema; add it")
        return self

    @property
    def grammar(self) -> dict[str, Any] | None:
        """The grammar of a text in this format; None if the text is free."""
        if self.type == "text":
            return None
        if self.type in ("json", "regex"):
            return {"type": self.type, "value": self.value}
        if self.type == "json_object" and self.value is not None:
            return {"type": "json", "value": self.value}
        named = self.json_schema or {}
        schema = named.get("schema")
        value = ANY_OBJECT if schema is None else schema
        return {"type": "json", "value": value, "strict": bool(named.get("strict"))}


def structured_grammar(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the grammar of vLLM's `structured_outputs`; None without one.

    Raises:
        BadRequest: it has several, or none.
        Unprocessable: it has a setting that is not supported.
    """
    if given is None:
        return None
    found = {name: value for name, value in given.items() if value not in (None, False)}
    kinds = [name for name in (*GUIDED, "json_object") if name in found]
    others = found.keys() - {*kinds, *WITHOUT_EFFECT}
    if others:
        raise Unprocessable(
            f"structured_outputs.{shorten(min(others))} cannot be done by this server"
            "; leave it out."
        )
    if len(kinds) != 1:
        known = enumerate_names((*GUIDED, "json_object"))
        raise BadRequest(f"structured_outputs has {len(kinds)} of {known}; send one of them.")
    (kind,) = kinds
    return grammar_of(kind, found[kind])


def grammar_of(kind: str, value: Any) -> dict[str, Any]:
    """Return the grammar that one of vLLM's settings stands for."""
    if kind == "json_object":
        return {"type": "json", "value": ANY_OBJECT}
    return {"type": "lark" if kind == "grammar" else kind, "value": value}


BodyT = TypeVar("BodyT", bound=BaseModel)
ItemT = TypeVar("ItemT")
# One error is shown, so the others are not collected: each takes more memory than its item.
Items = Annotated[list[ItemT], Field(fail_fast=True)]
# The value of `thinking_token_budget` for no limit.
NO_BUDGET = -1
# Below it sampling picks the likeliest token, and the division by it overflows.
MIN_TEMPERATURE = 1e-5


class StreamOptions(BaseModel):
    """What a stream contains in addition to the text.

    The last chunk has the usage with `include_usage`, and with vLLM's `continuous_usage_stats`
    each chunk has it so far. OpenAI's `include_obfuscation` has no effect.
    """

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class StreamedBody(Body):
    """Base of the bodies whose response may come as a stream."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None

    def check_supported(self) -> None:
        if self.stream_options is not None and not self.stream:
            raise KeyNeedsAnother("stream_options", "stream: true")


def with_keys_of(kind: type[BodyT], *, chat_only: bool) -> type[BodyT]:
    """Return a body with the keys of the parameters that have the same values in it.

    Args:
        chat_only: whether these are the keys of chats alone, or of both endpoints.
    """
    fields: dict[str, Any] = {
        spec.openai: (_or_null(field), None)
        for name, field in GenerationParameters.model_fields.items()
        for spec in [specs_of(GenerationParameters).get(name)]
        if spec and spec.openai and spec.chat_only == chat_only
    }
    return create_model(kind.__name__, __base__=kind, __module__=kind.__module__, **fields)


def _or_null(field: FieldInfo) -> Any:
    """Return the type of a field whose value may also be null."""
    metadata = [each for each in field.metadata if not isinstance(each, ParameterSpec)]
    kind: Any = Annotated[field.annotation, *metadata] if metadata else field.annotation
    return kind | None


@partial(with_keys_of, chat_only=False)
class Sampling(StreamedBody):
    """The settings of both endpoints."""

    max_tokens: PositiveInt | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1, le=32)] | None = None
    best_of: NotNegative | None = None
    stop: str | Items[str] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    response_format: ResponseFormat | None = None
    # Extensions of OpenAI's API that the servers of open models have.
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    truncate_prompt_tokens: PromptTokens | None = None
    truncation_side: Literal["left", "right"] | None = None
    prompt_logprobs: TopTokens | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None

    @field_validator("seed")
    @classmethod
    def _seed_in_range(cls, seed: int | None) -> int | None:
        return None if seed is None else seed % 2**63

    @property
    def max_new_tokens(self) -> int | None:
        """The maximum number of new tokens."""
        return self.max_tokens

    @property
    def top_tokens(self) -> int | None:
        """How many likely tokens are returned for each; None without log probabilities."""
        return None

    @property
    def shows_ids(self) -> bool:
        """Whether log probabilities have the ids of tokens instead of their texts."""
        return bool(self.return_tokens_as_token_ids)

    @property
    def counts_continuously(self) -> bool:
        """Whether each chunk of a stream has the usage so far."""
        options = self.stream_options
        return bool(options and options.include_usage and options.continuous_usage_stats)

    @property
    def echoes(self) -> bool:
        """Whether the text and its tokens begin with the prompt."""
        return False

    def check_supported(self) -> None:
        super().check_supported()
        if self.prompt_logprobs is not None and self.stream:
            raise BadRequest("prompt_logprobs is not sent in a stream; leave one of them out.")

    @property
    def choices(self) -> int:
        """The number of choices for each prompt."""
        return self.n or 1

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the text-generation task; greedy, unless the body requests sampling."""
        parameters = {
            "max_new_tokens": self.max_new_tokens,
            "stop": self.stop or None,
            "seed": self.seed,
            "logprobs": self.top_tokens is not None or self.prompt_logprobs is not None,
            "top_n_tokens": max(self.top_tokens or 0, self.prompt_logprobs or 0),
            "decoder_input_details": self.prompt_logprobs is not None,
            "return_token_ids": self.return_token_ids or None,
            "grammar": self._grammar,
            "truncate": self.truncate_prompt_tokens,
            "truncation_side": self.truncation_side,
            **self._selection_of_tokens,
            **self._passed_on,
        }
        named = {name: value for name, value in parameters.items() if value is not None}
        return {**named, "return_full_text": False, "details": True}

    @property
    def _selection_of_tokens(self) -> dict[str, Any]:
        """The parameters that say how tokens are selected; the others keep their defaults."""
        if self.top_p == 0 or (self.temperature is not None and self.temperature < MIN_TEMPERATURE):
            return {"num_return_sequences": 1, "do_sample": False}
        if not (self.temperature or self.top_p or self.choices > 1):
            return {"num_return_sequences": 1}
        return {
            "num_return_sequences": self.choices,
            "do_sample": True,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": None if self.top_k is None else max(self.top_k, 0),
            "min_p": self.min_p or None,
        }

    @property
    def _passed_on(self) -> dict[str, Any]:
        """The parameters that have the same values in bodies."""
        specs = specs_of(GenerationParameters).items()
        given = ((name, spec.openai) for name, spec in specs if spec.openai)
        return {name: getattr(self, key) for name, key in given if hasattr(self, key)}

    @property
    def grammar_key(self) -> str | None:
        """The key that has the grammar of the text; None without one."""
        return next(iter(self._grammars), None)

    @property
    def _grammar(self) -> dict[str, Any] | None:
        """The grammar of the text, which at most one key has."""
        if len(self._grammars) > 1:
            names = enumerate_names(self._grammars)
            raise BadRequest(f"{names} exclude one another; send one of them.")
        return next(iter(self._grammars.values()), None)

    @property
    def _grammars(self) -> dict[str, dict[str, Any]]:
        """The grammars by their keys."""
        guided = ((kind, getattr(self, f"guided_{kind}")) for kind in GUIDED)
        structure = self.response_format.grammar if self.response_format else None
        given = {
            "response_format": structure,
            "structured_outputs": structured_grammar(self.structured_outputs),
            **{
                f"guided_{kind}": grammar_of(kind, value)
                for kind, value in guided
                if value is not None
            },
        }
        return {name: value for name, value in given.items() if value is not None}


@partial(with_keys_of, chat_only=True)
class ChatBody(Sampling):
    """The body of `chat/completions`."""

    messages: Items[dict[str, Any]] = Field(min_length=1)
    max_completion_tokens: PositiveInt | None = None
    logprobs: bool | None = None
    top_logprobs: TopTokens | None = None
    include_reasoning: bool | None = None
    echo: bool | None = None

    @field_validator("thinking_token_budget", mode="before", check_fields=False)
    @classmethod
    def _no_budget(cls, budget: Any) -> Any:
        return None if budget == NO_BUDGET else budget

    def check_supported(self) -> None:
        super().check_supported()
        if self.top_logprobs and not self.logprobs:
            raise KeyNeedsAnother("top_logprobs", "logprobs: true")
        given = {name: getattr(self, name) for name in ("tools", "tool_choice")}
        if given["tools"] is None and given["tool_choice"] not in (None, "none"):
            raise KeyNeedsAnother("tool_choice", "tools")
        key = self.grammar_key
        if key not in (None, "response_format") and isinstance(given["tool_choice"], NamedTool):
            raise BadRequest(
                f"{key} and a tool_choice that names a function exclude one another; send one of"
                " them."
            )

    @property
    def echoed_text(self) -> str:
        """The text before the new one with `echo`: the last message of the same role."""
        last, given = with_plain_parts(self.messages[-1]), self._passed_on
        continues = given["add_generation_prompt"] is False or given["continue_final_message"]
        if not self.echo or (last.get("role") != "assistant" and not continues):
            return ""
        content = last.get("content")
        if isinstance(content, list):
            return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        return content if isinstance(content, str) else ""

    @property
    def max_new_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def top_tokens(self) -> int | None:
        return self.top_logprobs or 0 if self.logprobs else None

    @property
    def parameters(self) -> dict[str, Any]:
        return {**super().parameters, "separate_reasoning": True}


class CompletionBody(Sampling):
    """The body of `completions`."""

    prompt: str | Items[str] | Items[int] | Items[Items[int]]
    max_tokens: NotNegative | None = None
    echo: bool | None = None
    logprobs: TopTokens | None = None

    def check_supported(self) -> None:
        super().check_supported()
        if self.max_tokens == 0 and not self.echo and self.prompt_logprobs is None:
            raise BadRequest(
                "max_tokens is 0, which returns nothing; send more, or echo: true too."
            )

    @field_validator("prompt", mode="wrap")
    @classmethod
    def _one_kind_of_prompt(cls, value: Any, read: ValidatorFunctionWrapHandler) -> Any:
        try:
            return read(value)
        except ValidationError:
            raise ValueError(
                "is no prompt; send a text, token ids, or a list of texts or of such ids"
            ) from None

    @property
    def prompts(self) -> list[str | TokenIds]:
        """Every prompt of the body: a text, or token ids."""
        single = isinstance(self.prompt, str) or (self.prompt and isinstance(self.prompt[0], int))
        prompts: list[Any] = [self.prompt] if single else list(self.prompt)
        return [each if isinstance(each, str) else TokenIds(tuple(each)) for each in prompts]

    @property
    def top_tokens(self) -> int | None:
        return self.logprobs

    @property
    def parameters(self) -> dict[str, Any]:
        # A prompt without new tokens is read for its log probabilities alone.
        parameters = {**super().parameters, "return_full_text": self.echoes}
        if self.echoes and (self.logprobs is not None or self.max_tokens == 0):
            parameters["decoder_input_details"] = True
        return parameters

    @property
    def echoes(self) -> bool:
        return bool(self.echo)


# Who asks, how it is billed, and where a server of OpenAI or vLLM runs it.
BOOKKEEPING = ignored(
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
)
SCHEDULING = ignored("request_id", "session_id", "priority", "cache_salt")

SAMPLING = {
    **BOOKKEEPING,
    **SCHEDULING,
    # How vLLM computes, or sends events; fast tokenizers have no such spaces.
    **ignored(
        "spaces_between_special_tokens",
        "guided_decoding_backend",
        "stream_interval",
        "return_mm_kwargs",
        "mm_payload",
        "return_token_offsets",
        "routed_experts_prompt_start",
    ),
    **refused(
        use_beam_search=False,
        length_penalty=1.0,
        include_stop_str_in_output=False,
        logprob_token_ids=[],
        return_prompt_text=False,
        logits_processors=[],
        guided_whitespace_pattern=[],
        structural_tag=[],
        repetition_detection=[],
        watermarking=False,
        kv_transfer_params=[],
        ec_transfer_params=[],
        vllm_xargs=[],
        mm_processor_kwargs=[],
        media_io_kwargs=[],
    ),
}

CHAT = KeyTable(
    {
        **honoured(*ChatBody.model_fields),
        **SAMPLING,
        # Its text makes the answer of OpenAI's servers faster, not another one. Tools are described
        # as the model's template does it.
        **ignored("prediction", "tool_prompt"),
        **refused(
            functions=[],
            function_call=["none", "auto"],
            modalities=[["text"]],
            audio=[],
            verbosity="medium",
            moderation=[],
            guideline=[],
        ),
        # An empty object asks for a search.
        "web_search_options": Key("refused", refuses_empty=True),
        # A template is a program; the checkpoint's own is the only one that runs.
        "chat_template": Key("refused", remedy="the checkpoint's own is used, so leave it out"),
    }
)

COMPLETIONS = KeyTable(
    {
        **honoured(*CompletionBody.model_fields),
        **SAMPLING,
        **refused(suffix=[], prompt_embeds=[], thinking_token_budget=NO_BUDGET),
    }
)
