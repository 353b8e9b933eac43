"""Checkpoints of GLiNER2: what is read, what is refused by its name, and how a text is read."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from hf_serve.handlers import tasks
from hf_serve.handlers.batching.words import PROMPTS, WORDS
from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.types.request import Request
from tests import tiny_gliner
from tests.sentences import Sentence, refused
from tests.serving import Served, explanation_of
from tests.tiny_gliner import DEBERTA, Kind

MODE = "zero_shot_token_classification"
HANDLER = HandlerSection(mode=MODE)
TEXT = "Nina Vogel sings in Zürich"
LABELS = ["person", "city"]
# With these weights, a text has entities where the bias of the count is not changed.
SEED = 5


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kind = Kind("DebertaV2", {}, DEBERTA)
    return tiny_gliner.write_gliner2(tmp_path_factory.mktemp("gliner2") / "model", kind, SEED)


@pytest.fixture(scope="module")
def model(kept: Path) -> Served:
    return Served(kept, MODE, captum_explanation=True)


@pytest.fixture
def folder(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "model"))


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **values}), "utf-8")


def with_count_bias(folder: Path, most: float) -> Path:
    """Add a number to the logit of no structures."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["count_pred.2.bias"][0] += most
    save_file(weights, path)
    return folder


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"architecture": "boundary"}, ["boundary", "span"]),
        ({"counting_layer": "count_mlp"}, ["count_mlp", "count_lstm_v2"]),
        ({"span_head": {"span_mode": "marker"}}, ["marker", "markerV0"]),
        ({"max_width": "wide"}, ["max_width"]),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_what_is_not_computed_is_refused_without_the_weights(
    folder: Path, values: dict[str, Any], facts: list[str]
) -> None:
    change(folder / "config.json", **values)
    (folder / "model.safetensors").unlink()
    with refused(WrongCheckpoint, "config.json", *facts):
        tasks.load(folder, HANDLER)


def test_a_checkpoint_without_the_config_of_its_encoder_is_refused(folder: Path) -> None:
    (folder / "encoder_config" / "config.json").unlink()
    with refused(WrongCheckpoint, "encoder_config/config.json"):
        tasks.load(folder, HANDLER)


def test_a_tokenizer_without_the_tokens_of_a_schema_is_refused(folder: Path) -> None:
    tiny_gliner.write_tokenizer(folder, Kind("DebertaV2", {}, DEBERTA), ("[P]", "[SEP_TEXT]"))
    with refused(WrongCheckpoint, "config.json", "[E]"):
        tasks.load(folder, HANDLER)


def test_weights_that_lack_a_layer_are_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["count_embed.gru.weight_hh_l0"]
    save_file(weights, path)
    with refused(WrongCheckpoint, "config.json", "count_embed.gru.weight_hh_l0"):
        Served(folder, MODE)


def test_another_mode_names_the_mode_that_serves_it(kept: Path) -> None:
    with refused(WrongCheckpoint, "config.json", "GLiNER2", MODE):
        Checkpoint.read(kept, HandlerSection(mode="sentence_embedding"))


def test_a_text_is_read_in_lower_case_behind_its_schema(model: Served) -> None:
    task: Any = model.engine.task
    labels = {"person": "name of a human", "city": "city"}
    ((row,),) = task.encode([task.parse(Request(TEXT, {"labels": labels}))])
    tokens = task.tokenizer.convert_ids_to_tokens(row.features["input_ids"])
    read = [token for token, number in zip(tokens, row.features[PROMPTS], strict=True) if number]
    assert read == ["[P]", "[E]", "[E]"]
    assert tokens.count("[DESCRIPTION]") == 1
    assert "[CLS]" not in tokens and "[SEP]" not in tokens
    assert tokens.index("[SEP_TEXT]") + 1 == row.features[WORDS].index(1)
    # The full stop at the end is read, and is no word of the text.
    assert (tokens[-1], row.features[WORDS][-1], row.encoding.special_tokens_mask[-1]) == (
        ".",
        6,
        1,
    )


def test_spans_are_chosen_label_by_label_unless_a_request_says_otherwise(model: Served) -> None:
    found = model.ask(TEXT, labels=LABELS, threshold=0.01)
    together = model.ask(TEXT, labels=LABELS, threshold=0.01, multi_label=False)
    assert {each["entity_group"] for each in found} == {*LABELS}
    places = [(each["start"], each["end"]) for each in together]
    assert places == sorted(places)
    assert all(end <= start for (_, end), (start, _) in pairwise(places))
    assert len(together) < len(found)
    best = max(found, key=lambda each: each["score"])
    assert best in together
    assert all(each["end"] <= len(TEXT) and each["word"] for each in found)


def test_a_text_without_structures_has_no_entities_and_is_explained(folder: Path) -> None:
    model = Served(with_count_bias(folder, 100), MODE, captum_explanation=True)
    assert model.ask(TEXT, labels=LABELS, threshold=0.0) == []
    body = {"inputs": TEXT, "parameters": {"labels": LABELS, "method": "input_x_gradient"}}
    ((status, found),) = model.post(explanation_of(body))
    assert status == 200, found
    assert found["prediction"] is None
    assert found["target"]["label"] in LABELS


def test_an_explanation_sums_to_the_logit_of_a_span_and_has_the_words_of_the_text(
    model: Served,
) -> None:
    target = {"start": 0, "end": 10, "label": "city"}
    parameters = {"labels": LABELS, "target": target, "granularity": "word", "n_steps": 200}
    ((status, found),) = model.post(explanation_of({"inputs": TEXT, "parameters": parameters}))
    assert status == 200, found
    places = [place for place in found["offsets"] if place != [0, 0]]
    assert [TEXT[start:end] for start, end in places] == TEXT.split()
    difference = found["output"] - found["baseline_output"]
    assert sum(found["attributions"]) == pytest.approx(difference, rel=0.05, abs=0.01)


def test_a_long_text_is_read_in_windows(kept: Path, model: Served) -> None:
    limited = Served(kept, MODE, max_length=40)
    text = " ".join([TEXT] * 12)
    found = limited.ask(text, labels=LABELS, threshold=0.01)
    task: Any = limited.engine.task
    (rows,) = task.encode([task.parse(Request(text, {"labels": LABELS}))])
    assert len(rows) > 2
    assert max(map(len, rows)) <= 40
    assert max(each["end"] for each in found) > len(text) // 2


def test_relations_and_structures_are_refused(model: Served) -> None:
    bodies = [
        {"inputs": TEXT, "parameters": {"labels": LABELS, "relations": ["lives in"]}},
        {"inputs": {"text": TEXT, "labels": LABELS, "structures": {"person": ["name"]}}},
    ]
    replies = model.post(*bodies)
    assert [status for status, _ in replies] == [422, 422]
    for (_, found), name in zip(replies, ("relations", "structures"), strict=True):
        assert found["message"] == Sentence(name, "entities")
