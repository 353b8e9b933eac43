"""Encoder-decoders: families alone and in batches, settings, streams, limits, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.dispatcher import Dispatcher
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import WrongCheckpoint, WrongConfig
from hf_serve.handlers.formats import check_config
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.types.request import Request
from tests import tiny
from tests.samples import FINE, ODD
from tests.sentences import Sentence, refused
from tests.serving import Served, explanation_of, stream_into

MODE = "text2text_generation"
FAMILIES = ["T5", "Bart", "Marian", "Pegasus", "MBart", "M2M100"]
TEXTS = ["Once upon a time", ODD, "Ada lives in Paris and works in London.", FINE, "Ada"]
GREEDY = {"num_beams": 1, "max_new_tokens": 8}
Model = Callable[..., Served]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("beams", [1, 3])
def test_a_text_of_a_batch_is_that_of_generate_for_it_alone(
    served: Model, checkpoint: Callable[..., Path], family: str, beams: int
) -> None:
    model = served(MODE, family=family)
    module = AutoModelForSeq2SeqLM.from_pretrained(checkpoint(MODE, family=family)).eval()
    tokenizer = model.engine.task.checkpoint.tokenizer
    expected = []
    for text in TEXTS:
        with torch.inference_mode():
            ids = module.generate(
                **tokenizer(text, return_tensors="pt"), num_beams=beams, max_new_tokens=8
            )
        expected.append(tokenizer.decode(ids[0], skip_special_tokens=True))
    found = model.ask(TEXTS, num_beams=beams, max_new_tokens=8)
    assert [each["generated_text"] for each in found] == expected
    assert len(set(expected)) > 1 or family == "M2M100"


def with_generation(folder: Path, family: str, **generation: Any) -> Served:
    return Served(tiny.write(folder, MODE, family=family, generation=generation), MODE)


def test_a_text_has_the_forced_tokens_of_its_checkpoint_at_its_own_end(tmp_path: Path) -> None:
    model = with_generation(tmp_path, "Bart", forced_bos_token_id=7, forced_eos_token_id=2)
    lengths = [3, 5, 5, 8]
    bodies = [
        {
            "inputs": text,
            "parameters": {"max_new_tokens": length, "num_beams": 1, "details": True},
        }
        for text, length in zip(TEXTS, lengths, strict=False)
    ]
    alone = [model.post(body)[0][1] for body in bodies]
    assert [list(answer) for _, answer in model.post(*bodies)] == alone
    for (answer,), length in zip(alone, lengths, strict=True):
        assert answer["details"]["tokens"][0]["id"] == 7
        assert answer["details"]["generated_tokens"] <= length


def test_a_forbidden_token_is_never_written(tmp_path: Path) -> None:
    free = Served(tiny.write(tmp_path / "free", MODE, family="Marian"), MODE)
    (first, *_) = free.ask("Ada", **GREEDY, details=True)[0]["details"]["tokens"]
    bound = with_generation(tmp_path / "bound", "Marian", bad_words_ids=[[first["id"]]])
    tokens = bound.ask("Ada", **GREEDY, details=True)[0]["details"]["tokens"]
    assert first["id"] not in [token["id"] for token in tokens]


def test_a_list_has_a_text_for_each_item_and_several_where_they_are_requested(
    served: Model,
) -> None:
    model = served(MODE)
    assert model.ask([FINE, "Ada"], **GREEDY) == [
        model.ask(text, **GREEDY)[0] for text in (FINE, "Ada")
    ]
    several = model.ask([FINE], num_beams=3, num_return_sequences=2, max_new_tokens=4)
    assert len(several[0]) == 2


def test_a_checkpoint_has_settings_for_its_task(tmp_path: Path) -> None:
    own = {"max_length": 6, "num_beams": 1, "prefix": "summarize: "}
    model = tiny.write(
        tmp_path / "model",
        "summarization",
        generation={"max_length": 30},
        task_specific_params={"summarization": own},
    )
    task = Served(model, "summarization")
    answer = task.ask(FINE, details=True)[0]
    assert answer["details"]["generated_tokens"] <= 5
    other = Served(model, "text2text_generation")
    (same,) = other.ask(f"summarize: {FINE}", max_length=6, num_beams=1)
    assert answer["summary_text"] == same["generated_text"]


def test_settings_that_are_no_values_of_parameters_stop_the_load(tmp_path: Path) -> None:
    wrong = {"summarization": {"num_beams": "many"}}
    folder = tiny.write(tmp_path / "model", "summarization", task_specific_params=wrong)
    with refused(WrongCheckpoint, "task_specific_params", "summarization"):
        Served(folder, "summarization")


@pytest.mark.parametrize(
    ("parameters", "status", "facts"),
    [
        ({"max_new_tokens": 4000}, 413, ["127"]),
        ({"return_full_text": True}, 422, ["return_full_text"]),
        ({"num_return_sequences": 9}, 422, []),
        ({"tools": []}, 400, ["tools"]),
    ],
)
def test_what_an_encoder_decoder_cannot_do_is_refused(
    served: Model, parameters: dict[str, Any], status: int, facts: list[str]
) -> None:
    found, sentence = served(MODE, family="Bart").refuse(FINE, **parameters)
    assert (found, sentence) == (status, Sentence(*facts))


def test_a_long_text_is_cut_where_the_request_says_so(served: Model) -> None:
    model, long = served(MODE), "a fox " * 200
    assert model.refuse(long)[0] == 413
    assert model.ask(long, truncation=True, **GREEDY)


def test_streamed_parts_are_the_text(served: Model) -> None:
    engine, parts = served(MODE).engine, list[str]()
    request = Request(FINE, {"max_new_tokens": 8, "num_beams": 1}, stream=stream_into(parts))
    (outcome,) = engine.predict([request])
    assert isinstance(outcome, list)
    assert len(parts) > 1
    assert outcome[0]["generated_text"].startswith("".join(parts))


def test_tgi_has_the_text_under_its_own_key(served: Model) -> None:
    model = served("summarization")
    body = {"inputs": FINE, "parameters": {"max_new_tokens": 4, "details": True}}
    ((status, answer),) = model.post(_to(model, "generate", body))
    expected = model.ask(FINE, max_new_tokens=4, num_beams=1)[0]["summary_text"]
    assert (status, answer["generated_text"]) == (200, expected)
    assert len(answer["details"]["tokens"]) == answer["details"]["generated_tokens"]


def test_openais_paths_are_refused(served: Model) -> None:
    model = served("summarization")
    ((status, answer),) = model.post(_to(model, "v1/completions", {"prompt": FINE, "model": "m"}))
    assert status == 422
    assert "continues no prompts" in answer["error"]["message"]


def _to(model: Served, path: str, body: Any) -> HttpRequest:
    return HttpRequest({"body": body}, {"url_path": path})


@pytest.mark.parametrize("save_mode", ["openvino", "onnx", "torchscript"])
def test_formats_that_do_not_run_encoder_decoders_are_refused(save_mode: str) -> None:
    config = ModelConfig.parse({"handler": {"mode": "translation", "save_mode": save_mode}})
    with refused(WrongConfig, "save_mode: pretrained"):
        check_config(config)


def test_with_continuous_batching_texts_are_the_same(
    checkpoint: Callable[..., Path], served: Model
) -> None:
    config = ModelConfig.parse(
        {"continuousBatching": True, "handler": {"mode": MODE, "dtype": "float32"}}
    )
    engine = Engine.load(checkpoint(MODE, family="Bert"), config)
    found = engine.predict([Request(text, GREEDY) for text in TEXTS])
    assert found == [served(MODE).ask(text, **GREEDY) for text in TEXTS]
    assert Dispatcher(engine)


@pytest.mark.parametrize(
    ("family", "method"),
    [
        ("Marian", "shapley_value_sampling"),
        ("Bart", "layer_integrated_gradients"),
        pytest.param("Marian", "layer_integrated_gradients", marks=pytest.mark.nightly),
        pytest.param("Bart", "shapley_value_sampling", marks=pytest.mark.nightly),
    ],
)
def test_attributions_of_the_words_sum_to_the_log_probability_of_the_text(
    served: Model, family: str, method: str
) -> None:
    model = served(MODE, family=family)
    steps = {"n_steps": 400} if method.startswith("layer") else {}
    parameters = {"max_new_tokens": 2, "method": method, **steps}
    ((status, found),) = model.post(
        explanation_of({"inputs": "Ada sings", "parameters": parameters})
    )
    assert status == 200, found
    difference = found["output"] - found["baseline_output"]
    assert sum(found["attributions"]) == pytest.approx(difference, rel=0.05, abs=0.1)
    assert found["words"][0] == "<s>" and found["attributions"][0] == 0


def test_a_file_of_settings_is_read_from_an_old_config(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", MODE, family="Bart")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "max_length": 5}), encoding="utf-8")
    details = Served(folder, MODE).ask(FINE, details=True)[0]["details"]
    assert details["generated_tokens"] <= 4
