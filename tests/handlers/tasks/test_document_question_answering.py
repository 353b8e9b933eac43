"""Document question answering: the answers of transformers' pipeline, and pages that are none."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForDocumentQuestionAnswering,
    AutoModelForImageTextToText,
    AutoTokenizer,
    GenerationConfig,
)
from transformers.models.auto.image_processing_auto import AutoImageProcessor
from transformers.pipelines.document_question_answering import DocumentQuestionAnsweringPipeline

from hf_serve.handlers.errors import RequestTooLarge
from hf_serve.handlers.media import images
from hf_serve.handlers.tasks.document_question_answering import MAX_WORDS, read_word_boxes
from tests.images import IMAGES, TEXTS
from tests.modes._cases import FINE, LONG, ODD
from tests.sentences import Sentence
from tests.serving import Served, differences
from tests.tiny_documents import page_of, write_donut, write_layoutlm, write_layoutlmv3

MODE = "document_question_answering"
CLOSE = 1e-4
QUESTIONS = ("Who sings?", "What is the weather in Paris like today?", "Why?", "Who sings?")
PAGES = [page_of(text) for text in (FINE, LONG, ODD, LONG * 2)]
INPUTS = [
    {"question": question, "word_boxes": page}
    for question, page in zip(QUESTIONS, PAGES, strict=True)
]
PARAMETERS: list[dict[str, Any]] = [
    {},
    {"top_k": 5, "max_seq_len": 60, "doc_stride": 8},
    {"handle_impossible_answer": True, "top_k": 4, "max_answer_len": 3},
]
Folder = Callable[[Callable[..., None]], Path]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folders: dict[str, Path] = {}

    def folder(write: Callable[..., None]) -> Path:
        if write.__name__ not in folders:
            folders[write.__name__] = tmp_path_factory.mktemp(write.__name__)
            write(folders[write.__name__], {}, 0)
        return folders[write.__name__]

    return folder


@pytest.fixture
def layoutlm(checkpoint: Callable[..., Path]) -> Served:
    return Served(checkpoint(MODE), MODE)


@pytest.fixture(scope="module")
def donut(folder_of: Folder) -> Path:
    folder = folder_of(write_donut)
    end = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids("</s_answer>")
    config = GenerationConfig.from_pretrained(folder)
    config.forced_eos_token_id = end
    config.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("write", [write_layoutlm, write_layoutlmv3])
@pytest.mark.parametrize("parameters", PARAMETERS)
def test_answers_are_those_of_the_pipeline_alone_and_together(
    folder_of: Folder, write: Callable[..., None], parameters: dict[str, Any]
) -> None:
    folder = folder_of(write)
    model = AutoModelForDocumentQuestionAnswering.from_pretrained(folder)
    pipeline = DocumentQuestionAnsweringPipeline(
        model=model, tokenizer=AutoTokenizer.from_pretrained(folder)
    )
    expected = [pipeline(inputs, **parameters) for inputs in INPUTS]
    served = Served(folder, MODE)
    alone = [served.ask(inputs, **parameters) for inputs in INPUTS]
    together = served.ask([*INPUTS, *reversed(INPUTS)], **parameters)
    for found in (alone, together[:4], together[:3:-1]):
        assert not differences(found, expected, CLOSE)


@torch.inference_mode()
def test_layoutlmv3_reads_the_pixels_of_an_image(folder_of: Folder) -> None:
    folder = folder_of(write_layoutlmv3)
    served, page = Served(folder, MODE), page_of("Ada sings.")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    processor = AutoImageProcessor.from_pretrained(folder, apply_ocr=False)
    model = AutoModelForDocumentQuestionAnswering.from_pretrained(folder)
    words, boxes = zip(*page, strict=True)
    tokens = tokenizer(["Who?"], [list(words)], boxes=[list(boxes)], return_tensors="pt")
    in_page = np.array(tokens.sequence_ids(0)) == 1
    answers = []
    for image in IMAGES[:2]:
        outputs = model(**tokens, **processor(images=image, return_tensors="pt"))
        count = len(in_page)
        logits = [outputs.start_logits[0, :count], outputs.end_logits[0, :count]]
        allowed = in_page | (tokens["input_ids"][0].numpy() == tokenizer.cls_token_id)
        start, end = (np.exp(each.numpy()) * allowed for each in logits)
        pairs = np.triu(np.outer(start / start.sum(), end / end.sum()))
        answers.append(float((pairs * np.outer(in_page, in_page)).max()))
    asked = [{"question": "Who?", "word_boxes": page, "image": text} for text in TEXTS[:2]]
    without = {"question": "Who?", "word_boxes": page}
    first, other, second = served.ask([asked[0], without, asked[1]])
    assert [first[0]["score"], second[0]["score"]] == pytest.approx(answers, rel=1e-4)
    assert other[0]["score"] not in (pytest.approx(answers[0]), pytest.approx(answers[1]))


def test_donut_writes_what_the_pipeline_writes(donut: Path) -> None:
    pipeline = DocumentQuestionAnsweringPipeline(
        model=AutoModelForImageTextToText.from_pretrained(donut),
        tokenizer=AutoTokenizer.from_pretrained(donut),
        image_processor=AutoImageProcessor.from_pretrained(donut),
    )
    pipeline.generation_config = GenerationConfig.from_pretrained(donut)
    asked = list(zip(IMAGES[:3], TEXTS[:3], QUESTIONS[:3], strict=True))
    expected = [pipeline({"image": image, "question": each}) for image, _, each in asked]
    assert len({str(answer) for answer in expected}) > 1
    served = Served(donut, MODE)
    inputs = [{"image": text, "question": each} for _, text, each in asked]
    assert [served.ask(each) for each in inputs] == expected
    found = served.post(*({"inputs": each} for each in [*inputs, {**inputs[0], "image": "AAAA"}]))
    assert [body for _, body in found[:3]] == expected
    assert found[3][0] == 400


def test_donut_refuses_what_it_cannot_read(donut: Path) -> None:
    served = Served(donut, MODE)
    assert served.refuse(INPUTS[0])[1].startswith("inputs has no image, which this model reads")
    status, message = served.refuse({"image": TEXTS[0], "question": "Who sings? " * 90})
    assert (status, "the question with the prompt of the model has" in message) == (413, True)
    assert not served.engine.describe().explanation


def test_a_broken_page_fails_alone(folder_of: Folder) -> None:
    model = Served(folder_of(write_layoutlmv3), MODE)
    good = [model.ask(inputs) for inputs in INPUTS[:2]]
    broken = {**INPUTS[0], "image": "AAAA"}
    outside = {"question": "Who?", "word_boxes": [["Ada", [0, 0, 2000, 10]]]}
    contents = (INPUTS[0], broken, outside, INPUTS[1])
    first, second, third, last = model.post(*({"inputs": each} for each in contents))
    assert [first[0], second[0], third[0], last[0]] == [200, 400, 400, 200]
    assert not differences([first[1], last[1]], good, CLOSE)


def test_an_image_beside_words_is_read_by_no_model_of_words(layoutlm: Served) -> None:
    assert layoutlm.ask({**INPUTS[0], "image": "AAAA"}) == layoutlm.ask(INPUTS[0])
    assert layoutlm.refuse({**INPUTS[0], "image": "not base64"})[0] == 400


def test_patches_of_images_count_in_the_budget_of_a_forward(folder_of: Folder) -> None:
    model = Served(folder_of(write_layoutlmv3), MODE, max_batch_tokens=64)
    page = {"question": "Who?", "word_boxes": page_of("Ada sings.")}
    pages = [{**page, "image": text} for text in TEXTS]
    counted: list[int] = []
    original = model.engine.model.forward

    def forward(batch: Any) -> Any:
        counted.append(len(batch["input_ids"]))
        return original(batch)

    model.engine.model.forward = forward  # type: ignore[method-assign]
    model.ask([page] * 4 + pages)
    assert counted == [4, 2, 2]


def test_words_are_read_by_tesseract_where_a_request_has_none(
    layoutlm: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["", "Ada", " ", "sings"]
    places = {name: [0, 10, 0, 20] for name in ("left", "top", "width", "height")}
    fake = SimpleNamespace(
        image_to_data=lambda *_, **__: {"text": words, **places}, TesseractError=OSError
    )
    monkeypatch.setitem(sys.modules, images.PYTESSERACT, fake)
    monkeypatch.setattr(images, "find_spec", lambda _: True)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/tesseract")
    found = layoutlm.ask({"image": TEXTS[0], "question": "Who sings?"})
    width, height = IMAGES[0].size
    boxes = [
        [1000 * at // side for at in (c, c, 2 * c, 2 * c) for side in [width]] for c in (10, 20)
    ]
    assert width == height
    page = list(zip(["Ada", "sings"], boxes, strict=True))
    assert not differences(
        found, layoutlm.ask({"question": "Who sings?", "word_boxes": page}), CLOSE
    )


def test_an_image_alone_is_refused_without_tesseract(
    layoutlm: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "find_spec", lambda _: None)
    status, message = layoutlm.refuse({"image": TEXTS[0], "question": "Who sings?"})
    assert (status, "send word_boxes, or install tesseract-ocr" in message) == (422, True)


def test_words_may_be_a_parameter_or_json(layoutlm: Served) -> None:
    expected = layoutlm.ask(INPUTS[0])
    for page in (PAGES[0], json.dumps(PAGES[0])):
        assert layoutlm.ask({"question": QUESTIONS[0]}, word_boxes=page) == expected


def test_a_question_is_cut_where_a_request_says_so(layoutlm: Served) -> None:
    cut = layoutlm.ask({**INPUTS[0], "question": "Who sings in the bar?"}, max_question_len=2)
    assert cut == layoutlm.ask({**INPUTS[0], "question": "Who sings"})


@pytest.mark.parametrize(
    ("page", "status", "facts"),
    [
        ("Ada", 400, ["word_boxes"]),
        (5, 400, ["word_boxes"]),
        ([], 400, ["word_boxes"]),
        ([5], 400, ["word_boxes[0]"]),
        ([["Ada", [1, 2, 3]]], 400, ["word_boxes[0]"]),
        ([["Ada", [1, 2, 3, True]]], 400, ["word_boxes[0]"]),
        ([["Ada", [1, 2, 3, float("nan")]]], 400, ["word_boxes[0]"]),
        ([["Ada", [5, 2, 3, 4]]], 400, ["word_boxes[0]"]),
        ([["Ada", [0, 0, 9, 10**400]]], 400, ["word_boxes[0]"]),
        ([["Ada", [-1, 0, 9, 9]]], 400, ["word_boxes[0]"]),
        ([["\ud83d", [0, 0, 9, 9]]], 400, ["word_boxes[0]"]),
        ([["Ada", [0, 0, 9, 9]]] * (MAX_WORDS + 1), 413, ["word_boxes", "50,001"]),
        ("[" * 6_000_000, 413, ["word_boxes", "6,000,000"]),
        ([["a" * 2_000_000, [0, 0, 9, 9]]], 413, ["word_boxes", "2,000,000"]),
        ([["Ada", [0, 0, 9, 9]]] * MAX_WORDS, 413, []),
    ],
)
def test_what_is_no_page_is_refused(
    layoutlm: Served, page: Any, status: int, facts: list[str]
) -> None:
    found, sentence = layoutlm.refuse({"question": "Who sings?", "word_boxes": page})
    assert (found, sentence) == (status, Sentence(*facts))


@pytest.mark.parametrize(
    ("inputs", "parameters", "status", "facts"),
    [
        ({"word_boxes": PAGES[0]}, {}, 400, ["word_boxes", "inputs"]),
        ({"question": "Who?"}, {}, 400, ["inputs"]),
        ({**INPUTS[0], "question": " "}, {}, 400, ["question"]),
        (INPUTS[0], {"doc_stride": 60, "max_seq_len": 50}, 400, ["doc_stride", "60"]),
        (INPUTS[1], {"max_seq_len": 12}, 413, ["question"]),
        (INPUTS[0], {"tesseract_config": "--psm 6"}, 422, ["tesseract_config"]),
    ],
)
def test_what_is_no_question_about_a_page_is_refused(
    layoutlm: Served, inputs: Any, parameters: dict[str, Any], status: int, facts: list[str]
) -> None:
    found, sentence = layoutlm.refuse(inputs, **parameters)
    assert (found, sentence) == (status, Sentence(*facts))


def test_words_may_have_as_many_characters_as_the_limit() -> None:
    page = json.dumps([["Ada", [0, 0, 9, 9]], ["sings", [9, 0, 20, 9]]])
    assert read_word_boxes(page, 8)
    with pytest.raises(RequestTooLarge):
        read_word_boxes(page, 7)
