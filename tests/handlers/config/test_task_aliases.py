"""Tasks have other names on the hub, in pipelines and in containers than modes have here."""

from __future__ import annotations

import pytest

from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.config.task_aliases import (
    MODES_OF_HUB_TASKS,
    MODES_OF_OTHER_TASKS,
    mode_of_task,
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


def test_the_name_of_a_task_in_a_yaml_is_refused_with_its_mode() -> None:
    with refused(WrongConfig, "text-classification", "sequence_classification"):
        ModelConfig.parse({"handler": {"mode": "text-classification"}})
