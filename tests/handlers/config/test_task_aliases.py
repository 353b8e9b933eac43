"""Tasks have other names on the hub, in pipelines and in containers than modes have here."""

from __future__ import annotations

import re

import pytest

from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.config.task_aliases import (
    MODES_OF_HUB_TASKS,
    MODES_OF_OTHER_TASKS,
    WORDS_OF_MODES,
    mode_of_task,
    suggest_mode,
)
from hf_serve.handlers.errors import WrongConfig
from tests.sentences import refused


@pytest.mark.parametrize(
    ("task", "mode"),
    [
        ("text-classification", "sequence_classification"),
        ("sentiment-analysis", "sequence_classification"),
        ("ner", "token_classification"),
        ("vqa", "visual_question_answering"),
        ("text-to-audio", "text_to_speech"),
        ("sentence-embeddings", "sentence_embedding"),
        ("sentence-similarity", "sentence_similarity"),
        ("sentence-ranking", "sentence_ranking"),
        ("robotics", None),
    ],
)
def test_tasks_of_pipelines_and_containers_have_modes(task: str, mode: str | None) -> None:
    assert mode_of_task(task, modes()) == mode


def test_each_name_has_a_mode() -> None:
    assert {*MODES_OF_HUB_TASKS.values(), *MODES_OF_OTHER_TASKS.values()} <= {*modes()}
    assert {mode for found in WORDS_OF_MODES.values() for mode in found} <= {*modes()}


@pytest.mark.parametrize(
    ("word", "suggested"),
    [
        ("classification", {name for name in modes() if name.endswith("classification")}),
        ("classify", {name for name in modes() if name.endswith("classification")}),
        ("embeddings", {"sentence_embedding", "sparse_embedding", "multimodal_embedding"}),
        ("detection", {"object_detection", "zero_shot_object_detection"}),
        ("qa", {name for name in modes() if name.endswith("question_answering")}),
        ("chat", {"text_generation", "image_text_to_text"}),
        ("summarize", {"summarization"}),
        ("reranker", {"sentence_ranking"}),
        ("TextClassification", {"sequence_classification"}),
        ("sequence_clasification", {"sequence_classification"}),
        ("text-clasification", {"sequence_classification"}),
        ("robotics", {*modes()}),
        ("x" * 100_000, {*modes()}),
    ],
)
def test_an_unknown_mode_has_the_modes_that_can_be_meant(word: str, suggested: set[str]) -> None:
    found = suggest_mode(word, modes())
    assert {name for name in modes() if name in re.findall(r"\w+", found)} == suggested


def test_modes_that_can_be_meant_have_the_names_of_their_tasks() -> None:
    found = suggest_mode("classification", modes())
    assert "sequence_classification (text-classification, sentiment-analysis)" in found


def test_the_name_of_a_task_in_a_yaml_is_refused_with_its_mode() -> None:
    with refused(WrongConfig, "text-classification", "sequence_classification"):
        ModelConfig.parse({"handler": {"mode": "text-classification"}})
