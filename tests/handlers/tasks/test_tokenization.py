"""Tokenizing without the model, for the tokenizer of every mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hf_serve.handlers.errors import DeadlineExceeded, RequestError
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request, TokenIds, TokenizedText
from tests.handlers.generation.test_chat import CHAT, PROMPT, TEMPLATE
from tests.modes import each_mode
from tests.samples import FINE, LONG, ODD, text_modes
from tests.sentences import Sentence
from tests.serving import Served

Load = Callable[..., Served]
# The tokenizer of encoder-decoders is of another kind.
every_mode = pytest.mark.parametrize(
    "mode", each_mode(text_modes(), also=("text2text_generation",))
)


@pytest.fixture
def chat_model(served: Load, monkeypatch: Any) -> Iterator[Served]:
    model = served("text_generation", family="GPT2")
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", TEMPLATE)
    yield model


def tokenize(model: Served, inputs: Any, **parameters: Any) -> TokenizedText:
    (outcome,) = model.engine.tokenize([Request(inputs, parameters)])
    assert isinstance(outcome, TokenizedText), outcome
    return outcome


def detokenize(model: Served, ids: Any) -> Any:
    (outcome,) = model.engine.detokenize([Request(TokenIds(tuple(ids)))])
    return outcome


@every_mode
def test_the_tokens_are_the_tokenizers_own_and_whole(served: Load, mode: str) -> None:
    model = served(mode)
    tokenizer = model.engine.task.checkpoint.tokenizer
    for text in (FINE, ODD, LONG * 9):
        found = tokenize(model, text)
        assert found.ids.tolist() == tokenizer(text)["input_ids"]
        assert found.offsets is not None
        assert len(found) == len(found.ids) == len(found.offsets)
        assert [text[start:stop] for start, stop in found.offsets.tolist() if stop]


@every_mode
def test_special_tokens_are_named_and_can_be_left_out(served: Load, mode: str) -> None:
    model = served(mode)
    whole, plain = tokenize(model, FINE), tokenize(model, FINE, add_special_tokens=False)
    added = [number for number in whole.ids.tolist() if number in whole.special]
    assert len(whole) - len(plain) == len(added)
    names = model.engine.task.checkpoint.tokenizer.convert_ids_to_tokens(added)
    assert [whole.special[number] for number in added] == names
    assert plain.special == {}


def test_an_unknown_character_is_no_special_token(served: Load) -> None:
    model = served("sequence_classification")
    found = tokenize(model, "Ada 🎉")
    unknown = model.engine.task.checkpoint.tokenizer.unk_token_id
    assert unknown in found.ids.tolist() and unknown not in found.special


@every_mode
def test_the_ids_of_a_text_become_that_text(served: Load, mode: str) -> None:
    model = served(mode)
    text = "nina sings in the old bar"
    ids = tokenize(model, text, add_special_tokens=False).ids.tolist()
    assert detokenize(model, ids) == text
    whole = detokenize(model, tokenize(model, text).ids.tolist())
    assert text in whole and all(name in whole for name in tokenize(model, text).special.values())


def test_a_chat_has_the_tokens_of_its_templates_prompt(chat_model: Served) -> None:
    found = tokenize(chat_model, CHAT)
    assert found.text == PROMPT
    assert found.ids.tolist() == tokenize(chat_model, PROMPT).ids.tolist()
    open_end = tokenize(chat_model, CHAT, add_generation_prompt=False)
    assert open_end.text == PROMPT.removesuffix("assistant: ")


@pytest.mark.parametrize(
    ("inputs", "parameters", "status", "facts"),
    [
        ("", {}, 400, ["inputs"]),
        (5, {}, 400, ["inputs"]),
        ("half \ud83d of it", {}, 400, ["inputs"]),
        ("a" * 201, {}, 413, ["inputs", "201"]),
        ("\U0001f389" * 60, {}, 413, ["240"]),
        ("a", {"add_special_token": True}, 400, ["add_special_token"]),
        ("a", {"add_special_tokens": "no"}, 400, ["no", "add_special_tokens"]),
        (CHAT, {}, 422, []),
        (["a"], {}, 400, ["messages[0]"]),
    ],
)
def test_what_cannot_be_tokenized_is_refused_alone(
    served: Load, inputs: Any, parameters: Any, status: int, facts: list[str]
) -> None:
    model = served("text_generation", max_characters=200)
    first, wrong, last = model.engine.tokenize(
        [Request("Ada"), Request(inputs, parameters), Request("Ada")]
    )
    assert isinstance(first, TokenizedText) and isinstance(last, TokenizedText)
    assert isinstance(wrong, RequestError) and wrong.status == status
    assert str(wrong) == Sentence(*facts)


@pytest.mark.parametrize(
    ("ids", "status", "facts"),
    [
        ([], 400, ["prompt"]),
        ([5, 10**9], 400, ["1000000000", "0"]),
        ([-1], 400, ["prompt"]),
        ([5] * 201, 413, ["201", "200"]),
    ],
)
def test_ids_that_are_none_of_the_models_are_refused(
    served: Load, ids: Any, status: int, facts: list[str]
) -> None:
    wrong = detokenize(served("text_generation", max_characters=200), ids)
    assert (wrong.status, str(wrong)) == (status, Sentence(*facts))


def test_texts_after_the_time_limit_are_refused(served: Load) -> None:
    model = served("text_generation")
    passed = Deadline(-1)
    for outcomes in (
        model.engine.tokenize([Request("Ada")], Meter(), passed),
        model.engine.detokenize([Request(TokenIds((5,)))], Meter(), passed),
    ):
        assert [type(outcome) for outcome in outcomes] == [DeadlineExceeded]
