from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from hf_serve.demo_models.synthetic_text.grammar import (
    Expansion,
    Rules,
    Span,
    Split,
    has_words,
    read_marks,
    rules_of,
    written,
)

GRAMMARS = ("sentiment", "entities", "questions", "stories")
REFERENCE = re.compile(r"[{<](\w+)(?:/\d)?[}>]")
SPLITS: tuple[Split, ...] = ("train", "validation", "held_out")
# Rules that consist of references and the forms of pronouns, in every split.
ALIKE = {"person", "other_person"}
RULES: Rules = {
    "animal": ["owl", "ape"],
    "noise": ["{animal} hum"],
    "name": [str(number) for number in range(1000)],
}


def texts(rules: Any) -> Iterator[str]:
    """Every text of rules, of their domains and of their facts."""
    if isinstance(rules, str):
        yield rules
    else:
        for entry in rules.values() if isinstance(rules, dict) else rules:
            yield from texts(entry)


def own_texts(grammar: str, split: Split) -> set[str]:
    """The texts of a split that have words, without those that all splits share."""
    shared = ALIKE | written(grammar).get("shared", {}).keys()
    rules = {word: own for word, own in rules_of(grammar, split).items() if word not in shared}
    return {text.lower() for text in texts(rules) if has_words(text)}


def words_of(rules: Rules) -> set[str]:
    """The words that have rules, also those of a domain."""
    domains = rules.get("domains", {}).values()
    return set(rules).union(*domains)


def expand(text: str, *, seed: int = 1, marked: bool = False) -> str:
    return Expansion(RULES, Random(seed)).expand(text, marked=marked)


@pytest.mark.parametrize("grammar", GRAMMARS)
@pytest.mark.parametrize("split", ["train", "validation"])
def test_held_out_templates_and_words_never_occur_in_training(grammar: str, split: Split) -> None:
    ours, held_out = own_texts(grammar, split), own_texts(grammar, "held_out")
    assert len(held_out) > 100
    assert not ours & held_out


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_long_lists_of_rules_are_divided_between_training_and_validation(grammar: str) -> None:
    train, validation = rules_of(grammar, "train"), rules_of(grammar, "validation")
    both = {
        word: [rule for rule in rules if rule in validation[word] and has_words(str(rule))]
        for word, rules in train.items()
        if word not in ("domains", *ALIKE) and train[word] != validation[word]
    }
    assert len(both) > 5
    assert not any(both.values())


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("grammar", GRAMMARS)
def test_every_word_that_a_rule_names_has_rules(grammar: str, split: Split) -> None:
    rules = rules_of(grammar, split)
    named = {word for text in texts(rules) for word in REFERENCE.findall(text)}
    assert named
    assert named <= words_of(rules)


def test_a_form_of_a_word_is_chosen_by_its_number() -> None:
    rules: Rules = {"deed": ["wrote/write"], "who": ["{deed}r/her"]}
    expanded = Expansion(rules, Random(1)).expand("I <deed>, <deed/2>, <who/2>", marked=True)
    assert expanded == "I [deed wrote], write, her"


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
