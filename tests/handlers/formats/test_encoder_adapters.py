"""LoRA adapters of encoders, chosen for each text, compared with peft; some have a head."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from peft import PeftModel
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.tasks.bases.labels import softmax
from hf_serve.handlers.telemetry.metrics import Meter
from tests import families, tiny_adapters
from tests.handlers.protocols.test_cohere import request_to
from tests.sentences import Sentence, refused
from tests.serving import Served, explanation_of

TEXTS = ("w7 w8 w9 w10", "w11", "w3 w4 w5 w6 w7 w8 w9 w12 w13", "w20 w21 w22")
# An adapter with the labels of the model, one with others, and their names.
NAMES = {"mood": ["sad", "glad"], "topic": ["news", "sport", "art"]}
AUTO = {
    "sequence_classification": "AutoModelForSequenceClassification",
    "token_classification": "AutoModelForTokenClassification",
    "sentence_embedding": "AutoModel",
}
TASKS = {
    "sequence_classification": "SEQ_CLS",
    "token_classification": "TOKEN_CLS",
    "sentence_embedding": "FEATURE_EXTRACTION",
}
ALL: dict[str, Any] = {"top_k": None}


def write_adapters(folder: Path, base: Path, mode: str) -> dict[str, Path]:
    auto = getattr(transformers, AUTO[mode])
    folders = {}
    for seed, (name, labels) in enumerate(NAMES.items()):
        options = {} if mode == "sentence_embedding" else {"num_labels": len(labels)}
        folders[name] = tiny_adapters.write(
            folder / name,
            base,
            seed=seed,
            load=partial(auto.from_pretrained, ignore_mismatched_sizes=True, **options),
            task_type=TASKS[mode],
            target_modules=["query", "value"] if mode == "token_classification" else "all-linear",
        )
        if options:
            names = json.dumps({"label_list": labels})
            (folders[name] / "index_to_name.json").write_text(names, encoding="utf-8")
    return folders


def reference(base: Path, adapter: Path, mode: str, text: str, labels: int) -> np.ndarray[Any, Any]:
    """Return the first output of transformers and peft for one text."""
    options = {} if mode == "sentence_embedding" else {"num_labels": labels}
    auto = getattr(transformers, AUTO[mode])
    module = auto.from_pretrained(base, ignore_mismatched_sizes=True, **options)
    model = PeftModel.from_pretrained(module, adapter).eval()
    encoded = AutoTokenizer.from_pretrained(base)(text, return_tensors="pt")
    with torch.no_grad():
        return np.asarray(model(**encoded)[0][0])


@pytest.fixture(scope="module", params=["bert", "roberta", "modernbert"])
def base(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a head of two labels."""
    folder = tmp_path_factory.mktemp(request.param)
    families.save(families.module(request.param, "sequence_classification"), folder)
    return folder


@pytest.fixture(scope="module")
def adapters(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_adapters(tmp_path_factory.mktemp("adapters"), base, "sequence_classification")


@pytest.fixture(scope="module")
def model(base: Path, adapters: dict[str, Path]) -> Served:
    named = {name: str(folder) for name, folder in adapters.items()}
    return Served(base, "sequence_classification", adapters=named)


def body(text: str, adapter: str | None, **parameters: Any) -> dict[str, Any]:
    return {"inputs": text, "parameters": {**parameters, "adapter_id": adapter}}


def scores(answer: tuple[int, Any]) -> dict[str, float]:
    status, labels = answer
    assert status == 200, labels
    return {each["label"]: each["score"] for each in labels}


def test_scores_are_those_of_peft_alone_and_in_company(
    model: Served, base: Path, adapters: dict[str, Path]
) -> None:
    chosen = [(text, name) for text in TEXTS for name in (None, *NAMES)]
    together = model.post(*[body(*each, **ALL) for each in chosen])
    for (text, name), answer in zip(chosen, together, strict=True):
        alone = scores(model.post(body(text, name, **ALL))[0])
        assert scores(answer) == pytest.approx(alone, abs=1e-4)
        if name is not None:
            mode = "sequence_classification"
            logits = reference(base, adapters[name], mode, text, len(NAMES[name]))
            expected = dict(zip(NAMES[name], softmax(logits).tolist(), strict=True))
            assert alone == pytest.approx(expected, abs=1e-4)


def test_texts_with_different_adapters_run_in_one_packed_forward(model: Served) -> None:
    assert model.engine.model.capabilities.supports_packing
    meter = Meter()
    requests = [
        tiny_adapters.request(text, name, **ALL) for text in TEXTS for name in (None, *NAMES)
    ]
    outcomes = model.engine.predict(requests, meter)
    assert not any(isinstance(each, Exception) for each in outcomes)
    assert meter.counts["forwards"] == 1


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint with a head, and the same one without."""
    folder = tmp_path_factory.mktemp("bases")
    module = families.module("bert", "sequence_classification")
    families.save(module, folder / "whole")
    families.save(module.base_model, folder / "headless")
    return folder / "whole", folder / "headless"


def test_a_base_without_a_head_needs_an_adapter_with_one(
    bases: tuple[Path, Path], tmp_path: Path
) -> None:
    folders = write_adapters(tmp_path, bases[0], "sequence_classification")
    named = {name: str(folder) for name, folder in folders.items()}
    whole, headless = (Served(base, "sequence_classification", adapters=named) for base in bases)
    refusal, answer = headless.post(body(TEXTS[0], None), body(TEXTS[0], "topic", **ALL))
    assert refusal[0] == 422
    assert refusal[1]["message"] == Sentence("mood", "topic", "adapter_id")
    expected = scores(whole.post(body(TEXTS[0], "topic", **ALL))[0])
    assert scores(answer) == pytest.approx(expected, abs=1e-4)


def test_an_adapter_without_the_head_that_the_base_lacks_is_refused(
    bases: tuple[Path, Path], tmp_path: Path
) -> None:
    load = AutoModelForSequenceClassification.from_pretrained
    plain = tiny_adapters.write(
        tmp_path / "plain", bases[0], seed=0, load=load, task_type=None, target_modules=["query"]
    )
    with refused(WrongCheckpoint, "classifier"):
        Served(bases[1], "sequence_classification", adapters={"plain": str(plain)})


def test_an_explanation_of_an_adapter_is_its_gradient(
    model: Served, base: Path, adapters: dict[str, Path]
) -> None:
    text, labels = TEXTS[0], NAMES["topic"]
    request = body(text, "topic", method="input_x_gradient", target="art", granularity="token")
    neighbour = body(TEXTS[2], "mood")
    found, _ = model.post(explanation_of(request), explanation_of(neighbour))
    assert found[0] == 200, found[1]
    assert found[1]["target"]["label"] == "art"
    module = AutoModelForSequenceClassification.from_pretrained(
        base, num_labels=len(labels), ignore_mismatched_sizes=True
    )
    expected = gradient(PeftModel.from_pretrained(module, adapters["topic"]), base, text, 2)
    assert found[1]["attributions"] == pytest.approx(expected.tolist(), abs=1e-4)


def gradient(model: Any, base: Path, text: str, label: int) -> np.ndarray[Any, Any]:
    """Return the product of each token's vector and its gradient."""
    model.eval()
    encoded = AutoTokenizer.from_pretrained(base)(text, return_tensors="pt")
    layer = model.get_input_embeddings()
    kept: list[torch.Tensor] = []

    def keep(_layer: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        kept.append(output.detach().requires_grad_())
        return kept[-1]

    handle = layer.register_forward_hook(keep)
    logits = model(**encoded)[0][0]
    handle.remove()
    (slopes,) = torch.autograd.grad(logits[label], kept[0])
    return np.asarray((slopes * kept[0]).sum(-1)[0].detach())


@pytest.mark.parametrize("mode", ["token_classification", "sentence_embedding"])
def test_other_modes_have_adapters_too(mode: str, tmp_path: Path) -> None:
    base = tmp_path / "base"
    head = "token_classification" if mode == "token_classification" else "feature_extraction"
    families.save(families.module("bert", head), base)
    folders = write_adapters(tmp_path, base, mode)
    model = Served(base, mode, adapters={name: str(each) for name, each in folders.items()})
    chosen = [(text, name) for text in TEXTS for name in NAMES]
    options: dict[str, Any] = {"normalize": False} if mode == "sentence_embedding" else {}
    if mode == "token_classification":
        options = {"ignore_labels": [], "special_tokens": True}
    together = model.post(*[body(*each, **options) for each in chosen])
    for (text, name), (status, answer) in zip(chosen, together, strict=True):
        assert status == 200, answer
        expected = reference(base, folders[name], mode, text, len(NAMES[name]))
        if mode == "sentence_embedding":
            assert answer == pytest.approx(expected.mean(0).tolist(), abs=1e-4)
        else:
            best = [NAMES[name][number] for number in expected.argmax(-1)]
            assert [each["entity"] for each in answer] == best


def test_pairs_are_ranked_by_the_adapter_that_a_request_names(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    base = checkpoint("sentence_ranking", family="Bert")
    load = AutoModelForSequenceClassification.from_pretrained
    names: Sequence[str] = ("law", "code")
    named = {
        name: str(
            tiny_adapters.write(
                tmp_path / name,
                base,
                seed=seed,
                load=load,
                task_type=TASKS["sequence_classification"],
            )
        )
        for seed, name in enumerate(names)
    }
    model = Served(base, "sentence_ranking", adapters=named)
    pair = {"text": "Who sings?", "text_pair": "Nina sings."}
    answers = model.post(
        *[
            {"inputs": pair, "parameters": {"adapter_id": name, "raw_scores": True}}
            for name in (*names, None)
        ]
    )
    found = [answer["score"] for _, answer in answers]
    encoded = AutoTokenizer.from_pretrained(base)(*pair.values(), return_tensors="pt")
    with torch.no_grad():
        expected = [
            float(PeftModel.from_pretrained(load(base), named[name]).eval()(**encoded).logits)
            for name in names
        ]
        expected.append(float(load(base).eval()(**encoded).logits))
    assert found == pytest.approx(expected, abs=1e-4)
    body = {"query": "Who sings?", "documents": ["Nina sings.", "It rains."]}
    chosen, unknown = model.post(
        *[request_to("v2/rerank", {**body, "model": name}) for name in ("law", "nobody")]
    )
    ranked = model.ask({"query": body["query"], "texts": body["documents"]}, adapter_id="law")
    scores = [each["relevance_score"] for each in chosen[1]["results"]]
    assert scores == pytest.approx([each["score"] for each in ranked], abs=1e-5)
    assert (chosen[1]["model"], unknown[0]) == ("law", 404)


@pytest.fixture
def library(bases: tuple[Path, Path], tmp_path: Path) -> tuple[Path, dict[str, Path], Served]:
    """A folder of adapters, empty at first, adapters to put there, and a model that reads it."""
    folders = write_adapters(tmp_path / "made", bases[0], "sequence_classification")
    folder = tmp_path / "library"
    folder.mkdir()
    options = {"adapters_directory": str(folder), "max_loaded_adapters": 1}
    return folder, folders, Served(bases[0], "sequence_classification", **options)


def test_adapters_come_and_go_while_the_model_serves(
    library: tuple[Path, dict[str, Path], Served], bases: tuple[Path, Path]
) -> None:
    folder, made, model = library
    named = {name: str(each) for name, each in made.items()}
    packed = Served(bases[0], "sequence_classification", adapters=named)
    assert model.post(body(TEXTS[0], "mood"))[0][0] == 422
    for name, each in made.items():
        shutil.copytree(each, folder / name)
    assert list(model.engine.describe().adapters) == sorted(made)
    bodies = [body(text, name, **ALL) for text in TEXTS for name in (None, *made)]
    for found, expected in zip(model.post(*bodies), packed.post(*bodies), strict=True):
        assert scores(found) == pytest.approx(scores(expected), abs=1e-4)
    shutil.rmtree(folder / "mood")
    assert model.post(body(TEXTS[0], "mood"))[0][0] == 422


def test_adapters_that_were_not_used_for_the_longest_time_are_dropped(
    library: tuple[Path, dict[str, Path], Served],
) -> None:
    folder, made, model = library
    names = ("a", "b", "c")
    for name in names:
        shutil.copytree(made["mood"], folder / name)
    expected = scores(model.post(body(TEXTS[0], "a"))[0])
    model.post(*[body(TEXTS[0], name) for name in names])
    model.post(body(TEXTS[0], None))
    loaded: Any = model.engine.model
    assert [name for name, _ in loaded._adapters._numbers] == ["c"]
    assert {len(parts) for parts in loaded._adapters._parts.values()} == {1}
    assert scores(model.post(body(TEXTS[0], "a"))[0]) == pytest.approx(expected, abs=1e-5)


def test_replaced_weights_are_read_anew(library: tuple[Path, dict[str, Path], Served]) -> None:
    folder, made, model = library
    shutil.copytree(made["mood"], folder / "mine")
    before = scores(model.post(body(TEXTS[0], "mine", **ALL))[0])
    shutil.rmtree(folder / "mine")
    shutil.copytree(made["topic"], folder / "mine")
    after = scores(model.post(body(TEXTS[0], "mine", **ALL))[0])
    assert (sorted(before), sorted(after)) == (
        ["glad", "sad"],
        ["art", "news", "sport"],
    )


def test_a_broken_adapter_is_refused_and_harms_no_neighbour(
    library: tuple[Path, dict[str, Path], Served],
) -> None:
    folder, made, model = library
    shutil.copytree(made["mood"], folder / "whole")
    shutil.copytree(made["mood"], folder / "broken")
    path = folder / "broken" / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    broken, whole = model.post(body(TEXTS[0], "broken"), body(TEXTS[0], "whole"))
    assert broken[0] == 422
    assert "broken" in broken[1]["message"]
    assert whole[0] == 200


@pytest.mark.parametrize("name", ["../made/mood", "/etc", "..", ".", "linked", "a" * 100])
def test_adapters_are_read_below_the_directory_only(
    library: tuple[Path, dict[str, Path], Served], name: str
) -> None:
    folder, made, model = library
    (folder / "linked").symlink_to(made["mood"])
    assert model.post(body(TEXTS[0], name))[0][0] == 422
