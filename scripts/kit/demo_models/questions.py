"""Questions about short passages; some of them the passage does not answer."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from scripts.kit.demo_models.grammar import Rules, Scene, Split, read_marks, rules_of

Fact = dict[str, Any]

# How often a passage lacks the answer, holds the same facts about something else, holds a sentence
# of no use, and how often a question has no question mark.
UNTOLD, RIVAL, FILLER, BARE = 0.15, 0.3, 0.4, 0.15
# How many sentences about other things a passage holds; one is drawn.
STRANGERS = (0, 0, 0, 0, 0, 0, 1, 1, 1, 4)


class Question(NamedTuple):
    """A question, its context, and the answer's characters there; (0, 0) where there is none."""

    question: str
    context: str
    start: int
    end: int

    @property
    def answer(self) -> str:
        """The answer's text; empty where the context does not hold it."""
        return self.context[self.start : self.end]


def questions(split: Split, count: int, seed: int) -> list[Question]:
    """Write passages of one to about eight sentences with one question each."""
    rules, rng = rules_of("questions", split), Random(f"questions {split} {seed}")
    return [_Exam(rules, rng).pose() for _ in range(count)]


class _Exam:
    def __init__(self, rules: Rules, rng: Random) -> None:
        self._rules, self._rng = rules, rng
        self._frame: list[Fact] = rng.choice(rules["frames"])
        self._scene = Scene(rules, rng)
        self._told = [self._frame[0], *(fact for fact in self._frame[1:] if rng.random() < 0.7)]

    def pose(self) -> Question:
        asked = self._rng.choice(self._told)
        word = self._rng.choice(list(asked["asks"]))
        wording = self._rng.choice(asked["asks"][word])
        passage = [self._tell(self._scene, fact, marked=fact is asked) for fact in self._told]
        question = self._scene.tell(wording)
        rival_question, rival = self._rival(wording)
        unanswered = [text for text in (rival_question, self._missing()) if text]
        if unanswered and self._rng.random() < UNTOLD:
            question, word, rival = self._rng.choice(unanswered), "", []
        return self._question(question, word, self._surround(passage, rival))

    def _question(self, question: str, word: str, marked: str) -> Question:
        context, spans = read_marks(marked)
        found = next((span for span in spans if span.label == word), None)
        if self._rng.random() < BARE:
            question, context = question.rstrip("?"), context.rstrip(".")
        return Question(question, context, found.start if found else 0, found.end if found else 0)

    def _rival(self, wording: str) -> tuple[str, list[str]]:
        """The same facts and question about something else that shares no word with the scene."""
        if "<" not in wording:
            return "", []
        for _ in range(9):
            scene = Scene(self._rules, self._rng)
            passage = [self._tell(scene, fact) for fact in self._told]
            question = scene.tell(wording)
            if not scene.values & self._scene.values:
                return question, passage
        return "", []

    def _missing(self) -> str:
        """A question about a fact that the passage leaves out."""
        missing = [fact for fact in self._frame if fact not in self._told]
        if not missing:
            return ""
        wordings = self._rng.choice(list(self._rng.choice(missing)["asks"].values()))
        return self._scene.tell(self._rng.choice(wordings))

    def _surround(self, passage: list[str], rival: list[str]) -> str:
        others: list[list[str]] = []
        if rival and self._rng.random() < RIVAL:
            others.append(rival)
        others += [[self._stranger()] for _ in range(self._rng.choice(STRANGERS))]
        if self._rng.random() < FILLER:
            filler = self._rng.choice(self._rules["filler"])
            others.append([Scene(self._rules, self._rng).tell(filler)])
        groups = [passage, *others]
        self._rng.shuffle(groups)
        return " ".join(sentence for group in groups for sentence in group)

    def _stranger(self) -> str:
        strangers = [frame for frame in self._rules["frames"] if frame is not self._frame]
        return self._tell(Scene(self._rules, self._rng), self._rng.choice(strangers)[0])

    def _tell(self, scene: Scene, fact: Fact, *, marked: bool = False) -> str:
        return scene.tell(self._rng.choice(fact["says"]), marked=marked)
