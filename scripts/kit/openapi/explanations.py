"""What `/explanations` answers, for each mode that is explained."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from handlers.tasks.base import Label
from handlers.tasks.question_answering import AnswerSpan
from handlers.tasks.text_generation import Generated


class Pieces(TypedDict):
    """What every explanation tells: the tokens or words, and how they were weighed.

    `offsets` are each one's first character and the one behind its last, in the text whose number
    is in `sequence_ids`; null there means a special token. `converged` is null for methods that do
    not claim to sum up.
    """

    words: list[str]
    offsets: list[tuple[int, int]]
    sequence_ids: list[int | None]
    method: str
    converged: bool | None
    warning: str | None


class Attributions(TypedDict):
    """A number for each word, which sum to `output` - `baseline_output` up to a delta."""

    attributions: list[float]
    output: float
    baseline_output: float
    convergence_delta: float


class Sums(Attributions):
    """Attributions, and whether their sum is right within 5%."""

    converged: bool


class Weighed(Pieces, Attributions):
    """An explanation of one number; `importances` are the attributions, normalised."""

    importances: list[float]
    delta: float


class Place(Label):
    """A label of some characters of the text."""

    start: int
    end: int


class ClassTarget(Label):
    """The class that is explained."""

    index: int


class TokensTarget(Place):
    """The class that is explained, and for which tokens."""

    index: int
    tokens: list[int]


class SpanTarget(Place):
    """The span that is explained: its text, and its first and last token."""

    tokens: tuple[int, int]


class TokenWeight(TypedDict):
    """How much each word of the prompt counted for one token of the text."""

    token: str
    score: float
    importances: list[float]
    delta: float


class ClassExplanation(Weighed):
    """Why a text got a label."""

    prediction: Label
    target: ClassTarget


class TokenExplanation(Weighed):
    """Why tokens got a label."""

    prediction: Place
    target: TokensTarget


class SpanExplanation(Pieces):
    """Why an answer starts and ends where it does."""

    importances_answer_start: list[float]
    importances_answer_end: list[float]
    delta_start: float
    delta_end: float
    answer_start: Sums
    answer_end: Sums
    prediction: AnswerSpan
    target: SpanTarget


class TextExplanation(Weighed):
    """Which words of the prompt led to a text, as a whole and token by token."""

    tokens: list[TokenWeight]
    prediction: Generated
    target: Label


EXPLANATIONS: dict[str, Any] = {
    "sequence_classification": ClassExplanation,
    "token_classification": TokenExplanation,
    "question_answering": SpanExplanation,
    "text_generation": TextExplanation,
}
