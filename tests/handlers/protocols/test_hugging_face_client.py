"""Each method for texts of Hugging Face's own client, with every parameter that the method has.

The client that waits and that of asyncio run in an environment of their own. Their answers are
those to a plain request, as objects of the client's classes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests import tiny
from tests.e2e.clients import run_client
from tests.handlers.generation.test_chat import CHAT, WITH_TOOLS
from tests.handlers.tasks.test_translation import add_languages
from tests.http_front import front
from tests.hugging_face_calls import CALLS, FEW, PAIR, SIMILAR, TEXT
from tests.serving import Served, differences

pytestmark = pytest.mark.server

TOLERANCE = 1e-5
SCHEMA = {
    "type": "object",
    "properties": {"animal": {"enum": ["fox", "bear"]}},
    "required": ["animal"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "find_animal", "parameters": SCHEMA}}
SAMPLING = {
    **FEW,
    "best_of": 1,
    "decoder_input_details": False,
    "do_sample": True,
    "frequency_penalty": 0.1,
    "repetition_penalty": 1.1,
    "return_full_text": False,
    "seed": 5,
    "stop": ["x"],
    "temperature": 0.7,
    "top_k": 5,
    "top_n_tokens": 2,
    "top_p": 0.9,
    "truncate": 5,
    "typical_p": 0.9,
    "watermark": False,
}
CHATTING = {
    "frequency_penalty": 0.1,
    "logit_bias": {"5": 1.0},
    "logprobs": True,
    "max_tokens": 6,
    "n": 1,
    "presence_penalty": 0.1,
    "response_format": {"type": "text"},
    "seed": 4,
    "stop": ["x"],
    "temperature": 0.5,
    "tool_choice": "none",
    "tool_prompt": "Use it:",
    "tools": [TOOL],
    "top_logprobs": 2,
    "top_p": 0.9,
}
LANGUAGES = {"src_lang": "en_XX", "tgt_lang": "de_DE"}
# The model of translations is one of several languages.
MADE = [
    replace(call, parameters={**call.parameters, **LANGUAGES})
    if call.mode == "translation"
    else call
    for call in CALLS
]


MODES = sorted({call.mode for call in CALLS} - {"translation"})
# Methods whose answers have no plain request of the same form.
MORE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "text": ("text_generation", "text_generation", {"prompt": TEXT, **FEW}),
    "details": (
        "text_generation",
        "text_generation",
        {"prompt": TEXT, "details": True, **SAMPLING},
    ),
    "text_of_encoder_decoder": (
        "text_generation",
        "text2text_generation",
        {"prompt": TEXT, **FEW},
    ),
    "chat": (
        "chat_completion",
        "text_generation/1.0",
        {"messages": CHAT, "extra_body": {"top_k": 3}, **CHATTING},
    ),
    "schema": (
        "chat_completion",
        "text_generation/1.0",
        {
            "messages": CHAT,
            "max_tokens": 80,
            "temperature": 0.0,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "found", "schema": SCHEMA},
            },
        },
    ),
    "tool": (
        "chat_completion",
        "text_generation/1.0",
        {
            "messages": CHAT,
            "max_tokens": 80,
            "tools": [TOOL],
            "tool_choice": {"function": {"name": "find_animal"}},
        },
    ),
    "similarity": (
        "sentence_similarity",
        "sentence_similarity/1.0/similarity",
        PAIR,
    ),
    "similarity_of_embeddings": (
        "sentence_similarity",
        "sentence_embedding/1.0/similarity",
        PAIR,
    ),
    "mistake": ("fill_mask", "fill_mask", {"text": "No mask."}),
    "chat_mistake": ("chat_completion", "text_generation/1.0", {"messages": []}),
}


@pytest.fixture(scope="module")
def models(
    served: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Served]]:
    folder = tmp_path_factory.mktemp("many") / "model"
    tiny.write(folder, "translation", family="MBart", vocab_size=403)
    add_languages(folder)
    chatting = served("text_generation", family="GPT2")
    found = {mode: served(mode) for mode in [*MODES, "text2text_generation"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            chatting.engine.task.checkpoint.tokenizer,
            "chat_template",
            WITH_TOOLS,
        )
        yield {**found, "translation": Served(folder, "translation"), "text_generation": chatting}


@pytest.fixture(scope="module")
def url(models: dict[str, Served]) -> Iterator[str]:
    with front(models) as url:
        yield url


@pytest.fixture(scope="module")
def found(url: str) -> Any:
    """The answers to every call, by both clients."""
    more = [
        {"url": f"{url}/{path}", "method": method, "arguments": arguments}
        for method, path, arguments in MORE.values()
    ]
    return run_client("hugging_face_tasks_client", calls=[*(call.job(url) for call in MADE), *more])


@pytest.fixture(scope="module")
def more(found: Any) -> dict[str, Any]:
    """The answers to the calls of `MORE` by their names."""
    return dict(zip(MORE, found["answers"][len(MADE) :], strict=True))


@pytest.mark.parametrize(
    "number", range(len(MADE)), ids=lambda number: f"{MADE[number].method}-{number}"
)
def test_an_answer_is_that_to_a_plain_request(url: str, found: Any, number: int) -> None:
    MADE[number].check(url, found["answers"][number], TOLERANCE)


def test_the_client_of_asyncio_gets_the_same(found: Any) -> None:
    changing = ("id", "created")
    waiting, asynchronous = (
        [_without(changing, each) for each in found[name]] for name in ("answers", "asynchronous")
    )
    assert not differences(asynchronous, waiting, TOLERANCE)


def test_texts_are_those_of_plain_requests(models: dict[str, Served], more: Any) -> None:
    model = models["text_generation"]
    assert more["text"] == model.ask(TEXT, **FEW)[0]["generated_text"]
    (detailed,) = model.ask(TEXT, details=True, **SAMPLING)
    assert more["details"]["generated_text"] == detailed["generated_text"]
    tokens = more["details"]["details"]["tokens"]
    assert [each["id"] for each in tokens] == [each["id"] for each in detailed["details"]["tokens"]]
    encoder_decoder = models["text2text_generation"].ask(TEXT, **FEW)[0]
    assert more["text_of_encoder_decoder"] == encoder_decoder["generated_text"]


def test_a_chat_has_what_its_parameters_ask_for(more: Any) -> None:
    (choice,) = more["chat"]["choices"]
    assert more["chat"]["class"] == "ChatCompletionOutput"
    assert choice["message"]["role"] == "assistant"
    tokens = choice["logprobs"]["content"]
    assert "".join(each["token"] for each in tokens).startswith(choice["message"]["content"])
    assert {len(each["top_logprobs"]) for each in tokens} == {2}


def test_the_schema_of_a_response_format_holds(more: Any) -> None:
    (choice,) = more["schema"]["choices"]
    assert json.loads(choice["message"]["content"]).keys() == {"animal"}


def test_a_named_tool_is_called(more: Any) -> None:
    (call,) = more["tool"]["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "find_animal"


def test_a_model_of_embeddings_compares_sentences(models: dict[str, Served], more: Any) -> None:
    vectors = [
        models["sentence_embedding"].ask(text, normalize=True)
        for text in (TEXT, *PAIR["other_sentences"])
    ]
    cosines = [_dot(vectors[0], each) for each in vectors[1:]]
    assert not differences(more["similarity_of_embeddings"], cosines, TOLERANCE)


def test_the_path_of_similarities_answers_the_same(models: dict[str, Served], more: Any) -> None:
    expected = models["sentence_similarity"].ask(SIMILAR)
    assert not differences(more["similarity"], expected, TOLERANCE)


def test_the_client_raises_errors_with_the_servers_message(more: Any) -> None:
    message = "inputs has no mask token; write [MASK] in the place of a word."
    assert more["mistake"] == {"status": 400, "message": message}
    assert more["chat_mistake"]["status"] == 400
    assert "messages" in more["chat_mistake"]["message"]


def _dot(first: list[float], second: list[float]) -> float:
    return sum(one * other for one, other in zip(first, second, strict=True))


def _without(names: tuple[str, ...], answer: Any) -> Any:
    """Leave out what differs between two answers to the same request."""
    if isinstance(answer, list):
        return [_without(names, each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    return {key: _without(names, each) for key, each in answer.items() if key not in names}
