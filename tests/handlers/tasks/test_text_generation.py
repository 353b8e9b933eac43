from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hf_serve.handlers.errors import RequestTooLarge
from hf_serve.handlers.types.request import Request, TokenIds
from tests.sentences import Sentence, refused
from tests.serving import Served

MODE = "text_generation"
PROMPTS = ("Once upon a time there was a fox", "The café in Zürich", "北京 是")


@pytest.fixture
def model(served: Callable[..., Served]) -> Served:
    """The tiny GPT-2."""
    return served(MODE)


def test_text_ends_before_the_first_stop_string(model: Served) -> None:
    (whole,) = model.ask(PROMPTS[0], return_full_text=False)
    text = whole["generated_text"]
    for stop in ([text[9:11], text[4:6]], text[7], ["never written"], [text[:3], "x"], None):
        (stopped,) = model.ask(PROMPTS[0], return_full_text=False, stop=stop)
        end = min((text.find(each) for each in stop or () if each in text), default=None)
        assert stopped["generated_text"] == text[:end]


def test_the_prompt_comes_first_unless_only_the_new_text_is_requested(model: Served) -> None:
    (full,), (new,) = model.ask(PROMPTS[1]), model.ask(PROMPTS[1], return_full_text=False)
    assert full["generated_text"] == PROMPTS[1] + new["generated_text"]


def test_details_have_the_finish_reason_and_token_counts(model: Served, monkeypatch: Any) -> None:
    given = {"return_full_text": False, "details": True, "logprobs": False, "max_new_tokens": 9}
    (long,) = model.ask(PROMPTS[0], **given)
    length = len(model.engine.task.checkpoint.tokenizer(PROMPTS[0])["input_ids"])
    counts = {"generated_tokens": 9, "input_length": length, "seed": None}
    assert long["details"] == {"finish_reason": "length", **counts}
    (stopped,) = model.ask(PROMPTS[0], stop=long["generated_text"][4:6], **given)
    assert stopped["details"]["finish_reason"] == "stop_sequence"
    task: Any = model.engine.task
    monkeypatch.setattr(task.generation_config, "eos_token_id", list(range(len(task.tokenizer))))
    (ended,) = model.ask(PROMPTS[0], **given)
    assert len(task.tokenizer(ended["generated_text"])["input_ids"]) == 1  # A word, which stays.
    assert ended["details"] == {"finish_reason": "eos_token", **counts, "generated_tokens": 1}


def test_unseeded_sampling_varies_and_keeps_the_random_state_of_torch(model: Served) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    given = {"do_sample": True, "temperature": 3.0, "max_new_tokens": 9, "min_new_tokens": 9}
    draws = {str(model.ask(PROMPTS[0], **given)) for _ in range(3)}
    assert len(draws) == 3
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize(
    ("text", "given", "status", "sentence"),
    [
        ("a" * 128, {}, 413, "the prompt has 128 tokens and max_new_tokens is 1, together more"),
        (
            "a" * 120,
            {"max_new_tokens": 9},
            413,
            "the prompt has 120 tokens and max_new_tokens is 9",
        ),
        ("a" * 129, {}, 413, "the text has 129 tokens, and this model takes 128; shorten it"),
        (
            "a",
            {"max_new_tokens": 10**9},
            413,
            "the prompt has 1 tokens and max_new_tokens is 1,000,",
        ),
        (
            "a",
            {"min_new_tokens": 5, "max_new_tokens": 4},
            400,
            "parameters: min_new_tokens is 5 and max_new_tokens 4; lower the first or raise the",
        ),
        ("a", {"num_return_sequences": 2}, 422, "num_return_sequences is 2 and num_beams 1; ask"),
        (
            "a",
            {"num_return_sequences": 3, "num_beams": 2, "do_sample": True},
            422,
            "num_return_sequences is 3 and num_beams 2; ask",
        ),
        (
            "a",
            {"temperature": 1e-40, "do_sample": True},
            400,
            "parameters: temperature is 1e-40; it",
        ),
        ("a", {"repetition_penalty": 1e-40}, 400, "parameters: repetition_penalty is 1e-40; it"),
        (
            "a",
            {"length_penalty": 1e5, "num_beams": 2},
            400,
            "parameters: length_penalty is 100000; ",
        ),
        ("a", {"truncate": 10**30}, 400, "parameters: truncate is 1000000000000000000"),
        ("a", {"seed": -1}, 400, "parameters: seed is -1; it should be greater than or equal to 0"),
        ("a", {"stop": [""]}, 400, "parameters: stop.0 is ''; String should have at least 1"),
        ("a", {"stop": ["x"] * 17}, 400, "parameters: stop has 17 items; send at most 16"),
        (
            "a",
            {"stop": ["x", "y" * 257]},
            400,
            "parameters: stop.1 is 'yyyyyyyy",
        ),
    ],
)
def test_impossible_parameters_are_refused(
    served: Callable[..., Served], text: str, given: Any, status: int, sentence: str
) -> None:
    found, message = served(MODE).refuse(text, **given)
    assert (found, message[: len(sentence)]) == (status, sentence)


def test_extreme_settings_that_are_allowed_do_not_break_the_model(
    served: Callable[..., Served],
) -> None:
    for given in ({"temperature": 1e-6}, {"temperature": 1e300}, {"repetition_penalty": 0.01}):
        assert served(MODE).ask("a", do_sample=True, max_new_tokens=3, **given)
    for penalty in (-20, 20):
        assert served(MODE).ask("a", num_beams=2, length_penalty=penalty, max_new_tokens=5)


def test_max_length_is_the_default_of_max_new_tokens(
    served: Callable[..., Served],
) -> None:
    model = served(MODE, max_length=4)
    assert model.ask("Ada") == model.ask("Ada", max_new_tokens=4)


def test_a_truncated_prompt_keeps_its_end(served: Callable[..., Served]) -> None:
    model = served(MODE, truncation=True, max_length=16)
    long = "a b " * 99 + "Once upon a time"
    (truncated,) = model.ask(long, return_full_text=False, max_new_tokens=5)
    (other,) = model.ask("b c " * 99 + long, return_full_text=False, max_new_tokens=5)
    ids = TokenIds(tuple(model.engine.task.checkpoint.tokenizer(long)["input_ids"]))
    (by_ids,) = model.ask(ids, return_full_text=False, max_new_tokens=5)
    assert truncated == other == by_ids


def test_a_full_text_begins_with_what_the_model_reads(served: Callable[..., Served]) -> None:
    long, few = "Once upon a time there was a fox", {"max_new_tokens": 5}
    for model, given in (
        (served(MODE, family="GPT2"), {"truncate": 4}),
        (served(MODE, family="GPT2", max_length=4, truncation=True), {}),
    ):
        (alone,) = model.ask(long, return_full_text=False, **given, **few)
        (whole,) = model.ask(long, **given, **few)
        prompt = whole["generated_text"].removesuffix(alone["generated_text"])
        assert prompt != long and long.endswith(prompt)
        assert model.ask(prompt, **few) == [whole]


def test_a_request_can_truncate_its_prompt(served: Callable[..., Served]) -> None:
    model = served(MODE)
    few = {"return_full_text": False, "max_new_tokens": 5}
    ids = model.engine.task.checkpoint.tokenizer(PROMPTS[0])["input_ids"]
    (end,) = model.ask(TokenIds(tuple(ids[-4:])), **few)
    for inputs in (PROMPTS[0], TokenIds(tuple(ids))):
        assert model.ask(inputs, truncate=4, **few) == [end]
        assert model.ask(inputs, truncate=0, **few) == model.ask(inputs, **few)
        assert model.ask(inputs, truncate=100, **few) == model.ask(inputs, **few) != [end]
    calls = [(PROMPTS[0], 4), ("Ada", 0), (PROMPTS[0], 100)]
    bodies = [{"inputs": text, "parameters": {"truncate": most, **few}} for text, most in calls]
    answers = [answer for _, answer in model.post(*bodies)]
    assert answers == [[end], model.ask("Ada", **few), model.ask(PROMPTS[0], **few)]


def test_token_ids_become_a_row_like_that_of_the_tokenizer(
    served: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = served("text_generation").engine.task
    names = ["input_ids", "token_type_ids", "attention_mask"]
    monkeypatch.setattr(task.checkpoint.tokenizer, "model_input_names", names)
    encoded: Any = task.encode([task.parse(Request(TokenIds((5, 6, 7))))])
    ((row,),) = encoded
    assert row.features == {"input_ids": [5, 6, 7], "token_type_ids": [0, 0, 0]}


def test_stop_strings_within_the_limits_are_accepted(model: Served) -> None:
    stops = [chr(0x4E00 + number) * 256 for number in range(16)]
    assert model.ask("Ada", stop=stops, max_new_tokens=4) == model.ask("Ada", max_new_tokens=4)


def test_the_yaml_limits_the_tokens_of_prompt_and_new_text(served: Callable[..., Served]) -> None:
    model = served(MODE, max_total_tokens=20)
    assert model.ask("a" * 10, max_new_tokens=10) == served(MODE).ask("a" * 10, max_new_tokens=10)
    assert model.refuse("a" * 10, max_new_tokens=11) == (
        413,
        Sentence("10", "max_new_tokens", "11", "20", "max_total_tokens"),
    )
    status, sentence = model.refuse("a" * 21)
    assert (status, sentence) == (413, Sentence("21", "20"))
    (whole,) = model.ask("a" * 10, details=True)  # 50 without a limit
    assert whole["details"]["generated_tokens"] == 10


@pytest.mark.parametrize(
    "given",
    [
        {"num_return_sequences": 5, "do_sample": True},
        {"num_beams": 5},
        {"num_beams": 5, "num_return_sequences": 2},
    ],
)
def test_the_yaml_limits_the_sequences_of_a_prompt(
    served: Callable[..., Served], given: Any
) -> None:
    model = served(MODE, max_sequences=4)
    name = "num_beams" if "num_beams" in given else "num_return_sequences"
    assert model.refuse("Ada", **given) == (
        413,
        Sentence(name, "5", "max_sequences", "4"),
    )
    fewer = {key: min(value, 4) for key, value in given.items()}
    assert model.ask("Ada", max_new_tokens=2, **fewer)


class Undecodable:
    """A tokenizer that must not decode many tokens."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def decode(self, tokens: Any, **options: Any) -> Any:
        assert len(tokens) <= 128
        return self._tokenizer.decode(tokens, **options)


@pytest.mark.parametrize("truncation", [True, False])
def test_a_prompt_of_too_many_ids_is_not_decoded(
    served: Callable[..., Served], monkeypatch: Any, truncation: bool
) -> None:
    task: Any = served(MODE, truncation=truncation, max_length=16).engine.task
    monkeypatch.setattr(task, "tokenizer", Undecodable(task.tokenizer))
    request = Request(TokenIds((5,) * 10_000))
    if truncation:
        assert len(task.parse(request).ids) == 16
        return
    with refused(RequestTooLarge, 10_000):
        task.parse(request)


def test_ids_for_a_model_without_a_limit_are_as_few_as_the_characters_of_a_text(
    served: Callable[..., Served], monkeypatch: Any
) -> None:
    model = served(MODE, max_characters=100)
    monkeypatch.setattr(type(model.engine.task), "max_tokens", None)
    with refused(RequestTooLarge, 101):
        model.engine.task.parse(Request(TokenIds((5,) * 101)))


def test_a_chat_is_as_long_as_its_template_makes_it(
    served: Callable[..., Served], monkeypatch: Any
) -> None:
    model = served(MODE, max_characters=100)
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", "{{ 'x' * 101 }}")
    assert model.refuse([{"role": "user", "content": "a"}]) == (
        413,
        Sentence("101", "100"),
    )
