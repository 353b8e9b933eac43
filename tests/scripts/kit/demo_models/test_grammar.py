from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

import pytest

from scripts.kit.demo_models.grammar import Expansion, Rules, Span, read_marks, rules_of

GRAMMARS = ("sentiment", "entities", "questions", "stories")
REFERENCE = re.compile(r"[{<](\w+)[}>]")
RULES: Rules = {
    "animal": ["owl", "ape"],
    "noise": ["{animal} hum"],
    "name": [str(number) for number in range(1000)],
}


def texts(rules: Rules) -> Iterator[str]:
    for word, entries in rules.items():
        for entry in entries:
            if word != "frames":
                yield entry
                continue
            for fact in entry:
                yield from fact["says"]
                for wordings in fact["asks"].values():
                    yield from wordings


def own_texts(grammar: str) -> tuple[set[str], set[str]]:
    """The texts of the two splits, without those that both have or that consist of references."""
    train, held_out = rules_of(grammar, "train"), rules_of(grammar, "held_out")
    shared = {word for word in train if train[word] == held_out.get(word)}
    splits = ({word: rules[word] for word in rules.keys() - shared} for rules in (train, held_out))
    ours, theirs = ({text.lower() for text in texts(rules)} for rules in splits)
    with_words = re.compile("[a-z]")
    return (
        {text for text in ours if with_words.search(REFERENCE.sub("", text))},
        {text for text in theirs if with_words.search(REFERENCE.sub("", text))},
    )


def expand(text: str, *, seed: int = 1, marked: bool = False) -> str:
    return Expansion(RULES, Random(seed)).expand(text, marked=marked)


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_held_out_templates_and_words_never_occur_in_training(grammar: str) -> None:
    train, held_out = own_texts(grammar)
    assert len(train) > len(held_out) > 40
    assert not train & held_out


@pytest.mark.parametrize("split", ["train", "held_out"])
@pytest.mark.parametrize("grammar", GRAMMARS)
def test_every_word_that_a_rule_names_has_rules(grammar: str, split: str) -> None:
    rules = rules_of(grammar, "train" if split == "train" else "held_out")
    named = {word for text in texts(rules) for word in REFERENCE.findall(text)}
    assert named
    assert named <= rules.keys()


def test_a_kept_word_stays_the_same_and_a_fresh_one_is_drawn_again() -> None:
    first, again, fresh, other = expand("<name> <name> {name} {name}").split()
    assert first == again
    assert len({first, fresh, other}) == 3


def test_choices_are_made_innermost_first() -> None:
    found = {expand("(a (b|c)|d)", seed=seed) for seed in range(40)}
    assert found == {"A b", "A c", "D"}


def test_sentences_begin_with_capitals_and_articles_fit() -> None:
    assert expand("a {noise}. a <animal>?", seed=3) in {
        f"An {one} hum. An {two}?" for one in ("owl", "ape") for two in ("owl", "ape")
    }


def test_marks_become_spans_of_characters() -> None:
    text, spans = read_marks("Near [LOC Oslo] waits [PER Eva Holm].")
    assert text == "Near Oslo waits Eva Holm."
    assert spans == [Span("LOC", 5, 9), Span("PER", 16, 24)]


def test_a_marked_text_names_the_kept_words() -> None:
    text, [span] = read_marks(expand("Look, <name>!", marked=True))
    assert text[span.start : span.end] in RULES["name"]
    assert span.label == "name"
