"""The sample files in artifacts/, which the README and the demo send."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest

from hf_serve.demo_models import MODES
from hf_serve.demo_models.synthetic_text import entities, sentiment
from hf_serve.handlers import tasks
from hf_serve.handlers.types.model_info import TEXT_COLUMN
from hf_serve.scripts.paths import ARTIFACTS

# The modes of TorchServe's example that take a text alone.
OLD_TEXT_MODES = [
    mode
    for mode in MODES
    if tasks.get(mode).description.wire.legacy_response
    and tasks.get(mode).description.wire.input_columns[0] == TEXT_COLUMN
]


def read(mode: str, name: str) -> str:
    return (ARTIFACTS / mode / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("mode", MODES)
def test_the_sample_is_a_request(mode: str) -> None:
    body: dict[str, Any] = json.loads(read(mode, "sample.json"))
    assert body["inputs"]
    assert body.keys() <= {"inputs", "parameters"}


def test_the_old_question_holds_question_and_context() -> None:
    assert json.loads(read("question_answering", "sample_text.txt")).keys() == {
        "question",
        "context",
    }


@pytest.mark.parametrize("mode", OLD_TEXT_MODES)
def test_the_old_target_file_repeats_the_text(mode: str) -> None:
    body = ast.literal_eval(read(mode, "sample_text_target.txt"))
    assert body.keys() == {"text", "target"}
    assert body["text"] == read(mode, "sample_text.txt").strip()


def test_label_files_name_the_labels_of_the_checkpoints_in_their_order() -> None:
    numbered = json.loads(read("sequence_classification", "index_to_name.json"))
    listed = json.loads(read("token_classification", "index_to_name.json"))["label_list"]
    assert tuple(numbered[str(index)] for index in range(2)) == sentiment.LABELS
    assert tuple(listed.strip("[]").split(", ")) == entities.LABELS
