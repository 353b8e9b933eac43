"""Visual question answering: the answers of transformers 4's pipeline, questions and bad files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForVisualQuestionAnswering as AutoModel
from transformers import AutoTokenizer, GenerationConfig
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from hf_serve.handlers.errors import DeadlineExceeded, Unprocessable
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from tests.images import BROKEN, FILES, IMAGES, TEXTS
from tests.sentences import Sentence
from tests.serving import Served, differences
from tests.tiny_multimodal import write_blip

MODE = "visual_question_answering"
CLOSE = 1e-4
QUESTIONS = ("Who sings?", "What is the weather in Paris like today?", "Who sings?", "Why?")
INPUTS = [
    {"image": text, "question": question} for text, question in zip(TEXTS, QUESTIONS, strict=True)
]


@pytest.fixture
def vilt(checkpoint: Callable[..., Path]) -> Path:
    return checkpoint(MODE)


@pytest.fixture(scope="module")
def blip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blip")
    write_blip(folder, {}, 0)
    GenerationConfig(max_new_tokens=6).save_pretrained(folder)
    return folder


@pytest.fixture(params=["vilt", "blip"])
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


@torch.inference_mode()
def answers_of_the_pipeline(folder: Path, top_k: int = 5) -> list[Any]:
    """Return the answers of transformers 4's pipeline, which transformers 5 has no more."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    image_processor = AutoImageProcessor.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    found = []
    for image, question in zip(IMAGES, QUESTIONS, strict=True):
        has_types = not model.can_generate()
        inputs = tokenizer(question, return_tensors="pt", return_token_type_ids=has_types)
        inputs.update(image_processor(images=image, return_tensors="pt"))
        if model.can_generate():
            ids = model.generate(**inputs, max_new_tokens=6)[0]
            found.append([{"answer": tokenizer.decode(ids, skip_special_tokens=True).strip()}])
            continue
        best = model(**inputs).logits.sigmoid()[0].topk(min(top_k, model.config.num_labels))
        pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        names = model.config.id2label
        found.append([{"score": score, "answer": names[number]} for score, number in pairs])
    return found


def test_answers_are_those_of_the_pipeline_alone_and_together(folder: Path) -> None:
    model, expected = Served(folder, MODE), answers_of_the_pipeline(folder)
    alone = [model.ask(inputs) for inputs in INPUTS]
    together = model.ask([*INPUTS, *reversed(INPUTS)])
    for found in (alone, together[:4], together[:3:-1]):
        assert not differences(found, expected, CLOSE)


def test_top_k_is_the_number_of_answers(vilt: Path) -> None:
    found = Served(vilt, MODE).ask(INPUTS[0], top_k=2)
    assert not differences(found, answers_of_the_pipeline(vilt, 2)[0], CLOSE)


def test_a_broken_file_fails_alone(folder: Path) -> None:
    model = Served(folder, MODE)
    good = [model.ask(inputs) for inputs in INPUTS[:2]]
    parts: list[dict[str, Any]] = [
        {"image": file, "question": question}
        for file, question in zip((FILES[0], BROKEN, FILES[1]), ("Who sings?",) * 3, strict=True)
    ]
    parts[2]["question"] = QUESTIONS[1]
    first, broken, second = model.post(*map(form, parts))
    assert [first[0], broken[0], second[0]] == [200, 400, 200]
    assert broken[1]["message"].startswith("The image is no image that can be read")
    assert not differences([first[1], second[1]], good, CLOSE)


def form(fields: dict[str, Any]) -> HttpRequest:
    """Return a form, whose fields TorchServe passes as bytes."""
    row = {
        name: bytearray(value if isinstance(value, bytes) else value.encode())
        for name, value in fields.items()
    }
    return HttpRequest(row, {})


def test_columns_beside_the_inputs_are_those_of_the_hubs_client(vilt: Path) -> None:
    model = Served(vilt, MODE)
    body = {"inputs": TEXTS[1], "image": TEXTS[1], "question": QUESTIONS[1]}
    ((status, answer),) = model.post({**body, "parameters": {"top_k": 2}})
    assert status == 200
    assert not differences(answer, model.ask(INPUTS[1], top_k=2), CLOSE)
    ((status, answer),) = model.post({"inputs": TEXTS[1], "question": QUESTIONS[1]})
    assert (status, "unknown key 'question'" in answer["message"]) == (400, True)


def test_a_long_question_is_cut_or_refused_as_configured(vilt: Path) -> None:
    asked = {**INPUTS[0], "question": "Who sings in the bar? " * 20}
    assert Served(vilt, MODE).ask(asked)
    assert Served(vilt, MODE, truncation=False).refuse(asked) == (
        413,
        Sentence("122", "40", "YAML"),
    )


@pytest.mark.parametrize(
    ("inputs", "status", "facts"),
    [
        (TEXTS[0], 400, ["inputs"]),
        ({"image": TEXTS[0]}, 400, ["image", "inputs"]),
        ({"image": TEXTS[0], "question": ["Who?"]}, 400, ["question"]),
        ({"image": TEXTS[0], "question": " "}, 400, ["question"]),
        ({"image": 5, "question": "Who?"}, 400, ["image"]),
        ({"image": "http://localhost/a.png", "question": "Who?"}, 422, ["image"]),
    ],
)
def test_what_is_no_question_about_an_image_is_refused(
    vilt: Path, inputs: Any, status: int, facts: list[str]
) -> None:
    found, sentence = Served(vilt, MODE).refuse(inputs)
    assert (found, sentence) == (status, Sentence(*facts))


def test_a_question_of_too_many_characters_is_refused(vilt: Path) -> None:
    status, message = Served(vilt, MODE, max_characters=20).refuse(
        {**INPUTS[0], "question": "a" * 21}
    )
    assert (status, message) == (
        413,
        Sentence("question", "21", "20"),
    )


def test_an_answer_is_no_longer_than_the_decoder_writes(tmp_path: Path) -> None:
    write_blip(tmp_path, {}, 0)  # a generation config without a limit; the pipelines' is 256 tokens
    model = Served(tmp_path, MODE)
    assert model.engine.task.checkpoint.config.text_config.max_position_embeddings < 256
    assert model.ask(INPUTS[0])


def test_generation_ends_with_the_time_limit(blip: Path) -> None:
    engine = Served(blip, MODE).engine
    row = engine.task.encode([engine.task.parse(Request(INPUTS[0]))])[0]
    assert isinstance(row, list)
    # Time is left before the first token, and none after it.
    deadline = Deadline(0.5, clock=iter((0.0, 0.1, 0.2, 1.0, 1.1)).__next__)
    (outcome,) = engine.task.run(engine.model, row, Meter(), deadline)
    assert isinstance(outcome, DeadlineExceeded)


def test_an_answer_that_is_written_is_not_explained(blip: Path) -> None:
    request = Request({"image": TEXTS[0], "question": QUESTIONS[0]})
    (refused,) = Served(blip, MODE).engine.explain([request])
    assert isinstance(refused, Unprocessable)
