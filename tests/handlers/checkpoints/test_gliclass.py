"""Checkpoints of GLiClass: what is read, what is refused by its name, and how a text is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_serve.handlers import tasks
from hf_serve.handlers.batching.padding import pad
from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import WrongCheckpoint, WrongConfig
from hf_serve.handlers.types.decisions import Option, Question
from hf_serve.handlers.types.request import Request
from tests import tiny_gliner
from tests.sentences import refused
from tests.serving import Served, explanation_of
from tests.tiny_gliner import Kind

MODE = "zero_shot_classification"
HANDLER = HandlerSection(mode=MODE)
TEXT = "Nina sings in the old bar."
LABELS = ["music", "weather", "cities"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kind = Kind("Bert", {"prompt_first": True, "pooling_strategy": "avg"})
    return tiny_gliner.write_gliclass(tmp_path_factory.mktemp("gliclass"), kind)


@pytest.fixture(scope="module")
def model(kept: Path) -> Served:
    return Served(kept, MODE, captum_explanation=True)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"architecture_type": "bi-encoder"}, ["bi-encoder"]),
        ({"scorer_type": "hopfield"}, ["hopfield", "weighted-dot"]),
        ({"pooling_strategy": "rms"}, ["rms", "avg"]),
        ({"extract_text_features": True}, ["extract_text_features", "avg"]),
        ({"encoder_layer_id": 3}, ["encoder_layer_id"]),
        ({"use_lstm": True}, ["use_lstm"]),
        ({"use_segment_embeddings": True}, ["use_segment_embeddings"]),
        ({"use_calibrator": True}, ["use_calibrator"]),
        ({"projector_hidden_act": "mish"}, ["mish", "gelu"]),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_what_is_not_computed_is_refused_without_the_weights(
    kept: Path, tmp_path: Path, values: dict[str, Any], facts: list[str]
) -> None:
    config = json.loads((kept / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, **values}), "utf-8")
    with refused(WrongCheckpoint, "config.json", *facts):
        tasks.load(tmp_path, HANDLER)


def test_another_mode_names_the_mode_that_serves_it(kept: Path) -> None:
    with refused(WrongCheckpoint, "config.json", "GLiClass", MODE):
        Checkpoint.read(kept, HandlerSection(mode="sentence_embedding"))


def test_a_format_of_graphs_is_refused(kept: Path) -> None:
    with refused(WrongConfig, "save_mode", "onnx", "pretrained"):
        tasks.load(kept, HandlerSection(mode=MODE, save_mode="onnx"))


def test_a_text_is_one_row_whatever_the_number_of_its_labels(model: Served) -> None:
    task: Any = model.engine.task
    inputs = [Request(TEXT, {"candidate_labels": each}) for each in (LABELS, ["music"])]
    requests = [task.parse(each) for each in inputs]
    rows = task.encode(requests)
    assert [len(each) for each in rows] == [1, 1]


def test_labels_below_the_threshold_are_left_out(model: Served) -> None:
    whole = model.ask(TEXT, candidate_labels=LABELS, multi_label=True)
    middle = whole["scores"][1]
    found = model.ask(TEXT, candidate_labels=LABELS, multi_label=True, threshold=middle)
    assert found["labels"] == whole["labels"][:2]


def test_tokens_of_labels_in_a_text_change_no_other_label(model: Served) -> None:
    found = model.ask("<<LABEL>> sings <<SEP>> in the bar", candidate_labels=LABELS)
    assert sorted(found["labels"]) == sorted(LABELS)
    assert sum(found["scores"]) == pytest.approx(1)


def test_a_long_text_loses_its_end_and_no_label(model: Served) -> None:
    text = "the old bar near the river " * 200
    longer = model.ask(f"{text} Ada lives in Paris.", candidate_labels=LABELS)
    assert longer["scores"] == model.ask(text, candidate_labels=LABELS)["scores"]


def test_labels_that_leave_no_room_are_refused_and_harm_no_neighbour(model: Served) -> None:
    many = {"inputs": TEXT, "parameters": {"candidate_labels": ["the river " * 80] * 10}}
    good = {"inputs": TEXT, "parameters": {"candidate_labels": LABELS}}
    (first, error), (second, _) = model.post(many, good)
    assert (first, second) == (413, 200)
    assert "labels" in error["message"]


def test_a_hypothesis_is_refused(model: Served) -> None:
    status, message = model.refuse(
        TEXT, candidate_labels=LABELS, hypothesis_template="It is about {}."
    )
    assert status == 422
    assert "hypothesis_template" in message


def test_a_question_is_answered_by_its_options_in_one_row(model: Served) -> None:
    task: Any = model.engine.task
    options = [Option("music"), Option("weather"), Option("cities")]
    item = task.parse(Request(Question("choice", TEXT, "It is about", options)))
    ((row,),) = task.encode([item])
    assert item.hypotheses[0] == "It is about music"
    (outputs,) = task.outputs_for_comparison(model.engine.model, [row])
    probabilities = task.decode(item, [row], [outputs])
    assert len(probabilities) == 3
    assert sum(probabilities) == pytest.approx(1)


def test_an_explanation_is_the_gradient_of_the_logit(model: Served) -> None:
    settings = {"method": "input_x_gradient", "target": "cities", "granularity": "token"}
    body = {"inputs": TEXT, "parameters": {"candidate_labels": LABELS, **settings}}
    ((status, found),) = model.post(explanation_of(body))
    assert status == 200, found
    task: Any = model.engine.task
    ((row,),) = task.encode([task.parse(Request(TEXT, {"candidate_labels": LABELS}))])
    batch, module = pad([row], task.padding), model.engine.model
    wanted = input_x_gradient(module, batch, LABELS.index("cities"))
    read = [place for place, each in enumerate(found["sequence_ids"]) if each == 0]
    attributions = torch.tensor(found["attributions"])[read]
    torch.testing.assert_close(attributions, wanted[read], rtol=1e-3, atol=1e-5)
    assert found["words"][read[0]] == "nina"


def input_x_gradient(model: Any, batch: Any, label: int) -> torch.Tensor:
    """Return the product of each token's vector and the gradient of a label's logit along it."""
    layer = model.module.get_input_embeddings()
    vectors = layer(batch["input_ids"]).detach().requires_grad_()
    handle = layer.register_forward_hook(lambda *_: vectors)
    try:
        logit = model.module(**batch)["logits"][0, label]
    finally:
        handle.remove()
    (gradient,) = torch.autograd.grad(logit, vectors)
    return (vectors * gradient).sum(-1)[0].detach()
