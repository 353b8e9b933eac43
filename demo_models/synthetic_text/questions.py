"""Questions about short passages; some have no answer in the passage."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from hf_serve.demo_models.synthetic_text.grammar import (
    Expansion,
    Rules,
    Split,
    read_marks,
    rules_of,
)

Fact = dict[str, Any]

# How often a passage lacks the answer, has the same facts about something else, has a sentence
# of no use, and how often a question has no question mark.
UNANSWERED, DISTRACTOR, FILLER, BARE = 0.15, 0.3, 0.4, 0.15
# How many sentences about other things a passage has; one is drawn.
UNRELATED = (0, 0, 0, 0, 0, 1, 1, 2, 4)


class Question(NamedTuple):
    """A question, its context, and the answer's characters there; (0, 0) if there is none.

    `others` are right, too.
    """

    question: str
    context: str
    start: int
    end: int
    others: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """The answer's text; empty if the context does not have it."""
        return self.context[self.start : self.end]


def questions(split: Split, count: int, seed: int) -> list[Question]:
    """Write passages of one to about eight sentences with one question each."""
    rules, rng = rules_of("questions", split), Random(f"questions {split} {seed}")
    return [_QuestionWriter(rules, rng).pose() for _ in range(count)]


class _QuestionWriter:
    def __init__(self, rules: Rules, rng: Random) -> None:
        self._rules, self._rng = rules, rng
        self._frame: list[Fact] = rng.choice(rules["frames"])
        self._expansion = Expansion(rules, rng)
        facts = [self._frame[0], *(fact for fact in self._frame[1:] if rng.random() < 0.7)]
        self._stated = [(fact, rng.choice(fact["says"])) for fact in facts]

    def pose(self) -> Question:
        asked = [
            (place, word)
            for place, (fact, saying) in enumerate(self._stated)
            for word in fact["asks"]
            if f"<{word}>" in saying
        ]
        queried, word = self._rng.choice(asked)
        wording = self._rng.choice(self._stated[queried][0]["asks"][word])
        passage = [
            self._expansion.expand(saying, marked=place == queried)
            for place, (_, saying) in enumerate(self._stated)
        ]
        question = self._expansion.expand(wording)
        distractor_question, distractor = self._distractor(wording)
        if self._rng.random() < UNANSWERED:
            unanswered = [text for text in (distractor_question, self._missing()) if text]
            if unanswered:
                question, word, distractor = self._rng.choice(unanswered), "", []
        return self._question(question, word, self._surround(passage, distractor))

    def _question(self, question: str, word: str, marked: str) -> Question:
        context, spans = read_marks(marked)
        found = next((span for span in spans if span.label == word), None)
        if self._rng.random() < BARE:
            question, context = question.rstrip("?"), context.rstrip(".")
        return Question(question, context, found.start if found else 0, found.end if found else 0)

    def _distractor(self, wording: str) -> tuple[str, list[str]]:
        """The same facts and question about something else that has no kept word of the passage."""
        if "<" not in wording:
            return "", []
        for _ in range(9):
            expansion = Expansion(self._rules, self._rng)
            passage = [expansion.expand(saying) for _, saying in self._stated]
            question = expansion.expand(wording)
            if not expansion.values & self._expansion.values:
                return question, passage
        return "", []

    def _missing(self) -> str:
        """A question about something that the passage leaves out."""
        said = " ".join(saying for _, saying in self._stated)
        missing = [
            wording
            for fact in self._frame
            for word, wordings in fact["asks"].items()
            if f"<{word}>" not in said
            for wording in wordings
        ]
        return self._expansion.expand(self._rng.choice(missing)) if missing else ""

    def _surround(self, passage: list[str], distractor: list[str]) -> str:
        others: list[list[str]] = []
        if distractor and self._rng.random() < DISTRACTOR:
            others.append(distractor)
        others += [[self._unrelated()] for _ in range(self._rng.choice(UNRELATED))]
        if self._rng.random() < FILLER:
            filler = self._rng.choice(self._rules["filler"])
            others.append([Expansion(self._rules, self._rng).expand(filler)])
        groups = [passage, *others]
        self._rng.shuffle(groups)
        return " ".join(sentence for group in groups for sentence in group)

    def _unrelated(self) -> str:
        unrelated = [frame for frame in self._rules["frames"] if frame is not self._frame]
        fact = self._rng.choice(unrelated)[0]
        return Expansion(self._rules, self._rng).expand(self._rng.choice(fact["says"]))
