"""Language codes: tokens of multilingual models, T5's settings for pairs, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.types.request import Request
from tests import tiny
from tests.sentences import Sentence
from tests.serving import Served, differences

MODE = "translation"
CODES = ("en_XX", "de_DE", "fr_XX")
FEW = {"max_new_tokens": 6, "num_beams": 1, "details": True}
PAIRS = {
    "translation_en_to_de": {"prefix": "to German: ", "max_length": 5},
    "translation_en_to_fr": {"prefix": "to French: ", "max_length": 5},
}


def add_languages(folder: Path) -> list[int]:
    """Give a tokenizer the tokens of languages, and each text that of English; return their ids."""
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    first = len(document["model"]["vocab"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    document["added_tokens"] += [
        {"id": first + number, "content": code, "special": True, **flags}
        for number, code in enumerate(CODES)
    ]
    english = {"id": CODES[0], "ids": [first], "tokens": [CODES[0]]}
    end = {"id": "</s>", "ids": [2], "tokens": ["</s>"]}
    single = [
        {"SpecialToken": {"id": CODES[0], "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}},
    ]
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {CODES[0]: english, "</s>": end},
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    settings = folder / "tokenizer_config.json"
    values = json.loads(settings.read_text(encoding="utf-8"))
    values["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings.write_text(json.dumps(values), encoding="utf-8")
    return [first + number for number in range(len(CODES))]


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory: pytest.TempPathFactory) -> tuple[Served, list[int]]:
    folder = tiny.write(
        tmp_path_factory.mktemp("many") / "model", MODE, family="MBart", vocab_size=403
    )
    ids = add_languages(folder)
    return Served(folder, MODE), ids


def test_a_text_begins_with_the_token_of_its_language(
    multilingual: tuple[Served, list[int]],
) -> None:
    model, ids = multilingual
    bodies: list[dict[str, Any]] = [
        {"inputs": "Ada sings", "parameters": {**FEW, "src_lang": source, "tgt_lang": target}}
        for source, target in (("en_XX", "de_DE"), ("de_DE", "fr_XX"), ("fr_XX", "en_XX"))
    ]
    alone = [model.post(body)[0][1] for body in bodies]
    assert not differences([answer for _, answer in model.post(*bodies)], alone, 1e-4)
    first = [answer[0]["details"]["tokens"][0]["id"] for answer in alone]
    assert first == [ids[1], ids[2], ids[0]]
    assert not any(code in answer[0]["translation_text"] for answer in alone for code in CODES)


def test_the_language_of_the_text_changes_its_translation(
    multilingual: tuple[Served, list[int]],
) -> None:
    model, ids = multilingual
    task = model.engine.task
    sources = ("en_XX", "de_DE")
    queries = [task.parse(_request("Ada sings", source, "fr_XX")) for source in sources]
    rows: list[Any] = list(task.encode(queries))
    assert [row[0].features["input_ids"][0] for row in rows] == ids[:2]


def _request(text: str, source: str, target: str) -> Request:
    return Request(text, {"src_lang": source, "tgt_lang": target})


@pytest.mark.parametrize(
    ("parameters", "facts"),
    [
        ({}, ["src_lang"]),
        ({"src_lang": "en_XX"}, ["tgt_lang"]),
        ({"src_lang": "en_XX", "tgt_lang": "tlh"}, ["tlh", "tgt_lang"]),
    ],
)
def test_a_missing_or_unknown_code_is_refused_with_known_ones(
    multilingual: tuple[Served, list[int]], parameters: dict[str, Any], facts: list[str]
) -> None:
    status, sentence = multilingual[0].refuse("Ada", **parameters)
    assert (status, sentence) == (422, Sentence(*facts))
    assert "en_XX, fr_XX, de_DE" in sentence


def test_codes_choose_among_the_settings_of_a_checkpoint(tmp_path: Path) -> None:
    folder = tiny.write(
        tmp_path / "model", MODE, generation={"max_length": 30}, task_specific_params=PAIRS
    )
    model = Served(folder, MODE)
    few = {"num_beams": 1, "max_new_tokens": 4}
    for target, prefix in (("de", "to German: "), ("fr", "to French: ")):
        expected = model.ask(f"{prefix}Ada sings", **few)
        assert model.ask("Ada sings", src_lang="en", tgt_lang=target, num_beams=1) == expected
    status, sentence = model.refuse("Ada", src_lang="en", tgt_lang="ro")
    assert (status, "en to de, en to fr" in sentence) == (422, True)
    preset = Served(folder, MODE, parameters={"src_lang": "en", "tgt_lang": "fr"})
    assert preset.ask("Ada sings", num_beams=1) == model.ask("to French: Ada sings", **few)


def test_a_model_of_one_pair_takes_no_codes(served: Callable[..., Served]) -> None:
    status, sentence = served(MODE).refuse("Ada", src_lang="en", tgt_lang="de")
    assert (status, "leave src_lang and tgt_lang out" in sentence) == (422, True)
