from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from transformers import AutoTokenizer

from hf_serve.handlers.errors import BadRequest, RequestError, RequestTooLarge, Unprocessable
from hf_serve.handlers.generation.grammar import CompiledGrammar, GrammarCompiler, GrammarProcessor
from hf_serve.handlers.generation.json_schemas import json_rule
from hf_serve.handlers.generation.text_grammar import to_lark
from hf_serve.handlers.types.structured_output import Grammar
from tests.sentences import Sentence, refused
from tests.tiny_tokenizers import write_bert, write_gpt2, write_llama, write_roberta

# More ids than the tokenizers have, as in models whose embeddings are padded.
WIDTH = 448
KINDS: dict[str, Callable[[Path], Any]] = {
    "byte-level BPE": write_gpt2,
    "byte-level BPE with special tokens": write_roberta,
    "SentencePiece with byte fallback": write_llama,
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"enum": ["Zoë", "雨", "fox"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


class Vocabulary:
    """A tokenizer of a kind, and what compiles grammars for it."""

    def __init__(self, folder: Path, write: Callable[[Path], Any]) -> None:
        write(folder)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.end = int(self.tokenizer.eos_token_id)
        self.compiler = GrammarCompiler(self.tokenizer, WIDTH, frozenset([self.end]))

    def compile(self, kind: str, value: Any, **more: Any) -> CompiledGrammar:
        grammar = Grammar.model_validate({"type": kind, "value": value, **more})
        return self.compiler.compile(f"start: {to_lark(grammar)}")

    def write(self, grammar: CompiledGrammar, seed: int, most: int = 200) -> str | None:
        """Return a text of random tokens that a grammar allows; None if it does not end."""
        matcher, random = grammar.matcher(), np.random.default_rng(seed)
        ids: list[int] = []
        while not matcher.ended and len(ids) < most:
            allowed = matcher.allowed(WIDTH)
            assert allowed.any() and bool(allowed[self.end]) == matcher.may_end
            ids.append(int(random.choice(np.flatnonzero(allowed))))
            matcher.consume(ids[-1])
        assert matcher.error is None
        assert max(ids) < len(self.tokenizer)
        return self.tokenizer.decode(ids[:-1]) if matcher.ended else None


@pytest.fixture(scope="module", params=KINDS)
def vocabulary(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return Vocabulary(tmp_path_factory.mktemp("tokenizer"), KINDS[request.param])


@pytest.fixture(scope="module")
def bytes_vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return Vocabulary(tmp_path_factory.mktemp("tokenizer"), write_gpt2)


def random_texts(vocabulary: Vocabulary, grammar: CompiledGrammar) -> Iterator[str]:
    """Yield the texts of many seeds that end, at least some."""
    texts = [vocabulary.write(grammar, seed) for seed in range(30)]
    finished = [text for text in texts if text is not None]
    assert finished
    yield from finished


def test_random_tokens_become_json_of_the_schema(vocabulary: Vocabulary) -> None:
    grammar, validator = vocabulary.compile("json", PERSON), Draft202012Validator(PERSON)
    found = [json.loads(text) for text in random_texts(vocabulary, grammar)]
    assert not [each for each in found if not validator.is_valid(each)]
    assert len({each["name"] for each in found}) == 3


@pytest.mark.parametrize("pattern", [r"[A-Z]{2}/[0-9]{4}", r"a\/b|\\", r"^(é|ü){2}$", "a\nb"])
def test_random_tokens_match_the_regex(vocabulary: Vocabulary, pattern: str) -> None:
    for text in random_texts(vocabulary, vocabulary.compile("regex", pattern)):
        assert re.fullmatch(pattern, text)


def test_a_schema_may_be_json_text_or_below_a_key(bytes_vocabulary: Vocabulary) -> None:
    schema = {"enum": ["a"]}
    for kind, value in (
        ("json", schema),
        ("json", json.dumps(schema)),
        ("json_schema", {"name": "x", "schema": schema}),
    ):
        grammar = bytes_vocabulary.compile(kind, value)
        assert set(random_texts(bytes_vocabulary, grammar)) == {'"a"'}


names = st.sampled_from(["a", "b_2", "é", 'qu"ote', "x y"])
leaves = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(
        lambda low, size: {"type": "integer", "minimum": low, "maximum": low + size},
        st.integers(-50, 50),
        st.integers(0, 99),
    ),
    st.builds(
        lambda values: {"enum": values},
        st.lists(st.one_of(st.text(max_size=3), st.integers(-9, 9), st.none()), min_size=1),
    ),
    st.builds(lambda most: {"type": "string", "maxLength": most}, st.integers(0, 3)),
    st.builds(lambda pattern: {"type": "string", "pattern": pattern}, st.just("^[a-c]{1,3}$")),
)


def parents(children: Any) -> Any:
    def closed(properties: dict[str, Any], required: set[str]) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": properties,
            "required": sorted(required & properties.keys()),
            "additionalProperties": False,
        }

    return st.one_of(
        st.builds(closed, st.dictionaries(names, children, max_size=3), st.sets(names)),
        st.builds(lambda item: {"type": "array", "items": item, "maxItems": 2}, children),
        st.builds(lambda items: {"anyOf": items}, st.lists(children, min_size=1, max_size=3)),
    )


@settings(max_examples=25)
@given(schema=st.recursive(leaves, parents, max_leaves=6), seed=st.integers(0, 9))
def test_a_finished_text_is_valid_for_any_schema(
    bytes_vocabulary: Vocabulary, schema: dict[str, Any], seed: int
) -> None:
    text = bytes_vocabulary.write(bytes_vocabulary.compile("json", schema), seed)
    if text is not None:
        Draft202012Validator(schema).validate(json.loads(text))


def test_end_tokens_are_allowed_when_the_text_is_complete(bytes_vocabulary: Vocabulary) -> None:
    """All of them, and one that is also a letter only then."""
    tokenizer = bytes_vocabulary.tokenizer
    letter = tokenizer.convert_tokens_to_ids("q")
    ends = frozenset([bytes_vocabulary.end, letter])
    matcher = GrammarCompiler(tokenizer, WIDTH, ends).compile("start: /[qj]j{1,2}/").matcher()
    other = tokenizer.convert_tokens_to_ids("j")
    expected = [(other,), (other,), (other, *ends), tuple(ends)]
    for tokens in expected:
        assert sorted(np.flatnonzero(matcher.allowed(WIDTH))) == sorted(tokens)
        matcher.consume(other)
    assert matcher.ended and matcher.allowed(WIDTH).all() and matcher.error is None


def test_sequences_of_one_grammar_are_independent(bytes_vocabulary: Vocabulary) -> None:
    grammar = bytes_vocabulary.compile("regex", "ab|ba")
    first, second = grammar.matcher(), grammar.matcher()
    before = second.allowed(WIDTH)
    first.consume(int(np.flatnonzero(before)[0]))
    assert (second.allowed(WIDTH) == before).all()
    assert not (first.allowed(WIDTH) == before).all()


def test_logits_of_rows_without_a_grammar_stay_as_they_are(bytes_vocabulary: Vocabulary) -> None:
    matcher = bytes_vocabulary.compile("regex", "a").matcher()
    allowed = matcher.allowed(WIDTH)
    scores = torch.rand((3, WIDTH))
    found = GrammarProcessor({1: matcher}, 2)(torch.zeros((3, 2), dtype=torch.int64), scores)
    assert torch.equal(found[[0, 2]], scores[[0, 2]])
    assert torch.isfinite(found[1]).tolist() == allowed.tolist()


@pytest.mark.parametrize(("pattern", "is_complete"), [("a*", True), ("a", False)])
def test_a_text_whose_tokens_are_all_excluded_ends(
    bytes_vocabulary: Vocabulary, pattern: str, is_complete: bool
) -> None:
    """Such as by min_new_tokens, which forbids the end; a text that is not complete is an error."""
    matcher = bytes_vocabulary.compile("regex", pattern).matcher()
    scores = torch.full((1, WIDTH), -torch.inf)
    found = GrammarProcessor({0: matcher}, 2)(torch.zeros((1, 2), dtype=torch.int64), scores)
    assert set(found[0].isfinite().nonzero()[:, 0].tolist()) == {bytes_vocabulary.end}
    assert (matcher.error is None) == is_complete


def test_a_keyword_that_is_not_supported_is_an_error_or_ignored(
    bytes_vocabulary: Vocabulary,
) -> None:
    schema = {"type": "array", "items": {"type": "null"}, "uniqueItems": True, "maxItems": 2}
    with refused(BadRequest, "uniqueItems"):
        bytes_vocabulary.compile("json", schema)
    grammar = bytes_vocabulary.compile("json", schema, strict=False)
    assert "[null]" in {re.sub(r"\s", "", text) for text in random_texts(bytes_vocabulary, grammar)}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


HOSTILE: dict[str, tuple[str, Any]] = {
    "not a type": ("json", {"type": "strin"}),
    "not a schema": ("json", [1, 2]),
    "a number": ("json", 7),
    "not JSON": ("json", "{"),
    "deep JSON text": ("json", "[" * 30_000),
    "no schema": ("json_schema", {"name": "x"}),
    "no text": ("regex", 7),
    "an empty text": ("regex", ""),
    "half a character": ("regex", "a\ud800"),
    "half a character in a schema": ("json", {"const": "a\ud800"}),
    "impossible": ("json", False),
    "impossible parts": ("json", {"enum": []}),
    "deep": ("json", nested(300)),
    "endless": ("json", {"$ref": "#"}),
    "endless objects": (
        "json",
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"], "not": {}},
    ),
    "a remote reference": ("json", {"$ref": "http://localhost:9/x"}),
    "a missing reference": ("json", {"$ref": "#/nothing"}),
    "huge": ("json", {"enum": [f"word {number}" for number in range(10_000)]}),
    "a huge number": ("json", {"type": "integer", "minimum": 10**300}),
    "alternatives of alternatives": (
        "json",
        {
            "allOf": [
                {"anyOf": [{"properties": {f"{row}{column}": {}}} for column in range(4)]}
                for row in range(9)
            ]
        },
    ),
    "multiples": ("json", {"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}),
    "patterns together": (
        "json",
        {"type": "string", "allOf": [{"pattern": f".*a.{{{each}}}b"} for each in range(64)]},
    ),
    "a broken regex": ("regex", "(a"),
    "a regex that ends with a backslash": ("regex", "a\\"),
    "look-ahead": ("regex", "(?=a)b"),
    "a deep regex": ("regex", "(" * 9_000 + "a" + ")" * 9_000),
    "a long regex": ("regex", "a" * 300_000),
    "repetitions of anything": ("regex", ".*" * 5_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_grammar_that_cannot_be_compiled_is_refused(
    bytes_vocabulary: Vocabulary, name: str
) -> None:
    kind, value = HOSTILE[name]
    with pytest.raises((BadRequest, RequestTooLarge)) as caught:
        bytes_vocabulary.compile(kind, value)
    assert len(str(caught.value)) < 350 and "<state>" not in str(caught.value)


@pytest.mark.parametrize(
    "pattern", ["(x+x+)+y", "(a|aa)+c", "((a{1,99}){1,99}){1,99}b", "[ab]{0,9}c"]
)
def test_a_regex_that_backtracking_engines_cannot_match_is_followed(
    bytes_vocabulary: Vocabulary, pattern: str
) -> None:
    assert list(random_texts(bytes_vocabulary, bytes_vocabulary.compile("regex", pattern)))


def test_a_text_that_exceeds_the_limits_of_the_parser_ends_with_an_error(
    bytes_vocabulary: Vocabulary,
) -> None:
    properties = {f"p{number}": {"type": "integer"} for number in range(1_100)}
    matcher = bytes_vocabulary.compile(
        "json", {"type": "object", "properties": properties, "additionalProperties": True}
    )
    row = matcher.matcher()
    for _ in range(2):
        first, *_ = np.flatnonzero(row.allowed(WIDTH))
        row.consume(int(first))
    assert row.ended and int(first) == bytes_vocabulary.end
    error: RequestError | None = row.error
    assert error is not None and error.status == 422
    assert str(error) == Sentence(1)


def test_a_grammar_is_compiled_once(bytes_vocabulary: Vocabulary) -> None:
    first = bytes_vocabulary.compile("json", PERSON)
    assert bytes_vocabulary.compile("json", PERSON) is first


def test_settings_of_llguidance_in_a_schema_have_no_effect() -> None:
    schema = {"x-guidance": {"item_separator": "nonsense"}, "type": "array"}
    assert "nonsense" not in json_rule(schema, strict=True)


def test_a_tokenizer_without_bytes_has_no_grammars(tmp_path: Path) -> None:
    write_bert(tmp_path)
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path)
    with refused(Unprocessable):
        GrammarCompiler(tokenizer, WIDTH, frozenset([3])).compile("start: /a/")


def test_a_model_without_an_end_token_has_no_grammars(bytes_vocabulary: Vocabulary) -> None:
    compiler = GrammarCompiler(bytes_vocabulary.tokenizer, WIDTH, frozenset())
    with refused(Unprocessable):
        compiler.compile("start: /a/")
