"""Which prompt a request chooses: by its text, its name, or what the text is."""

from __future__ import annotations

import pytest

from hf_serve.handlers.checkpoints.prompts import Prompts
from hf_serve.handlers.errors import BadRequest
from tests.sentences import refused

E5 = {"query": "query: ", "passage": "passage: "}
JINA = {"retrieval.query": "Q: ", "retrieval.passage": "P: ", "text-matching": ""}
GEMMA = {"query": "task: search result | query: ", "document": "title: none | text: "}


@pytest.mark.parametrize(
    ("texts", "kind", "prompt"),
    [
        *((E5, kind, "query: ") for kind in ("query", "search_query", "retrieval.query")),
        *((E5, kind, "passage: ") for kind in ("document", "passage", "search_document")),
        (JINA, "search_query", "Q: "),
        (JINA, "retrieval.passage", "P: "),
        (GEMMA, "passage", "title: none | text: "),
        ({**GEMMA, "passage": "own: "}, "passage", "own: "),
        ({"Clustering": "C: "}, "clustering", "C: "),
        ({"code.query": "code: "}, "code.query", "code: "),
        (E5, "classification", ""),
        ({}, "query", ""),
    ],
)
def test_a_kind_of_texts_has_its_prompt(texts: dict[str, str], kind: str, prompt: str) -> None:
    assert Prompts(texts).choose(None, None, kind) == prompt


def test_a_kind_without_a_prompt_does_not_get_the_default_one() -> None:
    """As `encode_query` of sentence-transformers."""
    prompts = Prompts({"passage": "passage: "}, default="passage")
    assert prompts.choose(None, None, "query") == ""
    assert prompts.choose(None, None, None) == "passage: "


def test_a_text_precedes_a_name_and_a_name_precedes_a_kind() -> None:
    prompts = Prompts(E5, default="passage")
    assert prompts.choose("Own: ", "query", "query") == "Own: "
    assert prompts.choose("", "query", None) == ""
    assert prompts.choose(None, "passage", "query") == "passage: "


def test_unknown_words_are_refused_with_the_known_ones() -> None:
    with refused(BadRequest, "prompt_name", "title", "passage, query"):
        Prompts(E5).choose(None, "title", None)
    with refused(BadRequest, "prompt_name", "title"):
        Prompts().choose(None, "title", None)
    with refused(BadRequest, "input_type", "image", "query, document", "summary"):
        Prompts({"summary": ""}).choose(None, None, "image")
