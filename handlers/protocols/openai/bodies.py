"""What OpenAI's endpoints read: their own names, and those of `generate` that they go to.

https://platform.openai.com/docs/api-reference/chat and /completions
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from handlers.errors import Unprocessable
from handlers.schemas.parameters import WholeNumbers
from handlers.schemas.token_ids import TokenIds
from handlers.schemas.validation import parse_body

Penalty = Annotated[float, Field(ge=-2, le=2)]
# Below it a draw is the likeliest token, and dividing by it overflows.
COLDEST = 1e-5
STANDARD = {
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "logprobs": False,
    "best_of": 1,
    "suffix": "",
    "tools": [],
    "functions": [],
    "logit_bias": {},
}


class StreamOptions(BaseModel):
    """What a stream tells beside the text."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    include_usage: bool = False


class Sampling(WholeNumbers):
    """What both endpoints take; names that only OpenAI's own servers know are left."""

    model_config = ConfigDict(
        extra="ignore", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=()
    )

    model: str | None = None
    max_tokens: PositiveInt | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1, le=32)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: dict[str, float] | None = None
    # Beyond OpenAI's, as the servers of open models take them.
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: float | None = None

    @field_validator("seed")
    @classmethod
    def _seed_in_range(cls, seed: int | None) -> int | None:
        return None if seed is None else seed % 2**63

    @classmethod
    def of(cls, content: Any) -> Self:
        """Check a body.

        Raises:
            BadRequest: with the first mistake.
            Unprocessable: it asks for what models here cannot do.
        """
        body = parse_body(cls, content)
        _refuse_special(content)
        return body

    @property
    def most_tokens(self) -> int | None:
        """How many new tokens at most, under whatever name."""
        return self.max_tokens

    @property
    def count(self) -> int:
        """How many answers a prompt gets."""
        return self.n or 1

    @property
    def parameters(self) -> dict[str, Any]:
        """What the text-generation task is to do; greedy, unless the body asks for a draw."""
        cold = self.top_p == 0 or (self.temperature is not None and self.temperature < COLDEST)
        draws = not cold and bool(self.temperature or self.top_p or self.count > 1)
        given = {
            "max_new_tokens": self.most_tokens,
            "num_return_sequences": self.count if draws else 1,
            "stop": self.stop or None,
            "seed": self.seed,
            "do_sample": draws if draws or cold else None,
            "temperature": self.temperature if draws else None,
            "top_p": self.top_p if draws else None,
            "top_k": max(self.top_k, 0) if draws and self.top_k is not None else None,
            "min_p": self.min_p or None if draws else None,
            "repetition_penalty": self.repetition_penalty,
        }
        named = {name: value for name, value in given.items() if value is not None}
        return {**named, "return_full_text": False, "details": True}


class ChatBody(Sampling):
    """The body of `chat/completions`."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    max_completion_tokens: PositiveInt | None = None

    @property
    def most_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class CompletionBody(Sampling):
    """The body of `completions`."""

    prompt: str | list[str] | list[int] | list[list[int]]
    echo: bool | None = None

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
        """Every prompt of the body: a text, or the tokens that its sender has made of one."""
        one = isinstance(self.prompt, str) or (self.prompt and isinstance(self.prompt[0], int))
        prompts: list[Any] = [self.prompt] if one else list(self.prompt)
        return [each if isinstance(each, str) else TokenIds(tuple(each)) for each in prompts]

    @property
    def parameters(self) -> dict[str, Any]:
        return {**super().parameters, "return_full_text": bool(self.echo)}


def _refuse_special(content: Mapping[str, Any]) -> None:
    wanted = [name for name, usual in STANDARD.items() if not _is_usual(content.get(name), usual)]
    if (content.get("response_format") or {"type": "text"}) != {"type": "text"}:
        wanted.append("response_format")
    if wanted:
        raise Unprocessable(f"{wanted[0]} cannot be done by this server; leave it out.")


def _is_usual(value: Any, usual: Any) -> bool:
    """Tell whether a setting changes nothing; 0 is a number of `logprobs`, and not false."""
    return value is None or (value == usual and isinstance(value, bool) == isinstance(usual, bool))
