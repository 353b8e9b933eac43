"""Questions about a text whose answers are known: a decision is a probability for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..config.messages import quote
from ..errors import BadRequest

Kind = Literal["predicate", "choice", "score"]
MAX_OPTIONS, MAX_LEVELS = 255, 10


@dataclass(frozen=True)
class Option:
    """An answer that a question allows.

    Attributes:
        name: what it is called; of a predicate it is `true` or `false`.
        description: what it means; None where the name says it.
    """

    name: str
    description: str | None = None

    def __str__(self) -> str:
        return self.name if self.description is None else f"{self.name}: {self.description}"


PREDICATE = (Option("true"), Option("false"))


@dataclass(frozen=True)
class Question:
    """A question about a text. The decision is a list with the probability of each option.

    Attributes:
        kind: whether the options are true and false, names without an order, or the levels of a
            scale from lowest to highest.
        text: the text that it is about.
        instructions: the question, or a statement that is true or false.
        options: the answers that it allows.
    """

    kind: Kind
    text: str
    instructions: str
    options: Sequence[Option] = PREDICATE

    @property
    def characters(self) -> int:
        """The number of characters of all its texts."""
        return (
            len(self.text) + len(self.instructions) + sum(len(str(each)) for each in self.options)
        )

    def check(self, name: str) -> None:
        """Check the options.

        Args:
            name: the name of the question in the request, for errors.

        Raises:
            BadRequest: there are too few or too many, or two are equal.
        """
        most = MAX_LEVELS if self.kind == "score" else MAX_OPTIONS
        if not 2 <= len(self.options) <= most:
            raise BadRequest(
                f"{name}: the number of options is {len(self.options)}; send from 2 to {most}."
            )
        names = [each.name for each in self.options]
        twice = next((each for each in names if names.count(each) > 1), None)
        if twice is not None:
            raise BadRequest(f"{name} has the option {quote(twice)} twice; send it once.")


@dataclass(frozen=True)
class ModeratedText:
    """A text for a guard model. The result is a list with the score of each category."""

    text: str


@dataclass(frozen=True)
class LabelledQuestion:
    """A question and its right answer.

    Attributes:
        answer: the number of the right option.
        place: the place of its line in a file, for errors, which never quote its content.
    """

    question: Question
    answer: int
    place: str
