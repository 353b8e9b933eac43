"""A request to the engine, independent of wire formats, and its state in the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, NotRequired

import numpy as np
import numpy.typing as npt
from typing_extensions import TypedDict

from ..batching.rows import Outputs
from ..config.messages import quote
from ..errors import BadRequest, RequestError, TextTooLong
from .parameters import ExplanationParameters

# The messages of a chat: a template adds text to each.
MAX_MESSAGES = 1_000


class TextToken(TypedDict):
    """A token of a generated text or of its prompt, or one that was likely in its place.

    `text` is what it adds to the text, of a special token in place of another its name. `logprob`
    is the natural logarithm of the probability that the model gives it; null for the first token of
    a prompt. `bytes` are there where the token has a part of a character only, and `rank`, its
    place among all tokens by probability, where it is a token of a prompt.
    """

    id: int
    text: str
    logprob: float | None
    special: bool
    bytes: NotRequired[list[int]]
    rank: NotRequired[int]


@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """A token that was generated, or one that was likely in its place.

    Attributes:
        logprob: the natural logarithm of the probability that the model gives it.
        special: whether it is a special token.
        partial: its bytes, where they are a part of a character.
        top: the most likely tokens in its place, best first; as many as the request asks for.
        rank: its place among all tokens, from 1, where it is a token of a prompt.
    """

    id: int
    text: str
    logprob: float
    special: bool = False
    partial: bytes | None = None
    top: Sequence[GeneratedToken] = ()
    rank: int | None = None

    def as_json(self) -> TextToken:
        """Return it without the tokens in its place, ready for JSON."""
        token = TextToken(id=self.id, text=self.text, logprob=self.logprob, special=self.special)
        if self.partial is not None:
            token["bytes"] = list(self.partial)
        if self.rank is not None:
            token["rank"] = self.rank
        return token

    def top_as_json(self) -> list[TextToken]:
        """Return the most likely tokens in its place, ready for JSON."""
        return [each.as_json() for each in self.top]


@dataclass(frozen=True, slots=True)
class WrittenTokens:
    """The tokens of a text that is being generated.

    Attributes:
        read: the number of tokens of its prompt.
        new: the number of new tokens.
        prompt_ids: the ids of the tokens of its prompt.
        new_ids: the ids of the new tokens; empty where the request does not ask for ids.
    """

    read: int = 0
    new: int = 0
    prompt_ids: Sequence[int] = ()
    new_ids: Sequence[int] = ()


class TextStream:
    """Sends a generated text before it is complete.

    Args:
        send: takes new text, and its tokens where they are recorded.

    Attributes:
        sends_sequences: whether it sends several texts of a prompt, each by itself.
        emitted: the text that was sent; `emitted_reasoning` the thoughts before it.
        emitted_tokens: how many tokens were sent with them.
        written: the tokens that are generated, of which some may have no text yet.
    """

    sends_sequences: ClassVar[bool] = False

    def __init__(self, send: Callable[[str, Sequence[GeneratedToken]], None]) -> None:
        self._send = send
        self.emitted = self.emitted_reasoning = ""
        self.emitted_tokens = 0
        self.written = WrittenTokens()

    @property
    def has_begun(self) -> bool:
        """Whether a part was sent."""
        return bool(self.emitted or self.emitted_reasoning)

    def of_sequence(self, number: int) -> TextStream:
        """Return what sends one of the texts of a prompt; this one for the only text."""
        return self

    def not_emitted(self, text: str) -> str:
        """Return the part of a text that was not sent; empty if it begins differently."""
        return text[len(self.emitted) :] if text.startswith(self.emitted) else ""

    def emit(self, text: str, tokens: Sequence[GeneratedToken] = ()) -> None:
        """Send the part of a text that was not sent; nothing if it begins differently.

        Args:
            tokens: the tokens of the part that was not sent; none where they are not recorded.
        """
        if new := self.not_emitted(text):
            self.emitted = text
            self.emitted_tokens += len(tokens)
            self._send(new, tokens)

    def emit_reasoning(self, reasoning: str, tokens: Sequence[GeneratedToken] = ()) -> bool:
        """Send what is new of the thoughts before a text, and return whether that was sent.

        By default they are left for the response.
        """
        return False

    def emit_calls(self, calls: Sequence[Any]) -> None:
        """Send the tool calls that were not sent; by default they are left for the response."""

    def end(self, result: Mapping[str, Any]) -> None:
        """Send the end of a text that is complete; by default it is left for the response."""


class StepStream:
    """Reports the steps of generated images.

    Args:
        send: takes the number of a step, from 1, and the number of steps.

    Attributes:
        emitted: how many steps were reported.
    """

    def __init__(self, send: Callable[[int, int], None]) -> None:
        self._send = send
        self.emitted = 0

    @property
    def has_begun(self) -> bool:
        """Whether a step was reported."""
        return bool(self.emitted)

    def emit(self, step: int, steps: int) -> None:
        """Report a step."""
        self.emitted += 1
        self._send(step, steps)


@dataclass
class TokenCount:
    """Receives how many tokens the model read for a request, special tokens included."""

    tokens: int = 0


@dataclass(frozen=True)
class TokenIds:
    """A tokenized prompt, as OpenAI's `completions` accepts it; no special tokens are added."""

    ids: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def check(self, vocabulary: int) -> None:
        """Refuse an empty list of ids, and the first id that is not in the vocabulary."""
        if not self.ids:
            raise BadRequest("The prompt is an empty list of token ids; send at least one.")
        unknown = next((number for number in self.ids if not 0 <= number < vocabulary), None)
        if unknown is not None:
            raise BadRequest(
                f"The prompt has the token {quote(unknown)}, and this model's go from 0 to"
                f" {vocabulary - 1:,}; send a text, or ids of this model's tokenizer."
            )

    def check_length(self, max_characters: int) -> None:
        """Refuse more ids than a text may have characters."""
        if len(self) > max_characters:
            raise TextTooLong(
                f"The prompt has {len(self):,} token ids, and this model takes"
                f" {max_characters:,} characters; send fewer."
            )

    def truncate(self, max_tokens: int, side: str) -> TokenIds:
        """Return at most `max_tokens` ids, without others on the `left` or the `right`."""
        return TokenIds(self.ids[-max_tokens:] if side == "left" else self.ids[:max_tokens])


def as_token_ids(inputs: Any) -> Any:
    """Return a list of numbers as token ids, other inputs as they are."""
    if isinstance(inputs, list) and inputs and all(type(each) is int for each in inputs):
        return TokenIds(tuple(inputs))
    return inputs


@dataclass(frozen=True)
class Request:
    """One request to the engine.

    Attributes:
        parameters: the task's parameters by name.
        is_batch_item: whether it is an item of a list, for which transformers' pipelines return
            some results in another shape than for the same inputs without a list.
        stream: sends a generated text before it is complete.
        progress: reports the steps of generated images.
        use_remaining_context: whether a generated text that has no maximum may have all tokens that
            the model's limit leaves, instead of the model's default.
        token_count: receives the number of its tokens, where the response tells it.
    """

    inputs: Any
    parameters: Mapping[str, Any] = field(default_factory=dict)
    is_batch_item: bool = False
    stream: TextStream | None = None
    progress: StepStream | None = None
    use_remaining_context: bool = False
    token_count: TokenCount | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Sample(Request):
    """A request from a file; `place` names the line for errors, which never quote its content."""

    place: str = field(default="", repr=False, compare=False)


def place_of(request: Request) -> str:
    """Return the place of a request, for errors."""
    return request.place if isinstance(request, Sample) else "a row of handler.calibration"


class Operation(IntEnum):
    """What the engine does for a request, in the order in which a batch is run."""

    TOKENIZE = 1
    DETOKENIZE = 2
    PREDICT = 3
    # Last, as it takes longest.
    EXPLAIN = 4


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """A text and its tokens.

    Attributes:
        offsets: begin and end of each token among the characters of the text, of shape
            (tokens, 2); both are 0 for a token that the tokenizer adds. None where the tokenizer
            does not know them.
        special: the names of the special tokens among them, by id.
        names: the name of each token where there are no offsets.
    """

    text: str
    ids: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64] | None
    special: Mapping[int, str]
    names: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.ids)


DEFAULT_SETTINGS = ExplanationParameters()


@dataclass(eq=False, slots=True)
class RequestState:
    """A request, and what each step has made of it.

    Attributes:
        request: the request.
        http_request_id: the number of the HTTP request that it belongs to.
        input: the request as the task parsed it.
        settings: the explanation parameters, as the explanation target declares them; unused for
            predictions.
        rows: the encoded rows.
        outputs: the model outputs of each row.
        result: the result.
        error: why there is none; further steps skip the request.
    """

    request: Request
    http_request_id: int = 0
    input: Any = None
    settings: Any = DEFAULT_SETTINGS
    rows: Sequence[Any] = ()
    outputs: Sequence[Outputs] = ()
    result: Any = None
    error: RequestError | None = None

    def cost(self) -> int:
        """Return what is computed for its rows, in the unit of the task's budget."""
        return sum(row.cost for row in self.rows)

    def may_run_again(self) -> bool:
        """Return whether no part of the response was sent."""
        stream = self.request.stream or self.request.progress
        return stream is None or not stream.has_begun


@dataclass(frozen=True)
class RequestBody:
    """The body of a request, and what its client accepts.

    Attributes:
        content: its text, or its bytes where its content type is no text.
        content_type: its content type without parameters.
        accept: the Accept header.
        decode: returns its content as Hugging Face's containers decode it: JSON as an object, other
            types as an object with `inputs`.
    """

    content: str | bytes
    content_type: str
    accept: str
    decode: Callable[[], Any]


@dataclass(frozen=True)
class ResponseBody:
    """The body of a response."""

    content: bytes
    content_type: str
