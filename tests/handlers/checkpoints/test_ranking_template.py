"""Templates of rerankers: those of families, and those that checkpoints have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from hf_serve.handlers.checkpoints.ranking_template import (
    FAMILIES,
    Frame,
    family_of,
    mentions_pair,
    read_chat_template,
    single_token,
    tokens_behind,
)
from hf_serve.handlers.config.handler_section import RankingTemplateName
from hf_serve.handlers.errors import WrongCheckpoint
from tests.reference.rerankers import QWEN3, STRIPPED, ZERANK
from tests.sentences import refused
from tests.tiny_tokenizers import write_chat

CHATML = (
    "{% for each in messages %}<|im_start|>{{ each.role }}\n{{ each.content }}<|im_end|>\n"
    "{% endfor %}"
)
GEMMA_TASK = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query"
    " by providing a prediction of either 'Yes' or 'No'."
)
MXBAI_TASK = (
    "You are a search relevance expert who evaluates how well documents match search queries. For"
    " each query-document pair, carefully analyze the semantic relationship between them, then"
    " provide your binary relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:"
)
MXBAI = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    "<|im_end|>\n<|im_start|>user\n{}query: a\ndocument: b\n"
    f"{MXBAI_TASK}<|im_end|>\n<|im_start|>assistant\n"
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tokenizer without a template."""
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_chat(folder, 512)
    return AutoTokenizer.from_pretrained(folder)


def with_template(tokenizer: Any, template: str | None) -> Any:
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize(
    ("name", "instruction", "text"),
    [
        ("mxbai_rerank_v2", None, MXBAI.format("")),
        ("mxbai_rerank_v2", "c", MXBAI.format("instruction: c\n")),
        ("bge_reranker_gemma", None, f"<bos>A: a\nB: b\n{GEMMA_TASK}"),
        ("bge_reranker_gemma", "c", "<bos>A: a\nB: b\nc"),
    ],
)
def test_a_family_writes_pairs_as_its_models_were_trained(
    name: RankingTemplateName, instruction: str | None, text: str
) -> None:
    written = FAMILIES[name].template.write("a", "b", instruction)
    assert written.text == text
    assert [text[slice(*span)] for span in (written.query, written.document)] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "template", "arguments"),
    [
        ("qwen3_reranker", QWEN3, {}),
        ("zerank", ZERANK, {"add_generation_prompt": True}),
    ],
)
def test_a_family_has_the_template_of_its_newer_checkpoints(
    tokenizer: Any, name: RankingTemplateName, template: str, arguments: Any
) -> None:
    own = read_chat_template(with_template(tokenizer, template), arguments)
    assert own == FAMILIES[name].template


@pytest.mark.parametrize(
    ("model_name", "model_type", "expected"),
    [
        ("Qwen/Qwen3-Reranker-0.6B", "qwen3", "qwen3_reranker"),
        ("tomaarsen/Qwen3-Reranker-0.6B-seq-cls", "qwen3", "qwen3_reranker"),
        ("/models/mxbai-rerank-base-v2", "qwen2", "mxbai_rerank_v2"),
        ("BAAI/bge-reranker-v2-gemma", "gemma", "bge_reranker_gemma"),
        ("zeroentropy/zerank-1-small", "qwen3", "zerank"),
        ("mixedbread-ai/mxbai-rerank-base-v1", "deberta-v2", None),
        ("me/Qwen3-Reranker-distilled", "llama", None),
        ("/models/Qwen3-Reranker-0.6B/mine", "qwen3", None),
        ("", "qwen3", None),
    ],
)
def test_a_family_is_known_by_name_and_model_type(
    model_name: str, model_type: str, expected: RankingTemplateName | None
) -> None:
    assert family_of(model_name, model_type) == (FAMILIES[expected] if expected else None)


def test_a_template_is_its_fixed_texts_and_its_places(tokenizer: Any) -> None:
    own = read_chat_template(with_template(tokenizer, STRIPPED), {}, structured=True)
    assert own.plain == Frame(
        ("query: ", "\ndocument: ", "\n\nRelevance:"), ("query", "document"), strips=True
    )
    written = own.write(" a ", "b\n{{ c }}", "Why?")
    assert written.text == "query: a\ndocument: b\n{{ c }}\nWhy?\nRelevance:"
    assert written.text[slice(*written.document)] == "b\n{{ c }}"


def test_a_template_without_a_place_for_an_instruction_has_none(tokenizer: Any) -> None:
    assert read_chat_template(with_template(tokenizer, ZERANK), {}).instructed is None


@pytest.mark.parametrize(
    ("template", "fact"),
    [
        (None, "chat_template"),
        ("{{ messages[0].content }}", "document"),
        ("{% if messages[0].role == 'user' %}{{ messages[0].content }}{% endif %}", "query"),
        ("{{ messages[1].content + messages[0].content }}", "document"),
        ("{{ messages[0].content + messages[1].content * 2 }}", "document"),
        ("{{ messages[0].content + messages[1].content[:14] }}", "texts"),
        ("{{ (messages[0].content + messages[1].content) | upper }}", "query"),
        ("{{ raise_exception('no such role') }}", "no such role"),
        ("{{ messages[0].content", "chat_template"),
    ],
)
def test_a_template_that_does_more_than_put_texts_into_places_is_refused(
    tokenizer: Any, template: str | None, fact: str
) -> None:
    with refused(WrongCheckpoint, fact, "handler.ranking_template"):
        read_chat_template(with_template(tokenizer, template), {})


def test_a_template_of_conversations_does_not_mention_pairs() -> None:
    assert [mentions_pair(each) for each in (QWEN3, ZERANK, STRIPPED, CHATML)] == [True] * 3 + [
        False
    ]


def test_the_tokens_behind_a_document_do_not_depend_on_it(tokenizer: Any) -> None:
    frame = FAMILIES["qwen3_reranker"].template.plain
    behind = tokens_behind(tokenizer, frame, "")
    assert tokenizer.decode(behind) == frame.fixed[-1]


@pytest.mark.parametrize("text", ["yes and no", "maybe"])
def test_a_label_of_several_tokens_is_refused(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode([single_token(tokenizer, "yes")]) == "yes"
    with refused(WrongCheckpoint, text):
        single_token(tokenizer, text)
